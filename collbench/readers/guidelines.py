"""Guidelines: a library held against itself, from the rows of one results file.

No collective should be slower than others that together do the same, a smaller message not slower than a larger, and
fewer ranks not slower than more. Träff, Gropp and Thakur, "Self-Consistent MPI Performance Guidelines", IEEE
Transactions on Parallel and Distributed Systems 21(5), 2010, doi:10.1109/TPDS.2009.120. What breaks one points at a bad
choice of algorithm. Both sides are from the same launch, so the ratio is taken in each launch.
"""

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import Ambiguous, ExpectationFailed, UsageError
from collbench.output import deliver
from collbench.readers.gate import Rules
from collbench.readers.gate_rows import Launch
from collbench.readers.inequalities import durations
from collbench.record import Record
from collbench.units import format_duration, format_size

LEVEL = 0.05
"""Chance of a miss on either side of an interval, by the sign test over launches."""

COMPOSED = (
    ("all_reduce", ("reduce", "broadcast")),
    ("all_reduce", ("reduce_scatter", "all_gather")),
    ("all_gather", ("gather", "broadcast")),
    ("scatter", ("broadcast",)),
)
"""The left must not be slower than the right together, at one `size_bytes`: the per-rank vector of all_reduce, reduce
and broadcast is as long as the whole vector of the others."""
_MONOTONE = (
    "all_reduce", "reduce", "reduce_scatter", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "send_recv",
    "ping_pong", "scan",
)  # fmt: skip

_SAME = (
    "variant", "backend", "library", "dtype", "caller", "call", "mode", "sync", "buffer", "buffers", "pages", "pattern",
    "neighbour", "topology",
)  # fmt: skip

Point = Mapping[Launch, Record]
Setting = tuple[object, ...]
Key = tuple[Setting, str, Setting, str, int]


@dataclass(frozen=True)
class Series:
    """One collective in one setting and group: its rows by size and launch."""

    setting: Setting
    collective: str
    extra: Setting
    group: str
    ranks: int
    points: Mapping[int, Point]


@dataclass(frozen=True)
class Check:
    """One guideline at one place: `word` is broken, kept or unclear; the ratio is left over right."""

    guideline: str
    setting: str
    where: str
    word: str
    said: str
    ratio: float
    low: float | None
    high: float | None
    launches: int


def checks(records: Iterable[Record], rules: Rules) -> list[Check]:
    """Check all guidelines that the rows allow."""
    series = _series(records)
    return [*_composed(series, rules), *_by_size(series, rules), *_by_ranks(series, rules)]


def command(path: Path, records: Sequence[Record], rules: Rules, form: str) -> int:
    """Print what was checked and return 0, 5 where a guideline is broken, or 6 where none could be decided."""
    found = checks(records, rules)
    if not found:
        raise UsageError(
            f"{path}: got no rows that a guideline relates, expected several sizes, numbers of ranks, or collectives "
            "such as all_reduce, reduce and broadcast; `collbench launch library` measures them"
        )
    words = [one.word for one in found]
    code = ExpectationFailed.exit_code if "broken" in words else 0 if "kept" in words else Ambiguous.exit_code
    over = sum(_oversubscribed(row) for row in records)
    notes = [f"{over} oversubscribed rows were left out"] if over else []
    if form == "json":
        content = {"exit_code": code, "checks": [dataclasses.asdict(one) for one in found], "notes": notes}
        deliver(json.dumps(content, indent=1, allow_nan=False) + "\n")
        return code
    shown = [one for one in found if one.word != "kept"]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("broken", "unclear", "kept"))
    if form == "markdown":
        lines = [f"### collbench guidelines: {counts}", ""]
        if shown:
            lines += ["| guideline | verdict | where | setting | what was evaluated |", "|---|---|---|---|---|"]
            rows = [(one.guideline, one.word, one.where, one.setting, one.said) for one in shown]
            lines += [
                "| " + " | ".join(cell.replace("<", "&lt;").replace("|", "\\|") for cell in row) + " |" for row in rows
            ]
    else:
        lines = [f"{one.word}: {one.guideline}, {one.where} ({one.setting}): {one.said}" for one in shown]
        lines.append(f"{len(found)} checks: {counts}; ratios are of time, left over right")
    deliver("\n".join([*lines, *(f"note: {note}" for note in notes)]) + "\n")
    return code


def interval(ratios: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """Bounds of the median ratio by the sign test, exact for any distribution; None below five launches at 5 %."""
    ordered, below = sorted(ratios), 0
    position = 0
    for count in range(len(ordered)):
        below += math.comb(len(ordered), count)
        if below > level * 2 ** len(ordered):
            break
        position = count + 1
    return (ordered[position - 1], ordered[-position]) if position else None


def _series(records: Iterable[Record]) -> list[Series]:
    rows: dict[Key, dict[int, dict[Launch, Record]]] = {}
    for row in records:
        if row.status != "ok" or not row.time_p50_s or _oversubscribed(row) or row.collective not in _MONOTONE:
            continue
        setting: Setting = tuple(getattr(row, name) for name in _SAME)
        key: Key = (setting, row.collective, (row.operation, row.root, row.placement), row.group or "", row.ranks or 0)
        size = row.requested_bytes if row.requested_bytes is not None else row.size_bytes or 0
        rows.setdefault(key, {}).setdefault(size, {})[row.run_id or "", row.launch] = row
    return [Series(*key, dict(sorted(points.items()))) for key, points in rows.items()]


def _composed(series: Sequence[Series], rules: Rules) -> Iterator[Check]:
    for (left, rights), one in itertools.product(COMPOSED, series):
        if one.collective != left:
            continue
        parts = [_part(series, one, right) for right in rights]
        if any(part is None for part in parts):
            continue
        kept = [part for part in parts if part is not None]
        found: list[tuple[int, Check]] = []
        for size, point in one.points.items():
            others = [part.points.get(size, {}) for part in kept]
            check = _check(f"{left} <= {' + '.join(rights)}", one, point, others, rules)
            if check is not None:
                found.append((size, check))
        yield from _runs(found)


def _part(series: Sequence[Series], one: Series, collective: str) -> Series | None:
    """The series of a part in the same setting and group: operation and root agree, placement where it can."""
    operation, root, placement = one.extra
    near = [
        other
        for other in series
        if (other.setting, other.group, other.ranks, other.collective)
        == (one.setting, one.group, one.ranks, collective)
        and (operation is None or other.extra[0] in (None, operation))
        and (root is None or other.extra[1] in (None, root))
    ]
    return min(near, key=lambda other: (other.extra[2] != placement, other.extra[1] or 0), default=None)


def _runs(found: Sequence[tuple[int, Check]]) -> Iterator[Check]:
    """One check for each run of broken sizes, which says between which; the others as they are."""
    for word, group in itertools.groupby(range(len(found)), key=lambda number: found[number][1].word):
        numbers = list(group)
        if word != "broken":
            yield from (dataclasses.replace(found[at][1], where=f"at {format_size(found[at][0])}") for at in numbers)
            continue
        first, last = numbers[0], numbers[-1]
        ends = [format_size(found[at][0]) for at in (first, last)]
        where = f"from {ends[0]} to {ends[1]}" if last > first else f"at {ends[0]}"
        beside = [format_size(found[at][0]) for at in (first - 1, last + 1) if 0 <= at < len(found)]
        where += f", not at {' and '.join(beside)}" if beside else ""
        worst = max((found[at] for at in numbers), key=lambda one: one[1].low or 0.0)
        said = worst[1].said + (f" at {format_size(worst[0])}" if last > first else "")
        yield dataclasses.replace(worst[1], where=where, said=said)


def _by_size(series: Sequence[Series], rules: Rules) -> Iterator[Check]:
    """One check for each size: against the larger one that shows the most; sizes beside each other are one finding."""
    order = ("broken", "unclear", "kept")
    for one in series:
        sizes = list(one.points)
        found: list[tuple[int, Check]] = []
        for small in sizes:
            held = []
            for large in (size for size in sizes if size > small):
                point = [one.points[large]]
                if check := _check("a smaller message is not slower", one, one.points[small], point, rules):
                    held.append(dataclasses.replace(check, said=f"{check.said}, against {format_size(large)}"))
            if held:
                found.append((small, min(held, key=lambda its: (order.index(its.word), -(its.low or its.ratio)))))
        for check in _runs(found):
            yield dataclasses.replace(check, where=f"{one.collective} {check.where}")


def _by_ranks(series: Sequence[Series], rules: Rules) -> Iterator[Check]:
    for few, many in itertools.permutations(series, 2):
        same = (few.setting, few.collective, few.extra) == (many.setting, many.collective, many.extra)
        if not same or few.ranks >= many.ranks:
            continue
        found = []
        for size, point in few.points.items():
            if check := _check("fewer ranks are not slower", few, point, [many.points.get(size, {})], rules):
                found.append((size, check))
        for check in _runs(found):
            where = f"{few.collective} on {few.ranks} ranks against {many.ranks}, {check.where}"
            yield dataclasses.replace(check, where=where)


def _check(guideline: str, one: Series, left: Point, rights: Sequence[Point], rules: Rules) -> Check | None:
    """Compare one time with the sum of others, launch by launch; None where no launch has them all."""
    launches = [launch for launch in left if all(launch in right for right in rights)]
    if not launches:
        return None
    ratios = [_time(left[launch]) / sum(_time(right[launch]) for right in rights) for launch in launches]
    bounds = interval(ratios)
    how = f"sign test over {len(launches)} launches"
    if bounds is None:  # so few launches say nothing of launches: every one must say it by itself
        bounds = _in_each([(left[launch], [right[launch] for right in rights]) for launch in launches])
        how = "within one launch" if len(launches) == 1 else f"within each of {len(launches)} launches"
    middle, limit = statistics.median(ratios), 1 + rules.threshold
    added = statistics.median(
        _time(left[launch]) * (1 - 1 / ratio) for launch, ratio in zip(launches, ratios, strict=True)
    )
    low, high = bounds or (None, None)
    shown = f"{middle:.2f}" if low is None else f"{middle:.2f} [{low:.2f}, {high:.2f}]"
    if high is not None and high <= limit:
        word, said = "kept", f"{shown}: {high:.4g} <= {limit:.4g}"
    elif added <= rules.floor_s:
        more, floor = durations(added, rules.floor_s)
        word, said = "kept", f"{shown}: {more} <= {floor}"
    elif low is None:
        word, said = "unclear", f"{shown}: too few samples for an interval"
    elif low > limit:
        word = "broken"
        said = f"{shown}: {low:.4g} > {limit:.4g} and +{format_duration(added)} > {format_duration(rules.floor_s)}"
    else:
        word, said = "unclear", f"{shown}: {low:.4g} <= {limit:.4g} < {high:.4g}"
    row = left[launches[0]]
    words = (
        row.variant,
        row.backend,
        row.dtype,
        row.operation,
        row.placement,
        row.caller,
        row.call,
        row.mode,
        row.group,
    )
    setting = " ".join(str(text) for text in words if text)
    return Check(guideline, setting, "", word, f"{said}, {how}", middle, low, high, len(launches))


def _in_each(launches: Sequence[tuple[Record, Sequence[Record]]]) -> tuple[float, float] | None:
    """The widest ratio that the medians' intervals within the launches allow; None where a row has no interval."""
    lows, highs = [], []
    for left, rights in launches:
        ends = [(row.time_p50_low_s, row.time_p50_high_s) for row in (left, *rights)]
        if any(not low or not high for low, high in ends):
            return None
        lows.append((ends[0][0] or 0.0) / sum(high or 0.0 for _, high in ends[1:]))
        highs.append((ends[0][1] or 0.0) / sum(low or 0.0 for low, _ in ends[1:]))
    return min(lows), max(highs)


def _time(row: Record) -> float:
    return row.time_p50_s or 0.0


def _oversubscribed(row: Record) -> bool:
    return bool(row.oversubscribed) or "oversubscribed" in (row.notes or "").split()
