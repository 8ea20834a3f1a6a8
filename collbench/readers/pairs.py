"""Pairs: matrices of rank x rank and host x host, and which host, device or path is slow.

Made from results.csv alone: a row of a pairs topology is named by its two ranks, and `members` has their hosts. A row
`again:A-B` is a suspect, measured again alone with a partner that is known to be good.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from collbench.errors import UsageError
from collbench.record import Record
from collbench.topology import AGAIN
from collbench.units import format_duration, format_rate, format_size

SLOW = 0.85
"""A host or pair is suspect below this share of what it is held against."""

_LEAST_FOR_RATE = 64 << 10
"""Bytes; below this a pair's time says more than its bandwidth."""
_OTHER_AXES = (
    "variant", "backend", "collective", "dtype", "operation", "root", "placement", "caller", "call", "mode", "sync",
    "buffer", "buffers", "pages", "pattern", "neighbour", "topology",
)  # fmt: skip

Pair = tuple[int, int]


@dataclass(frozen=True)
class Pairs:
    """One case on all pairs: bytes/s where `by_rate`, else seconds, the median over the launches.

    `hosts` is each rank's host. `again` are the values of what was measured again, alone.
    """

    case_id: str
    title: str
    by_rate: bool
    hosts: Mapping[int, str]
    values: Mapping[Pair, float]
    again: Mapping[Pair, float] = field(default_factory=dict)
    failed: Mapping[Pair, str] = field(default_factory=dict)
    """Pairs without a value, and why: their row's status and reason."""
    failed_again: Mapping[Pair, str] = field(default_factory=dict)
    noisy: frozenset[Pair] = frozenset()
    """Pairs with a row that says that other programs ran on its cores."""
    together: bool = True
    """Whether other pairs communicated at the same time."""

    @property
    def places(self) -> tuple[str, ...]:
        """What is judged: hosts, or the ranks of one host."""
        return tuple(dict.fromkeys(self.place(rank) for rank in sorted(self.hosts)))

    @property
    def several_hosts(self) -> bool:
        """Whether places are hosts."""
        return len(set(self.hosts.values())) > 1

    def place(self, rank: int) -> str:
        """Where a rank is."""
        return self.hosts[rank] if self.several_hosts else f"rank {rank}"

    def by_place(self, values: Mapping[Pair, float]) -> dict[tuple[str, str], float]:
        """The median over the rank pairs of each pair of places, in the order of `places`."""
        return {ends: statistics.median(its) for ends, its in self._grouped(values).items()}

    def best(self, values: Mapping[Pair, float]) -> dict[tuple[str, str], float]:
        """The best of the rank pairs of each pair of places: a slow rank is not its host's fault."""
        choose = max if self.by_rate else min
        return {ends: choose(its) for ends, its in self._grouped(values).items()}

    def _grouped(self, values: Mapping[Pair, float]) -> dict[tuple[str, str], list[float]]:
        order = {place: number for number, place in enumerate(self.places)}
        found: dict[tuple[str, str], list[float]] = {}
        for (first, second), value in values.items():
            ends = sorted((self.place(first), self.place(second)), key=order.__getitem__)
            found.setdefault((ends[0], ends[1]), []).append(value)
        return found

    @property
    def kind(self) -> str:
        """What places are called."""
        return "host" if self.several_hosts else "rank"

    def speed(self, value: float) -> float:
        """A value as something of which more is better; 0 stays 0."""
        return value if self.by_rate or not value else 1 / value

    def shown(self, speed: float) -> float:
        """A speed as a value of these pairs."""
        return speed if self.by_rate or not speed else 1 / speed

    def text(self, value: float) -> str:
        """A value with its unit."""
        return format_rate(value) if self.by_rate else format_duration(value)


@dataclass(frozen=True)
class Suspicion:
    """Who looks slow: places, and pairs of others; `good` is a place that does not, and its best partner."""

    places: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    good: tuple[str, str]
    best: Mapping[str, float]
    usual: float
    """Median over the places of their best pair."""


def suspicion(found: Pairs) -> Suspicion | None:
    """Say who looks slow; None where there are too few places for one to differ from the others."""
    speed = {
        ends: value if found.by_rate else 1 / value
        for ends, value in found.best(found.values).items()
        if ends[0] != ends[1] and value > 0
    }
    if len(found.places) < 3 or not speed:
        return None
    best = {place: max((v for ends, v in speed.items() if place in ends), default=0.0) for place in found.places}
    usual = statistics.median(best.values())
    slow = tuple(place for place in found.places if best[place] < SLOW * usual)
    pairs = tuple(
        ends
        for ends, value in speed.items()
        if not set(ends) & set(slow) and value < SLOW * min(best[ends[0]], best[ends[1]])
    )
    good = max(speed, key=speed.__getitem__)
    return Suspicion(slow, pairs, good, best, usual)


def to_measure_again(found: Pairs) -> tuple[Pair, ...]:
    """The ranks to measure again, alone: each suspect place with a good one, each suspect pair, and two good ones."""
    doubt = suspicion(found)
    if doubt is None or not (doubt.places or doubt.pairs):
        return ()
    wanted = [doubt.good] if found.together else []
    wanted += [(place, doubt.good[0]) for place in doubt.places] + list(doubt.pairs)
    good = _best_pair(found, doubt.good)
    return tuple(dict.fromkeys(_best_pair(found, ends, good) for ends in wanted))


def _best_pair(found: Pairs, ends: tuple[str, str], good: Sequence[int] = ()) -> Pair:
    """The fastest ranks of two places with each other, one of the good ones among them: a slow rank is not its host."""
    its = [pair for pair in found.values if {found.place(pair[0]), found.place(pair[1])} == set(ends)]
    its = [pair for pair in its if set(pair) & set(good)] or its
    return max(sorted(its), key=lambda pair: found.speed(found.values[pair])) if its else _ranks_of(found, ends)


def findings(found: Pairs) -> list[str]:
    """Sentences that name the host, device or path that is slow."""
    if len(found.places) == 2 and found.values:
        return [f"{found.title}: two {found.kind}s are one pair, which cannot tell whose fault a low figure would be"]
    said = _silent(found)
    doubt = suspicion(found)
    if doubt is not None:
        said += [*_slow_places(found, doubt), *_slow_paths(found, doubt), *_slow_ranks(found)]
        if said and found.noisy:
            count = f"{len(found.noisy)} of {len(found.values)}"
            said.append(f"{count} pairs were measured beside other work (noisy): repeat it on quiet hosts")
    return [f"{found.title}: {one}" for one in said]


def _bar(found: Pairs, doubt: Suspicion) -> tuple[float, str]:
    """What the measured again are held against, and what the good ones reach, as text.

    Alone everything may be faster; but a disturbance of the good ones acquits nobody.
    """
    alone = found.speed(found.best(found.again).get(doubt.good, 0.0))
    reach = found.text(found.shown(max(alone, doubt.best[doubt.good[0]])))
    return SLOW * max(alone, doubt.usual), f"{doubt.good[0]} and {doubt.good[1]} reach {reach}"


def _slow_places(found: Pairs, doubt: Suspicion) -> list[str]:
    again = found.best(found.again)
    bar, reached = _bar(found, doubt)
    said = []
    for place in doubt.places:
        name = f"host {place}" if found.several_hosts else place
        # Each launch has chosen its own partner among the good.
        tried = {
            partner: value
            for ends, value in again.items()
            for own, partner in (ends, ends[::-1])
            if own == place and partner not in doubt.places
        }
        if not tried:
            least = found.text(found.shown(doubt.best[place]))
            said.append(f"{name} looks slow: at best {least}; {_untried(found, place)}")
            continue
        partner = max(tried, key=lambda one: found.speed(tried[one]))
        value = found.text(tried[partner])
        if found.speed(tried[partner]) < bar:
            where = f"{place}'s own link" if found.several_hosts else "its device and the slot that it is in"
            good = f"{value} with {partner}, which is known to be good, where {reached}"
            said.append(f"{name} is slow: {good}: look at {where}")
        else:
            said.append(f"{name} {_recovered(found)}: measured again it has {value} with {partner}")
    return said


def _slow_paths(found: Pairs, doubt: Suspicion) -> list[str]:
    again = found.best(found.again)
    bar, reached = _bar(found, doubt)
    said = []
    for ends in doubt.pairs:
        name, value = f"the path between {ends[0]} and {ends[1]}", again.get(ends)
        if value is None:
            said.append(f"{name} looks slow; {_untried(found, *ends)}")
        elif found.speed(value) < bar:
            said.append(f"{name} is slow: {found.text(value)}, where {reached}, and both are fast with others")
        else:
            said.append(f"{name} {_recovered(found)}: measured again {found.text(value)}")
    return said


def _silent(found: Pairs) -> list[str]:
    """Places with which no pair could be measured: the worst of findings."""
    said = []
    for place in found.places:
        its = [pair for pair in found.failed if place in (found.place(pair[0]), found.place(pair[1]))]
        heard = any(
            place in (found.place(a), found.place(b)) and found.place(a) != found.place(b) for a, b in found.values
        )
        if its and not heard:
            name = f"host {place}" if found.several_hosts else place
            said.append(f"{name}: no pair with it could be measured ({found.failed[its[0]]}): look there first")
    return said


def _untried(found: Pairs, *places: str) -> str:
    """Why a suspect has no second value."""
    for (first, second), why in found.failed_again.items():
        if set(places) <= {found.place(first), found.place(second)}:
            return f"measured again it failed ({why})"
    return "not measured again"


def _recovered(found: Pairs) -> str:
    return "is slow only while other pairs communicate" if found.together else "was slow for a time only"


def _slow_ranks(found: Pairs) -> list[str]:
    """Ranks that are slow with other hosts where another rank of their host is not."""
    if not found.several_hosts:
        return []
    best: dict[int, float] = {}
    for (first, second), value in found.values.items():
        if value and found.hosts[first] != found.hosts[second]:
            for rank in (first, second):
                best[rank] = max(found.speed(value), best.get(rank, 0.0))
    said = []
    for rank, speed in best.items():
        beside = max((value for other, value in best.items() if found.hosts[other] == found.hosts[rank]), default=speed)
        if speed < SLOW * beside:
            least, most = found.text(found.shown(speed)), found.text(found.shown(beside))
            said.append(
                f"rank {rank} on {found.hosts[rank]} is slow: at best {least}, where another rank of that host "
                f"reaches {most}: look at its device or core"
            )
    return said


def pairs_of(records: Iterable[Record]) -> tuple[Pairs, ...]:
    """Find the cases on pairs of ranks in a run's rows."""
    rows: dict[str, list[tuple[Record, Pair, bool]]] = {}
    for record in records:
        named = _ranks(record)
        if named is not None:
            rows.setdefault(record.case_id, []).append((record, *named))
    return tuple(_pairs(case_id, its) for case_id, its in rows.items())


def largest(found: Sequence[Pairs], records: Iterable[Record]) -> tuple[Pairs, ...]:
    """Those that have the largest size of their series (the same in all but size): what suspects are found by."""
    first = {record.case_id: record for record in records}
    best: dict[tuple[object, ...], Pairs] = {}
    for one in found:
        record = first[one.case_id]
        series = tuple(getattr(record, axis) for axis in _OTHER_AXES)
        held = best.get(series)
        if held is None or (record.requested_bytes or 0) > (first[held.case_id].requested_bytes or 0):
            best[series] = one
    return tuple(best.values())


def _ranks(record: Record) -> tuple[Pair, bool] | None:
    """The two ranks of a row of a pairs topology, and whether it was measured again."""
    if not (record.topology or "").startswith("pairs"):
        return None
    name = record.group or ""
    first, dash, second = name.removeprefix(AGAIN).partition("-")
    if not (dash and first.isdecimal() and second.isdecimal()):
        return None
    return (int(first), int(second)), name.startswith(AGAIN)


def _pairs(case_id: str, rows: Sequence[tuple[Record, Pair, bool]]) -> Pairs:
    record = next((row for row, _, _ in rows if row.status == "ok"), rows[0][0])
    by_rate = bool(record.busbw_GBps) and (record.size_bytes or 0) >= _LEAST_FOR_RATE
    hosts: dict[int, str] = {}
    failed: dict[bool, dict[Pair, str]] = {False: {}, True: {}}
    kept: dict[bool, dict[Pair, list[float]]] = {False: {}, True: {}}
    noisy = frozenset(pair for row, pair, _ in rows if "noisy" in (row.notes or "").split())
    for row, pair, again in rows:
        names = (row.members or "").split(";")
        if len(names) > len(pair):
            raise UsageError(f"members: got {row.members!r} in group {row.group}, expected the hosts of two ranks")
        hosts.update(zip(pair, names if len(names) > 1 else names * 2, strict=True))
        if row.status != "ok":
            failed[again][pair] = f"{row.status}: {row.reason}" if row.reason else row.status
            continue
        value = (row.busbw_GBps or 0.0) * 1e9 if by_rate else row.time_p50_s
        if value:
            kept[again].setdefault(pair, []).append(value)
    middle = {again: {pair: statistics.median(its) for pair, its in found.items()} for again, found in kept.items()}
    size = "" if record.size_bytes is None or record.dtype is None else f" {format_size(record.size_bytes)}"
    more = f", variant {record.variant}" if record.variant else ""
    title = f"{record.collective}{size} by {record.backend}, {record.mode}{more}"
    # Three ranks have one pair at a time.
    together = not (record.topology or "").endswith(":alone") and len(hosts) > 3
    failed = {
        again: {pair: why for pair, why in its.items() if pair not in middle[again]} for again, its in failed.items()
    }
    return Pairs(
        case_id, title, by_rate, hosts, middle[False], middle[True], failed[False], failed[True], noisy, together
    )


def _ranks_of(found: Pairs, ends: tuple[str, str]) -> Pair:
    """The first rank of each of two places."""
    first, second = (next(rank for rank in sorted(found.hosts) if found.place(rank) == end) for end in ends)
    return min(first, second), max(first, second)
