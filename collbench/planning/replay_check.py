"""A forecast held against a measurement of the same thing: a workload's buckets, replayed on the fabric at hand.

What one all_reduce costs comes from rows of all_reduce; the forecast makes a step of it as the planner does. Called so
that each waits, the buckets' costs and the computation follow each other; called without waiting, they run beside the
computation, one after the other on one stream, as the pipeline has it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench import replay
from collbench.errors import CollbenchError, UsageError
from collbench.planning import curve, pipeline, tables
from collbench.planning.costs import BOUNDS, Cost, Range
from collbench.planning.tables import Column, Table
from collbench.record import Record
from collbench.replay import Replayed
from collbench.results import read

WITHIN = 0.2
CODE_OFF = 5
CostOf = Callable[[Sequence[Record], Record], Cost]
"""Makes, of all rows, the cost of collectives in the setting of one of them."""

_POINT = (
    "variant", "backend", "library", "dtype", "operation", "placement", "call", "mode", "sync", "buffer", "buffers",
    "pages", "pattern", "neighbour", "topology", "group", "ranks", "hosts",
)  # fmt: skip


@dataclass(frozen=True)
class Check:
    """A replay, measured and forecast; seconds. `forecast` is None where it cannot be made, for the reason said."""

    row: Record
    replayed: Replayed
    launches: int
    measured: Range
    forecast: Range | None
    exposed: Range | None = None
    """What it would take without any overlap."""
    reason: str = ""

    @property
    def difference(self) -> float | None:
        """Measured over forecast, less one."""
        return None if self.forecast is None else self.measured.middle / self.forecast.middle - 1

    @property
    def hidden(self) -> float | None:
        """Which part of what overlap could hide was hidden; None where that is less than what is not known."""
        if self.forecast is None or self.exposed is None or self.row.call != "nonblocking":
            return None
        most = self.exposed.middle - self.forecast.middle
        unknown = max(one.high - one.low for one in (self.exposed, self.measured))
        return (self.exposed.middle - self.measured.middle) / most if most > unknown else None

    def holds(self, within: float) -> bool:
        """Whether what was measured lies in the forecast's interval, or within this share of the forecast."""
        if self.forecast is None or self.difference is None:
            return False
        return self.forecast.low <= self.measured.middle <= self.forecast.high or abs(self.difference) <= within


def checks(rows: Iterable[Record], cost_of: CostOf = curve.cost) -> list[Check]:
    """Hold each replay among the rows against its forecast from the other rows."""
    rows = list(rows)
    points: dict[tuple[object, ...], list[Record]] = {}
    for row in rows:
        if row.collective == replay.NAME and row.status == "ok" and row.time_p50_s:
            points.setdefault(tuple(getattr(row, name) for name in _POINT), []).append(row)
    others = [row for row in rows if row.collective != replay.NAME]
    return [_check(its, others, cost_of) for its in points.values()]


def _check(its: Sequence[Record], others: Sequence[Record], cost_of: CostOf) -> Check:
    row = its[0]
    replayed, measured = replay.parse(row.pattern or ""), curve.middle(its)
    try:
        cost = cost_of(others, row)
        found = [cost("all_reduce", size, row.ranks or 1) for size in replayed.sizes]
    except CollbenchError as error:
        return Check(row, replayed, len(its), measured, None, reason=str(error))
    exposed = Range(*(replayed.compute_s + sum(one.of(bound) for one in found) for bound in BOUNDS))
    if row.call != "nonblocking":
        return Check(row, replayed, len(its), measured, exposed, exposed)
    ends = [
        pipeline.reduced(
            replayed.compute_s,
            replayed.backward,
            list(zip(replayed.shares, (one.of(bound) for one in found), strict=True)),
        )
        for bound in BOUNDS
    ]
    return Check(row, replayed, len(its), measured, Range(*ends), exposed)


def command(paths: Sequence[Path], within: float, cost_of: CostOf = curve.cost) -> tuple[Table, int]:
    """Return the table of the replays in these results, and the exit code."""
    rows = [row for path in dict.fromkeys(one.resolve() for one in paths) for row in read(path)]
    found = checks(rows, cost_of)
    if not found:
        others = [row for row in rows if row.collective == replay.NAME]
        why = f"; the first of {len(others)} says: {others[0].reason}" if others else ""
        places = ", ".join(map(str, paths))
        raise UsageError(
            f'{places}: got no replay that ran, expected the results of a scenario with kind = "replay"{why}; '
            "run one, such as collbench launch replay"
        )
    return table(found, within), 0 if all(one.holds(within) for one in found) else CODE_OFF


def table(found: Sequence[Check], within: float) -> Table:
    """Return forecasts and measurements beside each other."""
    columns = [
        Column("workload", "workload"),
        Column("bucketing", "bucketing"),
        Column("buckets", "buckets"),
        Column("size_bytes", "gradients", tables.size),
        Column("dtype", "dtype"),
        Column("backend", "backend"),
        Column("group", "group"),
        Column("ranks", "ranks"),
        Column("hosts", "hosts"),
        Column("call", "call"),
        Column("mode", "mode"),
        Column("compute_s", "compute", tables.duration),
        Column("launches", "launches"),
        *tables.ranged("forecast", "s", "forecast", tables.duration),
        *tables.ranged("measured", "s", "measured", tables.duration),
        Column("difference", "difference", lambda value: f"{value:+.1%}"),
        Column("hidden", "hidden", tables.percent),
        Column("verdict", "verdict"),
    ]
    notes = [
        "forecast: the computation, and the cost of each bucket by rows of all_reduce; blocking: one after the other; "
        "nonblocking: the buckets beside the computation, one after the other",
        "difference: measured over forecast, less one; holds: measured lies in the forecast's interval, or within "
        f"{within:.0%} of it",
        "in brackets: the outermost ends of the launches' 95 % intervals",
    ]
    if any(one.row.call == "nonblocking" and one.replayed.compute_s for one in found):
        notes.append(
            "hidden: the part of what overlap could hide that was hidden: 0 % is no overlap at all, 100 % the "
            "pipeline, - that the intervals are wider than all that; a library without a thread of its own for "
            "progress does little while the rank computes"
        )
    notes += dict.fromkeys(one.reason for one in found if one.reason)
    return Table("replay", "replays: forecast and measured", columns, [_row(one, within) for one in found], notes)


def _row(one: Check, within: float) -> dict[str, Any]:
    verdict = "holds" if one.holds(within) else "off"
    return {
        **{name: getattr(one.row, name) for name in ("dtype", "backend", "group", "ranks", "hosts", "call", "mode")},
        "workload": one.replayed.workload,
        "bucketing": one.replayed.bucketing,
        "buckets": len(one.replayed.sizes),
        "size_bytes": one.row.size_bytes,
        "compute_s": one.replayed.compute_s,
        "launches": one.launches,
        **tables.spread("forecast", "s", one.forecast),
        **tables.spread("measured", "s", one.measured),
        "difference": one.difference,
        "hidden": one.hidden,
        "verdict": "no forecast" if one.forecast is None else verdict,
    }
