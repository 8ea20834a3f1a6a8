"""Samples that start at instants of the common clock (sync = clock): who sets them, and how far apart they lie.

Rank 0 sets the first instant of each block and the period, from how long the last samples took; each rank puts them on
its own clock, and `meet` waits for them. A rank that is not there at its instant is late: the sample is discarded on
all ranks. Where that happens often, the windows grow (Hoefler, Schneider and Lumsdaine: see common_clock.py).
"""

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.backends.base import Step
from collbench.common_clock import CommonClock
from collbench.world import World

Int64s = NDArray[np.int64]

INSTANT, PERIOD, WORDS = range(3)
"""The words of a schedule, as in kernels/start_at.py, which imports numba."""

_BETWEEN_NS, _BETWEEN_IN_PYTHON_NS = 4_000, 20_000
"""What the loop does between two samples must fit in between them."""
_BLOCK_NS = 5_000_000
"""Starts of one block take about so long, or there is one alone: where one is late the next ones often are too, until
the windows have made up for it."""
_GRACE_NS, _GRACE_IN_PYTHON_NS = 500, 5_000
_GRACE_READINGS = 10
"""A start may miss its instant by what the loop's own steps take: so long, or so many readings of a slow clock."""
_LEAST_LEAD_NS, _MOST_LEAD_NS = 200_000, 5_000_000
"""Rank 0's word must have reached all ranks, and each must be in its loop, before the first instant."""
_LEAD_UP, _LEAD_DOWN = 2.0, 0.9
_FIRST_MARGIN, _MOST_MARGIN = 2.0, 100.0
_MANY_LATE = 0.1
_GROWTH = 1.5
_USUAL = 90
_REMEMBERED = 200
"""A window is made for this percentile of the last samples that began in time (one that was late has waited as well);
for the longest one, every window would have its length."""
_FRESH_NS = 250_000_000
"""Between blocks the clocks are measured again when that was so long ago: 50 ppm would have made 12 us of it."""


def new_schedule() -> Int64s:
    """Make a schedule whose instants are past: nothing waits for them."""
    return np.zeros(WORDS, np.int64)


def waiting_step(schedule: Int64s) -> Step:
    """Wait as the compiled `start_at` does, in Python."""
    words, clock = memoryview(schedule.data), time.monotonic_ns

    def wait(k: int) -> None:
        instant = words[INSTANT]
        words[INSTANT] = instant + words[PERIOD]
        while clock() < instant:
            pass

    return wait


class Pacer:
    """Fills the schedule of a case, block by block, on all ranks of its group."""

    def __init__(self, schedule: Int64s, group: World, common: CommonClock, *, in_python: bool = False) -> None:
        self._schedule, self._group, self._common = schedule, group, common
        grace_ns = _GRACE_IN_PYTHON_NS if in_python else _GRACE_NS
        self._grace_ns = max(grace_ns, _GRACE_READINGS * _reading_ns())
        self._lead_ns, self._margin, self._usual_ns = 2.0 * _LEAST_LEAD_NS, _FIRST_MARGIN, 0.0
        self._longest_ns: Int64s = np.empty(0, np.int64)
        self._between_ns = _BETWEEN_IN_PYTHON_NS if in_python else _BETWEEN_NS
        self._measured_ns = time.monotonic_ns()

    @property
    def period_s(self) -> float:
        """From one start to the next; on rank 0."""
        return (self._usual_ns * self._margin + self._between_ns) * 1e-9

    @property
    def most(self) -> int:
        """So many starts a block may have at the most; on rank 0."""
        return max(1, int(_BLOCK_NS / 1e9 / self.period_s))

    def begin(self, starts: int) -> None:
        """Fill the schedule of a block; collective over the group."""
        group, schedule = self._group, self._schedule
        if not self._common.shared:
            stale = time.monotonic_ns() - self._measured_ns > _FRESH_NS
            if group.broadcast_array(np.array([stale], np.int64))[0]:
                self._common.measure()
                self._measured_ns = time.monotonic_ns()
        period_ns = round(self.period_s * 1e9)
        first_ns, period_ns = group.broadcast_array(
            np.array([time.monotonic_ns() + round(self._lead_ns), period_ns])
        ).tolist()
        schedule[:] = self._common.line.own(first_ns), period_ns
        self._instants: Int64s = schedule[INSTANT] + period_ns * np.arange(starts)

    def end(self, began_ns: Int64s) -> NDArray[np.bool_]:
        """Return which samples of the block began late on this rank; they began at these times of its own clock.

        From here to the next block nothing waits: the instant after the last one may be far ahead.
        """
        self._schedule[:] = 0
        return began_ns - self._instants > self._grace_ns

    def expect(self, sample_s: float) -> None:
        """The next samples are other ones, and will take about so long."""
        self._usual_ns, self._longest_ns = sample_s * 1e9, np.empty(0, np.int64)

    def learn(self, longest_ns: Int64s, late: NDArray[np.bool_]) -> None:
        """Hear on rank 0 how long the samples of a block took and which were late, and adapt."""
        self._longest_ns = np.concatenate([self._longest_ns, longest_ns[~late]])[-_REMEMBERED:]
        if self._longest_ns.size:
            self._usual_ns = float(np.percentile(self._longest_ns, _USUAL))
        else:  # no more than that, waiting and all
            self._usual_ns = min(self._usual_ns or math.inf, float(longest_ns.min()))
        wanted_ns = self._lead_ns * (_LEAD_UP if late[0] else _LEAD_DOWN)
        self._lead_ns = min(max(wanted_ns, _LEAST_LEAD_NS), _MOST_LEAD_NS)
        if late.mean() > _MANY_LATE and (not late[0] or self._lead_ns == _MOST_LEAD_NS):
            self._margin = min(_GROWTH * self._margin, _MOST_MARGIN)


def _reading_ns() -> int:
    """What a reading of the clock takes, at the usual."""
    readings: list[Any] = [time.monotonic_ns() for _ in range(51)]
    return int(np.median(np.diff(readings)))
