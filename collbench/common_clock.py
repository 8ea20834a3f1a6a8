"""The common clock: where each host's CLOCK_MONOTONIC stands against rank 0's, measured by ping-pong.

A rank reads its clock, asks another for the time, and reads its clock again when the answer comes. Somewhere in between
the other clock was read: half the round trip is the most that its middle can be wrong by, whatever the network did on
either way, so the round with the smallest round trip is the one to keep (F. Cristian, "Probabilistic clock
synchronization", Distributed Computing 3, 1989, 146-158). Clocks drift, so that one offset does not last: between two
measurements a line is laid (the linear model of S. Hunold and A. Carpen-Amarie, "On the Impact of Synchronizing Clocks
and Processes on Benchmarking MPI Collectives", EuroMPI 2015, whose tree this follows too: log2(clocks) rounds, in which
the clocks that know rank 0's time tell it to as many others). To start samples at instants of such a clock is the
window-based scheme of T. Hoefler, T. Schneider and A. Lumsdaine, "Accurately Measuring Collective Operations at Massive
Scale", PMEO workshop at IPDPS 2008.

Ranks of one clock need none of this, and pay for none of it. Times here are whole nanoseconds.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from collbench.world import World

Int64s = NDArray[np.int64]

MOST_RATE = 500e-6
"""No clock's rate is further off than this: NTP's own limit of what it adjusts (adjtimex(2): 500 ppm)."""
WANDER = 1e-6
"""By so much a rate may change between two measurements that lie seconds apart: an oscillator that warms up."""

_TAG = 79
_LEAST_ROUNDS, _MOST_ROUNDS = 10, 100
_ROUNDS_NS = 10_000_000
"""A pair of clocks is measured for about so long: some ten to a hundred round trips, one of them undisturbed."""
_REMEMBERED_NS = 60_000_000_000
"""The rate is taken from measurements of the last minute: a long line makes little of each one's error."""


@dataclass(frozen=True)
class Point:
    """One measurement: at `at_ns` of its own a clock was `offset_ns` behind the reference, give or take `error_ns`."""

    at_ns: int
    offset_ns: int
    error_ns: int


@dataclass(frozen=True)
class Line:
    """What is expected of a clock from its last measurement on; `rate` is how much faster the reference runs."""

    last: Point
    rate: float = 0.0
    rate_error: float = 0.0

    def reference(self, own_ns: int) -> int:
        """The reference's time at a moment of the clock's own."""
        return own_ns + self.last.offset_ns + round((own_ns - self.last.at_ns) * self.rate)

    def own(self, reference_ns: int) -> int:
        """The clock's own time at a moment of the reference's."""
        since = reference_ns - self.last.offset_ns - self.last.at_ns
        return self.last.at_ns + since - round(since * (self.rate / (1 + self.rate)))

    def error_ns(self, own_ns: int) -> int:
        """Bound on what `reference` may be wrong by."""
        return self.last.error_ns + math.ceil(abs(own_ns - self.last.at_ns) * self.rate_error)


def estimate(rounds: Int64s) -> Point:
    """Take the offset from the round with the smallest round trip.

    `rounds` (n x 3) holds the own clock when it asked, the reference's answer, the own clock when the answer came. The
    error is half that round trip, and what the slowest and fastest clocks make of it.
    """
    if rounds.shape[0] == 0:
        raise ValueError("estimate: got no rounds, expected at least one")
    asked, answer, came = (int(value) for value in rounds[int(np.argmin(rounds[:, 2] - rounds[:, 0]))])
    middle = (asked + came) // 2
    return Point(middle, answer - middle, math.ceil((came - asked + 1) / 2 * (1 + MOST_RATE)))


def line_through(points: Sequence[Point]) -> Line:
    """Expect of a clock what its measurements (at least one, the last one last) say of its rate.

    The rate comes from the last one and an earlier one, whichever leaves the smallest error; where that would be more
    than a clock can be off by, no rate is assumed.
    """
    last = points[-1]
    best = Line(last, 0.0, MOST_RATE)
    for point in points[:-1]:
        apart = last.at_ns - point.at_ns
        if apart <= 0:
            continue
        error = (last.error_ns + point.error_ns) / apart + WANDER
        if error < best.rate_error:
            best = Line(last, (last.offset_ns - point.offset_ns) / apart, error)
    return best


def onto_reference(points: Sequence[Point], own: Int64s) -> Int64s:
    """Put moments of a clock's own on the reference's: by straight lines through its measurements, in order."""
    at = np.array([point.at_ns - points[0].at_ns for point in points], np.float64)
    offsets = np.array([point.offset_ns - points[0].offset_ns for point in points], np.float64)
    moved = np.interp((own - points[0].at_ns).astype(np.float64), at, offsets)
    result: Int64s = own + points[0].offset_ns + np.rint(moved).astype(np.int64)
    return result


def error_between(points: Sequence[Point]) -> int:
    """Bound on what `onto_reference` may be wrong by, anywhere between the first and the last measurement.

    On a line between two measurements the errors of both ends weigh together at most as much as the larger one. A rate
    that is off by WANDER one way in the first half and the other way in the second leaves the line by half of that.
    """
    apart = max((later.at_ns - point.at_ns for point, later in pairwise(points)), default=0)
    return max(point.error_ns for point in points) + math.ceil(apart * WANDER / 2)


@dataclass
class History:
    """What a rank remembers of its own clock against each reference, from case to case."""

    points: dict[int, list[Point]] = field(default_factory=dict)

    def add(self, reference: int, point: Point) -> list[Point]:
        """Remember a measurement; those that still count, the last one last."""
        recent = [one for one in self.points.get(reference, []) if point.at_ns - one.at_ns <= _REMEMBERED_NS]
        self.points[reference] = [*recent, point]
        return self.points[reference]


class CommonClock:
    """The clocks of a group's ranks during one case; the reference is that of the group's rank 0.

    The first rank of each clock measures for all of its ranks.
    """

    def __init__(self, group: World, history: History | None = None) -> None:
        clocks = group.clocks or (0,) * group.size
        self._group = group
        self._clocks = tuple(dict.fromkeys(clocks))
        self.of_rank = tuple(self._clocks.index(clock) for clock in clocks)
        """Which clock each rank has, as a number within the group; 0 is the reference."""
        self._leaders = tuple(clocks.index(clock) for clock in self._clocks)
        self._mine = self.of_rank[group.rank]
        self._history = history or History()
        self._points: list[list[Point]] = [[] for _ in self._clocks]
        self.line = Line(Point(0, 0, 0))
        """This rank's clock against the reference."""

    @property
    def shared(self) -> bool:
        """Whether all ranks read one clock: then nothing is measured."""
        return len(self._clocks) == 1

    def measure(self) -> None:
        """Measure every clock against the reference, 10 ms for each doubling of clocks; collective over the group."""
        if self.shared:
            return
        point = self._measured() if self._group.rank == self._leaders[self._mine] else Point(0, 0, 0)
        local = np.array([point.at_ns, point.offset_ns, point.error_ns], np.int64)
        whole = self._group.gather_array(local)
        table = np.zeros(3 * len(self._clocks), np.int64) if whole is None else whole[list(self._leaders)].ravel()
        for clock, row in enumerate(self._group.broadcast_array(table).reshape(-1, 3)):
            self._points[clock].append(Point(*(int(value) for value in row)))
        if self._mine:
            self.line = line_through(self._history.add(self._clocks[0], self._points[self._mine][-1]))

    def _measured(self) -> Point:
        """This clock's part of the tree: first it asks, then it answers those after it."""
        mine, distance = self._mine, 1
        point = Point(time.monotonic_ns(), 0, 0)
        line = Line(point)
        while distance < len(self._clocks):
            if distance <= mine < 2 * distance:
                point = self._ask(self._leaders[mine - distance])
                line = line_through([*self._history.points.get(self._clocks[0], []), point])
            elif mine < distance and mine + distance < len(self._clocks):
                self._answer(self._leaders[mine + distance], line)
            distance *= 2
        return point

    def _ask(self, teller: int) -> Point:
        """Ask a rank that knows the reference's time, round after round."""
        comm, rounds = self._group.comm, []
        word, answer = np.ones(1, np.int64), np.empty(1, np.int64)
        began = time.monotonic_ns()
        while word[0]:
            asked = time.monotonic_ns()
            comm.Send(word, teller, _TAG)
            comm.Recv(answer, teller, _TAG)
            came = time.monotonic_ns()
            rounds.append((asked, int(answer[0]), came))
            enough = len(rounds) >= _LEAST_ROUNDS and came - began >= _ROUNDS_NS
            if enough or len(rounds) == _MOST_ROUNDS:
                word[0] = 0
                comm.Send(word, teller, _TAG)
        line: Line = comm.recv(source=teller, tag=_TAG)
        point = estimate(np.array(rounds, np.int64))
        told = point.at_ns + point.offset_ns  # by the teller's clock
        return Point(point.at_ns, line.reference(told) - point.at_ns, point.error_ns + line.error_ns(told))

    def _answer(self, asker: int, line: Line) -> None:
        """Tell a rank what this clock says, as often as it asks, and then how this clock stands."""
        comm, word, answer = self._group.comm, np.empty(1, np.int64), np.empty(1, np.int64)
        while True:
            comm.Recv(word, asker, _TAG)
            if not word[0]:
                break
            answer[0] = time.monotonic_ns()
            comm.Send(answer, asker, _TAG)
        comm.send(line, asker, _TAG)

    def onto_reference(self, own: Int64s) -> Int64s:
        """Put what each rank's clock said (ranks x samples) on the reference's; after the last measurement."""
        if self.shared:
            return own
        return np.stack([onto_reference(self._points[self.of_rank[rank]], row) for rank, row in enumerate(own)])

    @property
    def error_ns(self) -> int:
        """Bound on what two ranks' times may be wrong by against each other: the two largest errors together."""
        if self.shared:
            return 0
        return sum(sorted(error_between(points) for points in self._points[1:])[-2:])
