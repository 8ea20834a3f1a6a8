"""The ladder as a table: each step's bus bandwidth, as a fraction of the step below and of what the link carries."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import UsageError
from collbench.ladder import PAIR, STEPS, Step
from collbench.output import deliver
from collbench.record import Record
from collbench.results import read
from collbench.units import format_rate, format_size

_OTHER_AXES = {
    "caller": "compiled", "call": "blocking", "sync": "library", "buffer": "plain", "buffers": 1, "pages": "default",
    "placement": "out_of_place", "neighbour": "alone", "operation": "sum",
}  # fmt: skip
"""What a step's rows say besides; an empty cell is an axis that the step does not have."""
_DOUBTS = ("noisy", "oversubscribed", "shared_device")
"""Notes of a row that say that its bandwidth is not the layer's alone."""
_NOTHING_LOST = 0.995
"""From here on a fraction reads 1.00."""
_SMALL = 0.01


@dataclass(frozen=True)
class Rung:
    """A step: its GB/s (the median over the launches) as a fraction of the step below and of the link's.

    `said` is why there is no value, or what its rows say of a value that is not to be trusted.
    """

    step: Step
    busbw: float | None = None
    below: str = ""
    of_below: float | None = None
    of_limit: float | None = None
    said: str = ""
    beside: bool = False
    """A fallback where what it stands in for ran."""


@dataclass(frozen=True)
class Ladder:
    """One size of a ladder, in the order of its steps."""

    title: str
    rungs: tuple[Rung, ...]

    @property
    def worst(self) -> Rung | None:
        """The rung that loses most of what is below it; None where there is nothing to compare."""
        compared = [rung for rung in self.rungs if rung.of_below is not None and not rung.beside]
        return min(compared, key=lambda rung: rung.of_below or 0.0, default=None)

    @property
    def sentence(self) -> str:
        """Which step loses most."""
        worst = self.worst
        if worst is None or worst.of_below is None:
            return "too few steps ran to be compared"
        if worst.of_below >= _NOTHING_LOST:
            return "no step loses anything of what is below it"
        lost = f"the step from {worst.below} to {worst.step.name}"
        return f"{lost} loses most: {_share(worst.of_below)} of what is below it"

    def lines(self) -> list[str]:
        """The table, the steps that did not run with their reasons, and the sentence."""
        ran = [rung for rung in self.rungs if rung.busbw is not None]
        width = max((len(rung.step.name) for rung in ran), default=4)
        found = [f"ladder {self.title}"]
        if ran:
            found.append(f"  {'step':{width}}  {'GB/s':>8}  {'of limit':>8}  {'of below':>8}  below")
        for rung in ran:
            mark = ">" if rung is self.worst and (rung.of_below or 0.0) < _NOTHING_LOST else " "
            rate = format_rate((rung.busbw or 0.0) * 1e9).removesuffix(" GB/s")
            cells = f"{rate:>8}  {_share(rung.of_limit):>8}  {_share(rung.of_below):>8}"
            cells += f"  {rung.below}{' ' * bool(rung.below)}{f'({rung.said})' if rung.said else ''}"
            found.append(f"{mark} {rung.step.name:{width}}  {cells}".rstrip())
        reasons: dict[str, list[str]] = {}
        for rung in self.rungs:
            if rung.busbw is None:
                reasons.setdefault(rung.said, []).append(rung.step.name)
        found += [f"  not run: {'; '.join(names)}: {said}" for said, names in reasons.items()]
        return [*found, f"  {self.sentence}"]


def ladders(records: Iterable[Record]) -> tuple[Ladder, ...]:
    """Find the ladders in a run's rows, one for each variant, mode, type and size."""
    found: dict[tuple[str, int, str, str], dict[Step, list[Record]]] = {}
    programs: dict[tuple[str, int, Step], list[Record]] = {}
    for record in records:
        step = _step_of(record)
        if step is None:
            continue
        variant, size = record.variant or "", record.requested_bytes or 0
        if step.pattern:  # a message has no type
            programs.setdefault((variant, size, step), []).append(record)
            continue
        rows = found.setdefault((variant, size, record.dtype or "", record.mode or ""), {})
        rows.setdefault(step, []).append(record)
    made = []
    for (variant, size, dtype, mode), rows in found.items():
        own = {step: its for (where, much, step), its in programs.items() if (where, much) == (variant, size)}
        if any(step.topology == PAIR for step in rows):
            made.append(_ladder((variant, f"{format_size(size)} {dtype}", mode), rows | own))
    return tuple(made)


def lines(records: Iterable[Record]) -> list[str]:
    """All ladders of a run, one below the other; empty where it has none."""
    return [line for one in ladders(records) for line in one.lines()]


def command(path: Path) -> int:
    """Print the ladders of a results file or a run folder."""
    found = lines(read(path))
    if not found:
        raise UsageError(f'{path}: got no ladder, expected the results of a scenario with kind = "ladder"; run one')
    deliver("\n".join(found) + "\n")
    return 0


def _step_of(record: Record) -> Step | None:
    """The step that a row is of, None where it is of none."""
    if any(getattr(record, axis) not in (None, value) for axis, value in _OTHER_AXES.items()):
        return None
    what = (record.backend, record.collective, record.pattern or "", record.topology)
    return next((one for one in STEPS if (one.backend, one.collective, one.pattern, one.topology) == what), None)


def _ladder(words: Sequence[str], rows: Mapping[Step, list[Record]]) -> Ladder:
    values: dict[str, float] = {}
    rungs = []
    for step in STEPS:
        its = rows.get(step, [])
        ran = [row for row in its if row.status == "ok" and row.busbw_GBps]
        if not ran:
            rungs.append(Rung(step, said=_why(its)))
            continue
        values[step.name] = statistics.median(row.busbw_GBps or 0.0 for row in ran)
        limits = [row.limit_fraction for row in ran if row.limit_fraction]
        below = _below(step, values)
        rungs.append(
            Rung(
                step,
                values[step.name],
                below,
                values[step.name] / values[below] if below else None,
                statistics.median(limits) if limits else None,
                said=" ".join(note for note in _DOUBTS if any(note in (row.notes or "").split() for row in ran)),
                beside=step.instead_of in values,
            )
        )
    groups = dict.fromkeys(row.group for step, its in rows.items() if step.topology == PAIR for row in its)
    launches = len({row.launch for its in rows.values() for row in its})
    told = [*map(str, groups), *words[1:], *([f"variant {words[0]}"] if words[0] else [])]
    return Ladder(", ".join([*told, *([f"median of {launches} launches"] if launches > 1 else [])]), tuple(rungs))


def _below(step: Step, values: Mapping[str, float]) -> str:
    """The name of the step with a value that this one stands on; empty where there is none."""
    by_name = {one.name: one for one in STEPS}
    name = step.on
    while name and name not in values:
        name = by_name[name].on
    return name


def _why(rows: Sequence[Record]) -> str:
    """Why a step has no value."""
    if not rows:
        return "it has no row"
    row = rows[-1]
    reason = row.reason or "it gives no bandwidth"
    return reason if row.status in ("skipped", "ok") else f"{row.status}: {reason}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value >= _SMALL else f"{value:.1g}"
