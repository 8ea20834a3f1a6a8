"""The rows of two results files, paired: one time of each launch on both sides of every case."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from collbench.errors import UsageError
from collbench.record import Record
from collbench.units import format_size

LATENCY_BELOW = 64 << 10
"""Bytes: below, start-up costs and not bandwidth make the time."""
BANDWIDTH_FROM = 4 << 20
"""Bytes: from here on the data no longer fit into the caches of a core, and a link is in its steady state."""
SHORTEST_S, LONGEST_S = 1e-12, 1e9
"""Seconds: times beyond these are no times of a collective, and their ratios no numbers."""
BANDS = ("latency", "middle", "bandwidth")

AXES = (
    "collective", "variant", "backend", "dtype", "operation", "root", "placement", "caller", "call", "mode", "sync",
    "buffer", "buffers", "pages", "pattern", "neighbour", "topology", "group",
)  # fmt: skip
"""What tells cases of one size apart."""

DOUBTS = ("noisy", "throttled", "shared_device", "timer_floor")
"""Notes that are told; the scatter of the launches has them in it."""

Launch = tuple[str, int]
Name = tuple[object, ...]


@dataclass(frozen=True)
class Side:
    """A case on one side: its median in seconds in each launch, and what else its rows say."""

    times: Mapping[Launch, float]
    rows: tuple[Record, ...]
    absent: tuple[tuple[Launch, str], ...] = ()
    """Launches of its runs that have rows, but none of this case that ran, and why."""

    @property
    def failed(self) -> str:
        """What its rows that gave no time say, or that one is not there; empty where every launch gave a time."""
        bad = [row for row in self.rows if _time(row) is None]
        if bad:
            return f"launch {bad[0].launch}: {_why(bad[0])}"
        return f"launch {self.absent[0][0][1]}: {self.absent[0][1]}" if self.absent else ""

    @property
    def oversubscribed(self) -> bool:
        """Whether ranks shared cores: such a time says nothing of the library."""
        return any(row.oversubscribed or "oversubscribed" in (row.notes or "").split() for row in self.rows)


@dataclass(frozen=True)
class Paired:
    """One case on both sides; None is a side that has no row of it, or none but skipped ones."""

    name: Name
    base: Side | None
    new: Side | None
    label: str = field(default="", compare=False)
    skipped: str = field(default="", compare=False)
    """Why NEW has no row of it but skipped ones; empty where it has none at all."""

    @property
    def row(self) -> Record:
        """A row that says what the case is."""
        side = self.base or self.new
        if side is None:
            raise ValueError("Paired: got no rows, expected those of one side at least")
        return side.rows[0]

    @property
    def band(self) -> str:
        """The size band that it is of."""
        return band_of(_size(self.row))

    @property
    def doubts(self) -> str:
        """Notes of its rows that say that its time is not the library's alone."""
        rows = [row for side in (self.base, self.new) if side is not None for row in side.rows]
        return " ".join(note for note in DOUBTS if any(note in (row.notes or "").split() for row in rows))


def band_of(size_bytes: int) -> str:
    """Name the band of a size."""
    if size_bytes < LATENCY_BELOW:
        return "latency"
    return "middle" if size_bytes < BANDWIDTH_FROM else "bandwidth"


def pair(base: Iterable[Record], new: Iterable[Record], across: Sequence[str] = ()) -> list[Paired]:
    """Pair rows by case and group, in the order of BASE; axes in `across` may differ between the sides."""
    ignored = {axis for axis in across if axis in AXES}
    rows = list(base), list(new)
    sides = [_sides(its, ignored, which) for which, its in zip(("BASE", "NEW"), rows, strict=True)]
    skipped = {_name(row, ignored): row.reason or "for no reason" for row in rows[1] if row.status == "skipped"}
    names = dict.fromkeys([*sides[0], *sides[1]])
    paired = [Paired(name, sides[0].get(name), sides[1].get(name)) for name in names]
    varying = {
        axis for axis in AXES if axis not in ignored and len({getattr(one.row, axis) for one in paired} - {None}) > 1
    } | {"collective"}
    return [Paired(one.name, one.base, one.new, _label(one.row, varying), skipped.get(one.name, "")) for one in paired]


def matching(paired: Sequence[Paired], patterns: Sequence[str]) -> list[Paired]:
    """Those that one of the patterns names: a case_id, or some of the full label's words in their order."""
    found = {
        pattern: [one for one in paired if named(one.row.case_id, words(one.row), pattern)] for pattern in patterns
    }
    for pattern, its in found.items():
        if not its:
            raise UsageError(
                f'compare: --case: got "{pattern}", expected a case_id or some words, in their order, of a case in the '
                f'results, such as "{next(iter(paired)).label}"'
            )
    return list({one.name: one for its in found.values() for one in its}.values())


def _sides(rows: Iterable[Record], ignored: set[str], which: str) -> dict[Name, Side]:
    kept: dict[Name, dict[Launch, Record]] = {}
    every: dict[tuple[object, ...], dict[Launch, None]] = {}
    skipped: dict[tuple[Name, Launch], str] = {}
    for row in rows:
        every.setdefault(_run(row), {})[(row.run_id or "", row.launch)] = None
        if row.status == "skipped":
            skipped[_name(row, ignored), (row.run_id or "", row.launch)] = _why(row)
        if row.status == "skipped":
            continue
        name = _name(row, ignored)
        launch = (row.run_id or "", row.launch)
        its = kept.setdefault(name, {})
        if ignored and launch in its and its[launch].case_id != row.case_id:
            raise UsageError(
                f"compare: --across: got {', '.join(sorted(ignored))}, expected one case of each in {which}, which has "
                f"{its[launch].case_id} and {row.case_id}; keep the rows of one of them"
            )
        if launch in its and its[launch] != row:
            raise UsageError(
                f"compare: {which}: got two rows of {row.case_id}{f' {g}' if (g := row.group) else ''} in launch "
                f"{row.launch} of {row.run_id}, expected one; leave out the rows of one of them"
            )
        its[launch] = row
    return {
        name: Side(
            {launch: time for launch, row in its.items() if (time := _time(row))},
            tuple(its.values()),
            tuple(
                (launch, skipped.get((name, launch), "no row of it"))
                for run in dict.fromkeys(map(_run, its.values()))
                for launch in every[run]
                if launch not in its
            ),
        )
        for name, its in kept.items()
    }


def _run(row: Record) -> tuple[object, ...]:
    """What has launches of its own: a variant of a run."""
    return (row.run_id, row.variant)


def _name(row: Record, ignored: set[str]) -> Name:
    if not ignored:
        return (row.case_id, row.group or "")
    return (row.requested_bytes, *(getattr(row, axis) for axis in AXES if axis not in ignored))


def _why(row: Record) -> str:
    """Why a row gives no time to compare."""
    status = f"time_p50_s is {row.time_p50_s}" if row.status == "ok" else str(row.status)
    return f"{status}: {row.reason}" if row.reason else status


def _time(row: Record) -> float | None:
    """Its median in seconds; None where it has none, or one of 0, which no ratio can be made of."""
    if row.status != "ok" or not row.time_p50_s or row.time_p50_s < 0:
        return None
    if not SHORTEST_S <= row.time_p50_s <= LONGEST_S:
        raise UsageError(
            f"compare: {row.case_id}: launch {row.launch}: time_p50_s: got {row.time_p50_s:g}, expected "
            f"{SHORTEST_S:g} to {LONGEST_S:g} seconds; such a time was not measured, so leave the row out"
        )
    return row.time_p50_s


def _size(row: Record) -> int:
    return row.size_bytes or row.requested_bytes or 0


def _label(row: Record, axes: Iterable[str]) -> str:
    shown = [axis for axis in AXES if axis in axes]
    words = [str(value) for axis in shown if (value := getattr(row, axis)) not in (None, "")]
    return " ".join([words[0] if words else row.case_id, format_size(_size(row)), *words[1:]])


def words(row: Record) -> str:
    """All words that a case can be named by."""
    return _label(row, AXES)


def named(case_id: str, words: str, pattern: str) -> bool:
    """Whether a pattern names the case of these words: a case_id, or some of the words in their order, with * and ?."""
    left = iter(words.split())
    return pattern == case_id or all(any(fnmatchcase(one, wanted) for one in left) for wanted in pattern.split())
