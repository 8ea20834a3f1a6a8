"""A forecast held against a measurement of the same thing: a workload's buckets, replayed on the fabric at hand.

What one all_reduce costs comes from rows of all_reduce; the forecast makes a step of it as the planner does. Called so
that each waits, the buckets' costs and the computation follow each other; called without waiting, they run beside the
computation, one after the other on one stream, as the pipeline has it.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collbench import replay
from collbench.errors import CannotRun, CollbenchError, ExpectationFailed, UsageError
from collbench.planning import pipeline, replay_cost, tables
from collbench.planning.costs import BOUNDS, Cost, Range
from collbench.planning.tables import Column, Table
from collbench.readers.forecast_rows import gather
from collbench.record import Record
from collbench.replay import Replayed

WITHIN = 0.2
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
    """What it would take without any overlap, forecast."""
    waited: Range | None = None
    """What it took with calls that wait, and so without any overlap; None where that was not measured."""
    reason: str = ""
    by: Record | None = None
    """One of the rows of all_reduce that the forecast is made of."""

    @property
    def difference(self) -> float | None:
        """Measured over forecast, less one."""
        return None if self.forecast is None else self.measured.middle / self.forecast.middle - 1

    @property
    def hidden(self) -> float | None:
        """Which part of what the pipeline would hide was hidden; None where that is less than what is not known."""
        if self.forecast is None or self.exposed is None or self.waited is None:
            return None
        most = self.exposed.middle - self.forecast.middle
        unknown = max(one.high - one.low for one in (self.waited, self.measured))
        return (self.waited.middle - self.measured.middle) / most if most > unknown else None

    def holds(self, within: float) -> bool:
        """Whether what was measured is within this share of the forecast, however wide the forecast's interval."""
        return self.difference is not None and abs(self.difference) <= within

    def verdict(self, within: float) -> str:
        """In a word: an interval that holds what was measured may be so wide that it holds anything."""
        if self.forecast is None:
            return "no forecast"
        if self.holds(within):
            return "holds"
        inside = self.forecast.low <= self.measured.middle <= self.forecast.high
        return "in the interval only" if inside else "off"


def checks(
    rows: Iterable[Record], others: Iterable[Record] | None = None, cost_of: CostOf | None = None
) -> list[Check]:
    """Hold each replay among the rows against its forecast from `others`, or from the same rows."""
    rows = list(rows)
    known = [row for row in (rows if others is None else others) if row.collective != replay.NAME]
    points: dict[tuple[object, ...], list[Record]] = {}
    for row in rows:
        if row.collective == replay.NAME and row.status == "ok" and row.time_p50_s:
            points.setdefault(tuple(getattr(row, name) for name in _POINT), []).append(row)
    found = {point: _check(its, known, cost_of or replay_cost.by_fit()) for point, its in points.items()}
    waited = {point: one.measured for point, one in found.items() if one.row.call == "blocking"}
    call = _POINT.index("call")
    return [
        one
        if one.row.call == "blocking"
        else replace(one, waited=waited.get((*point[:call], "blocking", *point[call + 1 :])))
        for point, one in found.items()
    ]


def _check(its: Sequence[Record], others: Sequence[Record], cost_of: CostOf) -> Check:
    row = its[0]
    try:
        replayed, measured = replay.parse(row.pattern or ""), _measured(its)
    except CannotRun as error:
        raise UsageError(f"{row.run_id}: {error}") from None
    try:
        cost = cost_of(others, row)
        found = [cost("all_reduce", size, row.ranks or 1) for size in replayed.sizes]
    except CollbenchError as error:
        return Check(row, replayed, len(its), measured, None, reason=str(error))
    by = next(iter(replay_cost.chosen(others, row)), None)
    beyond = any(one.extrapolated for one in found)
    ends = [replayed.compute_s + sum(one.of(bound) for one in found) for bound in BOUNDS]
    exposed = Range(*ends, extrapolated=beyond)
    if row.call != "nonblocking":
        return Check(row, replayed, len(its), measured, exposed, exposed, by=by)
    ends = [
        pipeline.reduced(
            replayed.compute_s,
            replayed.backward,
            list(zip(replayed.shares, (one.of(bound) for one in found), strict=True)),
        )
        for bound in BOUNDS
    ]
    return Check(row, replayed, len(its), measured, Range(*ends, extrapolated=beyond), exposed, by=by)


def _measured(rows: Sequence[Record]) -> Range:
    """The median over launches; the bounds are the outermost of the launches' own intervals, or of few samples all."""
    return Range(
        min(row.time_p50_low_s or row.time_min_s or row.time_p50_s or 0.0 for row in rows),
        statistics.median(row.time_p50_s or 0.0 for row in rows),
        max(row.time_p50_high_s or row.time_max_s or row.time_p50_s or 0.0 for row in rows),
    )


def command(runs: Sequence[Path], results: Sequence[Path], within: float, extrapolate: bool, form: str) -> int:
    """Print what the replays in `runs` took and what the all_reduce in `results`, or else beside them, foretell.

    Return the exit code.
    """
    gathered = gather(runs)
    known = gather(results) if results else gathered
    rows = gathered.rows
    found = checks(rows, known.rows, replay_cost.by_fit(extrapolate))
    others = [row for row in rows if row.collective == replay.NAME and row.status != "ok"]
    if not found:
        why = f"; the first of {len(others)} says: {_why(others[0])}" if others else ""
        raise UsageError(
            f"{', '.join(map(str, runs))}: got no replay that ran, expected the results of a scenario with kind = "
            f'"replay"{why}; run one, such as collbench launch replay'
        )
    tables.tell([table(found, within, others, tuple(dict.fromkeys((*gathered.notes, *known.notes))))], form)
    right = all(one.holds(within) for one in found) and all(row.status == "skipped" for row in others)
    return 0 if right else ExpectationFailed.exit_code


def table(found: Sequence[Check], within: float, others: Sequence[Record] = (), said: Sequence[str] = ()) -> Table:
    """Return forecasts and measurements beside each other; `others` are replays without a time, `said` more notes."""
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
        Column("by", "by all_reduce"),
        Column("compute_s", "compute", tables.duration),
        Column("launches", "launches"),
        *tables.ranged("forecast", "s", "forecast", tables.duration),
        *tables.ranged("measured", "s", "measured", tables.duration),
        Column("difference", "difference", lambda value: f"{value:+.1%}"),
        Column("hidden", "hidden", tables.percent),
        Column("verdict", "verdict"),
        tables.beyond(),
    ]
    notes = [
        "forecast: the computation, and the cost of each bucket by rows of all_reduce (by all_reduce: their mode, "
        "placement and call, the nearest to the replay's that were measured); blocking: one after the other; "
        "nonblocking: the buckets beside the computation, one after the other",
        f"difference: measured over forecast, less one; holds: within {within:.0%}; in the interval only: farther off, "
        "but in the forecast's interval, which says how little is known; off: neither. Only holds is exit code 0",
        "in brackets: the intervals of the fit's forecasts, all at their ends together (of 95 %, but from one launch "
        "half to twice, an assumption); of what was measured, the outermost ends of the launches' own, or the least "
        "and the most of few samples",
    ]
    if any(one.row.call == "nonblocking" and one.replayed.compute_s for one in found):
        notes.append(
            "hidden: how much shorter than with calls that wait, in parts of what the pipeline would hide: 0 % is no "
            "overlap at all; - where the measured intervals are wider than that. A library without a thread of its own "
            "for progress does little while the rank computes"
        )
    notes += [*said, *dict.fromkeys(one.reason for one in found if one.reason)]
    for row in others:
        notes.append(f"{row.status}: {replay.short(row.pattern or '')}, {row.call}, by {row.backend}: {_why(row)}")
    return Table("replay", "replays: forecast and measured", columns, [_row(one, within) for one in found], notes)


def _why(row: Record) -> str:
    return row.reason or (f"{row.wrong} wrong elements" if row.wrong else f"{row.status}, without a reason in its row")


def _row(one: Check, within: float) -> dict[str, Any]:
    return {
        **{name: getattr(one.row, name) for name in ("dtype", "backend", "group", "ranks", "hosts", "call", "mode")},
        "workload": one.replayed.workload,
        "bucketing": one.replayed.bucketing,
        "buckets": len(one.replayed.sizes),
        "size_bytes": one.row.size_bytes,
        "by": None if one.by is None else f"{one.by.mode}, {one.by.placement}, {one.by.call}",
        "compute_s": one.replayed.compute_s,
        "launches": one.launches,
        **tables.spread("forecast", "s", one.forecast),
        **tables.spread("measured", "s", one.measured),
        "difference": one.difference,
        "hidden": one.hidden,
        "verdict": one.verdict(within),
        "extrapolated": one.forecast is not None and one.forecast.extrapolated,
    }
