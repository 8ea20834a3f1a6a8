"""Sampling: warm up until stationary, then sample until the median is known well enough or the time is up.

Every rank runs the same blocks of samples; after each block rank 0 of the group sees all ranks' durations, decides how
many samples the next block has, and tells the others. Nothing here knows a library or a collective.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.backends.base import BoundCall, Steps
from collbench.common_clock import CommonClock, History
from collbench.pacing import Pacer
from collbench.scenario import Measure
from collbench.stats import median_of, relative_half_width
from collbench.world import World

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

_FIRST_BLOCK = 1
_BLOCK_S = 0.02
"""Samples between two decisions take about this long: short against a budget, long against a gather."""
_BLOCK_SHARE = 0.25
"""... or this share of the time sampled so far, so that long cases are not interrupted more often than short ones."""
_LEAST_WARMUP_S = 0.005
_STATIONARY = 0.05
"""Warm-up ends when a block's median is within this share of the one before."""
_BATCH_S = 0.002
"""A throughput batch takes about this long, so that the clock's cost (tens of nanoseconds) is nothing in it."""
_LEAST_BATCH = 4
_MOST_BATCH = 4096
_GATHERED = 1 << 22
"""Most durations (ranks x samples) that a block may bring to rank 0."""
_HOST, _ENQUEUE, _DEVICE, _ENTRY, _LATE = range(5)
"""The rows of a block of one rank; the last one only where samples start at instants."""
_ROWS = 5


@dataclass(frozen=True)
class Sampled:
    """What the group's rank 0 knows after sampling; on other ranks the arrays are empty.

    `durations_s` and `enqueue_s` are ranks x samples, seconds of one iteration by the host's clock; `device_s` likewise
    by the device's, or None. `entry_s` (ranks x samples) says when the samples began, on rank 0's clock from the first
    one on, and `clock_error_s` what two of different ranks may be wrong by. `late_starts` were discarded; None where
    nothing starts at an instant. `failed` is the first failing rank and its status, or None; it and `stopped_by` are
    known to all.
    """

    durations_s: Floats
    enqueue_s: Floats
    device_s: Floats | None
    warmup_iterations: int
    batch: int
    stopped_by: str
    failed: tuple[int, int] | None = None
    entry_s: Floats | None = None
    clock_error_s: float = 0.0
    late_starts: int | None = None

    @property
    def exit_s(self) -> Floats | None:
        """When the samples had ended (ranks x samples), by the clock of `entry_s`."""
        return None if self.entry_s is None else self.entry_s + self.durations_s * self.batch


def python_loop(steps: Steps, first: int, batch: int, stamps: Int64s) -> int:
    """Do in Python what `kernels.call_loop.call_loop` does in compiled code; the status is 0, errors are raised."""
    clock, meet, run, finish = time.monotonic_ns, steps.meet, steps.run, steps.finish
    k = first
    for sample in range(stamps.shape[0]):
        meet(k)
        start = clock()
        for iteration in range(k, k + batch):
            run(iteration)
        queued = clock()
        finish(k)
        stamps[sample] = start, queued, clock()
        k += batch
    return 0


def loop_of(bound: BoundCall) -> Callable[[int, int, Int64s], int]:
    """The loop that runs a bound case: (first iteration, batch, stamps) -> status."""
    if bound.steps is not None:
        steps = bound.steps
        return lambda first, batch, stamps: python_loop(steps, first, batch, stamps)
    from collbench.kernels.call_loop import call_loop

    meet, run, finish = bound.meet, bound.run, bound.finish
    return lambda first, batch, stamps: int(call_loop(meet, run, finish, first, batch, stamps))


class _Sampler:
    """Runs blocks on all ranks of the group and brings their durations together."""

    def __init__(
        self, bound: BoundCall, group: World, progress: Callable[[], None], pacer: Pacer | None = None
    ) -> None:
        self._loop = loop_of(bound)
        self.bound = bound
        self._group = group
        self._progress = progress
        self._iteration = 0
        self.pacer = pacer
        self._most = max(1, min(bound.most_samples, _GATHERED // group.size))
        self.pace_s = 0.0
        """What a sample of the last block took with the meeting before it, which may be the longer of the two."""
        self.failed: tuple[int, int] | None = None

    @property
    def most(self) -> int:
        """So many samples a block may have at the most; on rank 0."""
        return self._most if self.pacer is None else min(self._most, self.pacer.most)

    def block(self, samples: int, batch: int) -> Int64s | None:
        """Run a block; rank 0 gets (ranks x 5 x samples): host, enqueue and device times, entry by the rank's own clock
        (nanoseconds all), and whether the start was late."""
        pacer = self.pacer
        if pacer is not None:
            pacer.begin(samples)
        stamps = np.empty((samples, 3), np.int64)
        began = time.monotonic()
        status = self._loop(self._iteration, batch, stamps)
        self.pace_s = (time.monotonic() - began) / samples
        self._iteration += samples * batch
        rows = _ROWS if pacer is not None else _ROWS - 1
        local = np.zeros(1 + rows * samples, np.int64)
        local[0] = status & 0x7FFFFFFFFFFFFFFF
        table = local[1:].reshape(rows, samples)
        first, entries = self._iteration - samples * batch, stamps[:, 0]
        if self.bound.entry_times is not None and not status:
            entries = self.bound.entry_times(first, samples)
        table[_HOST] = stamps[:, 2] - entries
        table[_ENQUEUE] = stamps[:, 1] - stamps[:, 0]
        if self.bound.device_times is not None and not status:
            table[_DEVICE] = self.bound.device_times(first, samples)
        table[_ENTRY] = entries
        if pacer is not None:
            table[_LATE] = pacer.end(stamps[:, 0])
        whole = self._group.gather_array(local)
        self._progress()
        if whole is None:
            return None
        failing = np.flatnonzero(whole[:, 0])
        if failing.size:
            self.failed = int(failing[0]), int(whole[failing[0], 0])
        block: Int64s = whole[:, 1:].reshape(self._group.size, rows, samples)
        if pacer is not None:
            pacer.learn(block[:, _HOST].max(axis=0), late_in(block))
        return block

    def decide(self, samples: int, batch: int, word: int = 0) -> tuple[int, int, int]:
        """Rank 0 says how the next block is (0 samples ends the phase), with a word of its own; all ranks hear it."""
        values = np.array([samples, batch, word, *(self.failed or (-1, 0))], np.int64)
        heard = [int(value) for value in self._group.broadcast_array(values)]
        if heard[3] >= 0:
            self.failed = heard[3], heard[4]
            return 0, heard[1], heard[2]
        return heard[0], heard[1], heard[2]


def _worst(block: Int64s, use_device: bool, timed_ranks: int) -> Int64s:
    """The largest duration over the ranks that count, for each sample."""
    rows = block if timed_ranks < 0 else block[:timed_ranks]
    worst: Int64s = rows[:, _DEVICE if use_device else _HOST].max(axis=0)
    return worst


def late_in(block: Int64s) -> NDArray[np.bool_]:
    """Return which samples of a block some rank began late; none where nothing starts at an instant."""
    if block.shape[1] <= _LATE:
        return np.zeros(block.shape[2], np.bool_)
    return np.asarray(block[:, _LATE].any(axis=0))


def sample(
    bound: BoundCall,
    group: World,
    measure: Measure,
    *,
    mode: str,
    step_s: float,
    timed_ranks: int = -1,
    progress: Callable[[], None] = lambda: None,
    history: History | None = None,
) -> Sampled:
    """Warm up and sample one bound case; collective over the group. `history` is what this rank knows of its clock."""
    bound.prime()
    if bound.device_times is not None and bound.device_clock is not None:
        step_s = bound.device_clock.step_s
    common = CommonClock(group, history)
    common.measure()
    pacer = None
    if bound.schedule is not None:
        pacer = Pacer(bound.schedule, group, common, in_python=bound.steps is not None)
    sampler = _Sampler(bound, group, progress, pacer)
    warmed, iteration_s = _warm_up(sampler, measure, timed_ranks)
    batch = 1
    if mode == "throughput" and sampler.failed is None:
        batch = math.ceil(min(max(_BATCH_S / max(iteration_s, 1e-9), _LEAST_BATCH), _MOST_BATCH))
    return _collect(sampler, common, measure, batch, iteration_s, warmed, step_s, timed_ranks)


def _warm_up(sampler: _Sampler, measure: Measure, timed_ranks: int) -> tuple[int, float]:
    """Blocks that double until two in a row agree or the cap is reached: iterations done, seconds an iteration."""
    samples, warmed, before, began = _FIRST_BLOCK, 0, 0.0, time.monotonic()
    sets = len(sampler.bound.buffers)
    iteration_s = 0.0
    while samples:
        block = sampler.block(samples, 1)
        warmed += samples
        following, spent = 0, time.monotonic() - began
        if block is not None:
            middle = float(np.median(_worst(block, False, timed_ranks))) * 1e-9
            iteration_s = max(middle, 1e-9)
            steady = spent >= _LEAST_WARMUP_S and before > 0 and abs(middle - before) <= _STATIONARY * before
            # Each set of buffers is touched before anything counts, however long that takes.
            if warmed < sets or (not steady and spent < measure.warmup_time_s):
                following = min(2 * samples, sampler.most)
            before = middle
        samples, nanoseconds, _ = sampler.decide(following, max(1, round(iteration_s * 1e9)))
        iteration_s = nanoseconds * 1e-9
    return warmed, iteration_s


def _collect(
    sampler: _Sampler,
    common: CommonClock,
    measure: Measure,
    batch: int,
    iteration_s: float,
    warmed: int,
    step_s: float,
    timed_ranks: int,
) -> Sampled:
    blocks: list[Int64s] = []
    worst: list[Int64s] = []
    operations, pacer = sampler.bound.operations, sampler.pacer
    tried, began, stopped_by = 0, time.monotonic(), _STOPS.index("budget")
    use_device = sampler.bound.device_times is not None
    if pacer is not None:
        pacer.expect(iteration_s * batch)
    most = max(1, min(sampler.most, measure.most_iterations // (batch * operations)))
    samples = _next_block(sampler.pace_s + iteration_s * (batch - 1), 0.0, measure, most)
    samples, batch, _ = sampler.decide(0 if sampler.failed else samples, batch)
    while samples:
        block = sampler.block(samples, batch)
        following, word = 0, stopped_by
        if block is not None and sampler.failed is None:
            kept = block[:, :, ~late_in(block)]
            blocks.append(kept)
            worst.append(_worst(kept, use_device, timed_ranks))
            tried += samples
            elapsed = time.monotonic() - began
            following, word = _more(np.concatenate(worst), batch * operations, elapsed, measure, step_s)
            if following:
                following = min(_next_block(elapsed / tried, elapsed, measure, sampler.most), following)
            elif not any(one.size for one in worst):
                word = _STOPS.index(ALL_LATE)
        samples, batch, stopped_by = sampler.decide(following, batch, word)
    if sampler.failed is None:
        common.measure()
    late = None if pacer is None else tried - sum(one.size for one in worst)
    if sampler.failed is not None or not any(one.size for one in worst):
        nothing = np.empty((0, 0))
        return Sampled(nothing, nothing, None, warmed, batch, _STOPS[stopped_by], sampler.failed, late_starts=late)
    table = np.concatenate(blocks, axis=2)
    whole: Floats = table[:, :_ENTRY].astype(np.float64) * (1e-9 / (batch * operations))
    entries = common.onto_reference(table[:, _ENTRY])
    return Sampled(
        durations_s=whole[:, _HOST],
        enqueue_s=whole[:, _ENQUEUE],
        device_s=whole[:, _DEVICE] if use_device else None,
        warmup_iterations=warmed * operations,
        batch=batch * operations,
        stopped_by=_STOPS[stopped_by],
        entry_s=(entries - entries.min()).astype(np.float64) * 1e-9,
        clock_error_s=common.error_ns * 1e-9,
        late_starts=late,
    )


ALL_LATE = "late"
"""What ended the sampling where every sample was discarded: at least one rank was late for each."""
_STOPS = ("precision", "budget", "iterations", ALL_LATE)


def _more(worst: Int64s, batch: int, elapsed: float, measure: Measure, step_s: float) -> tuple[int, int]:
    """How many samples more at the most (0: enough), and why not more."""
    left = measure.most_iterations // batch - worst.size
    if left <= 0:
        return 0, _STOPS.index("iterations")
    if elapsed >= measure.time_budget_s:
        return 0, _STOPS.index("budget")
    if worst.size >= measure.least_iterations and elapsed >= measure.least_time_s:
        ordered: Floats = np.sort(worst).astype(np.float64) * (1e-9 / batch)
        width = relative_half_width(ordered, step_s / batch)
        if width is not None and width <= measure.precision and median_of(ordered) > 0:
            return 0, _STOPS.index("precision")
    return left, 0


def _next_block(sample_s: float, elapsed: float, measure: Measure, most: int) -> int:
    block_s = min(max(_BLOCK_S, _BLOCK_SHARE * elapsed), max(measure.time_budget_s - elapsed, 0.0))
    return max(1, min(int(block_s / max(sample_s, 1e-9)), most))
