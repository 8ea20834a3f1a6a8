"""What a row says of a case on a group of ranks: what is known before it runs, and the figures of its samples."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from collbench.arrival import arrivals
from collbench.backends.base import Backend, BoundCall
from collbench.clock import Clock
from collbench.collectives import Collective, Layout, Shape
from collbench.dtypes import DTYPES
from collbench.plan import Case
from collbench.stats import slowest_rank, summarise
from collbench.timing import Sampled
from collbench.world import World

_FLOOR_SHARE = 0.05
"""A clock that costs more than this share of a sample marks the row (Hoefler and Belli, SC'15)."""


@dataclass(frozen=True)
class Point:
    """One case on one group of ranks: with what, and how much."""

    case: Case
    name: str
    """Of the group."""
    group: World
    backend: Backend
    collective: Collective
    shape: Shape
    layout: Layout


def known(point: Point, thread_level: str, seed: int) -> dict[str, Any]:
    """What is known of a case before it runs."""
    case, collective, shape, backend = point.case, point.collective, point.shape, point.backend
    size, root = point.group.size, int(case.root) if case.root else 0
    asked = range(size) if collective.has_patterns else {0, root}
    layouts = [collective.layout(shape.count, size, rank, root=root) for rank in asked]
    itemsize = DTYPES[case.dtype].itemsize if case.dtype else 1
    return {
        "library": backend.library,
        "thread_level": thread_level or None,
        "device": backend.device or None,
        "ranks_per_device": backend.ranks_per_device,
        "size_bytes": shape.size_bytes,
        "count": shape.count,
        "send_bytes": max(one.send for one in layouts) * itemsize,
        "recv_bytes": max(one.recv for one in layouts) * itemsize,
        "seed": seed if case.dtype else None,
    }


def figures(
    point: Point, bound: BoundCall, sampled: Sampled, *, clock: Clock, oversubscribed: bool, flags: tuple[str, ...]
) -> dict[str, Any]:
    """What the group's rank 0 knows after sampling, nothing on the others; `flags` are notes that others found."""
    if not sampled.durations_s.size:
        return {}
    case, shape, collective = point.case, point.shape, point.collective
    by_device, hosts_clock = sampled.device_s is not None, clock
    if by_device and bound.device_clock is not None:
        clock = bound.device_clock
    durations = sampled.device_s if sampled.device_s is not None else sampled.durations_s
    enqueued, hosted = sampled.enqueue_s, sampled.durations_s
    if collective.timed_ranks >= 0:
        durations, enqueued, hosted = (one[: collective.timed_ranks] for one in (durations, enqueued, hosted))
    worst = durations.max(axis=0) / collective.operations_per_iteration
    step_s = clock.step_s / sampled.batch / collective.operations_per_iteration
    summary = summarise(worst, step_s)
    slowest = slowest_rank(durations)
    notes = [*bound.notes, *flags]
    if clock.floor_s > _FLOOR_SHARE * summary.median_s * sampled.batch:
        notes.append("timer_floor")
    if case.requested_bytes and not shape.size_bytes and case.dtype:
        notes.append("rounded_to_nothing")
    if oversubscribed:
        notes.append("oversubscribed")
    if len(set(Counter(point.group.hosts).values())) > 1:
        notes.append("unbalanced")
    if (point.backend.ranks_per_device or 1) > 1:
        notes.append("shared_device")
    algbw = shape.size_bytes / summary.median_s / 1e9 if summary.median_s > 0 and shape.size_bytes else None
    factor = collective.bus_factor(point.group.size, shape.count)
    return {
        "notes": " ".join(notes) or None,
        "peer_device": bound.peer_device or None,
        "warmup_iterations": sampled.warmup_iterations,
        "iterations": summary.count * sampled.batch,
        "batch": sampled.batch,
        "stopped_by": sampled.stopped_by,
        "clock": "device" if by_device else "host",
        "clock_step_s": clock.step_s,
        "timer_floor_s": clock.floor_s,
        "time_min_s": summary.minimum_s,
        "time_p50_s": summary.median_s,
        "time_p50_low_s": summary.low_s,
        "time_p50_high_s": summary.high_s,
        "time_p95_s": summary.p95_s,
        "time_p99_s": summary.p99_s,
        "time_max_s": summary.maximum_s,
        "time_mean_s": summary.mean_s,
        "enqueue_p50_s": float(np.median(enqueued.max(axis=0))) / collective.operations_per_iteration,
        "device_p50_s": float(np.median(worst)) if by_device else None,
        "stream_sync_p50_s": bound.stream_sync_s,
        "host_p50_s": float(np.median(hosted.max(axis=0))) / collective.operations_per_iteration,
        "algbw_GBps": algbw,
        "busbw_GBps": algbw * factor if algbw is not None and factor is not None else None,
        "slowest_rank": point.group.ranks[slowest.rank] if slowest else None,
        "slowest_rank_share": slowest.share if slowest else None,
        "late_starts": sampled.late_starts,
    } | _arrival(point, sampled, hosts_clock)


def _arrival(point: Point, sampled: Sampled, clock: Clock) -> dict[str, Any]:
    """Who came late, where each operation's entries are known; ranks that only look on come to nothing."""
    collective, group = point.collective, point.group
    taking_part = [rank for rank in range(group.size) if collective.role(rank, group.size) is not None]
    if sampled.entry_s is None or sampled.exit_s is None or len(taking_part) < 2:
        return {}
    values: dict[str, Any] = {"clock_error_s": sampled.clock_error_s}
    if point.case.mode == "throughput":  # of a batch only the first entry is known
        return values
    found = arrivals(
        sampled.entry_s[taking_part],
        sampled.exit_s[taking_part],
        error_s=max(sampled.clock_error_s, clock.step_s),
    )
    values |= {"arrival_skew_s": found.skew_s, "wait_share": found.wait_share}
    if found.last is None:
        return values
    return values | {
        "last_rank": group.ranks[taking_part[found.last.rank]],
        "last_rank_share": found.last.share,
        "last_rank_delay_s": found.last.delay_s,
    }
