"""The common clock: its estimates hold whatever the network does, and its lines through clocks that drift."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench import start
from collbench.common_clock import (
    MOST_RATE,
    WANDER,
    CommonClock,
    History,
    Line,
    Point,
    error_between,
    estimate,
    line_through,
    onto_reference,
)
from collbench.world import World

SECOND = 1_000_000_000
TIMES = st.integers(0, 10**16)
RATES = st.floats(-MOST_RATE, MOST_RATE)
WAYS = st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)), min_size=1, max_size=30)


def exchanged(begin: int, ways: list[tuple[int, int]], offset: int, rate: float) -> np.ndarray[Any, Any]:
    """Rounds with these times there and back, against a reference at own + offset + rate x (own - begin)."""
    rounds, asked = [], begin
    for there, back in ways:
        heard = asked + there
        rounds.append((asked, heard + offset + round(rate * (heard - begin)), heard + back))
        asked = heard + back + 1000
    return np.array(rounds, np.int64)


@given(begin=TIMES, ways=WAYS, offset=st.integers(-(10**16), 10**16), rate=RATES)
def test_the_true_offset_is_within_the_error(begin: int, ways: list[tuple[int, int]], offset: int, rate: float) -> None:
    found = estimate(exchanged(begin, ways, offset, rate))
    true = offset + rate * (found.at_ns - begin)
    assert abs(found.offset_ns - true) <= found.error_ns + 1  # the reference's nanoseconds are whole
    assert found.error_ns <= min(there + back for there, back in ways) / 2 * (1 + MOST_RATE) + 2


def test_the_round_with_the_smallest_round_trip_counts() -> None:
    rounds = np.array([[0, 5090, 100], [200, 5_000_209, 212], [300, 5380, 400]], np.int64)
    assert estimate(rounds) == Point(at_ns=206, offset_ns=5_000_003, error_ns=7)
    with pytest.raises(ValueError, match="got no rounds"):
        estimate(np.empty((0, 3), np.int64))


@given(
    begin=TIMES, offset=st.integers(-(10**16), 10**16), rate=RATES, errors=st.lists(st.integers(-50, 50), min_size=2)
)
def test_a_line_through_two_measurements_keeps_its_bound(
    begin: int, offset: int, rate: float, errors: list[int]
) -> None:
    def true(own: int) -> float:
        return offset + rate * (own - begin)

    points = [
        Point(at, round(true(at)) + error, abs(error) + 1)
        for at, error in ((begin + k * SECOND // 3, error) for k, error in enumerate(errors))
    ]
    own = np.linspace(begin, points[-1].at_ns, 57).astype(np.int64)
    missed = onto_reference(points, own) - own - np.array([true(int(at)) for at in own])
    assert np.abs(missed).max() <= error_between(points) + 1
    line = line_through(points)
    for ahead in (0, SECOND, 30 * SECOND):
        at = points[-1].at_ns + ahead
        assert abs(line.reference(at) - at - true(at)) <= line.error_ns(at) + 1
        assert abs(line.own(line.reference(at)) - at) <= 1


def test_the_rate_is_known_from_measurements_that_lie_apart() -> None:
    """A clock that is 5 s behind and 50 ppm slow."""
    early, late = Point(0, 5 * SECOND, 2000), Point(10 * SECOND, 5 * SECOND + 500_000, 2000)
    assert line_through([early]) == Line(early, 0.0, MOST_RATE)
    line = line_through([early, late])
    assert line.rate == pytest.approx(50e-6)
    assert line.rate_error == pytest.approx(4000 / 10 / SECOND + WANDER)
    assert line.reference(20 * SECOND) == 25 * SECOND + 1_000_000
    # Too near each other, they say less than what is known of every clock.
    assert line_through([early, Point(1000, 5 * SECOND, 2000)]).rate_error == MOST_RATE


def test_the_error_between_measurements_has_the_wander_in_it() -> None:
    points = [Point(0, 0, 300), Point(SECOND, 0, 200), Point(4 * SECOND, 0, 100)]
    assert error_between(points) == 300 + round(3 * SECOND * WANDER / 2)


def test_a_history_forgets() -> None:
    history = History()
    history.add(0, Point(0, 1, 1))
    assert history.add(0, Point(30 * SECOND, 2, 1)) == [Point(0, 1, 1), Point(30 * SECOND, 2, 1)]
    assert history.add(0, Point(70 * SECOND, 3, 1)) == [Point(30 * SECOND, 2, 1), Point(70 * SECOND, 3, 1)]
    assert history.add(1, Point(0, 4, 1)) == [Point(0, 4, 1)]


def test_ranks_of_one_clock_send_nothing() -> None:
    """Without a communicator every message would fail."""
    common = CommonClock(World(rank=1, size=3, ranks=(0, 1, 2), hosts=("a", "b", "c")))
    common.measure()
    assert common.shared
    assert common.error_ns == 0
    assert common.line.own(12345) == 12345
    own = np.arange(6, dtype=np.int64).reshape(3, 2)
    assert (common.onto_reference(own) == own).all()


def test_each_clock_has_a_leader() -> None:
    common = CommonClock(World(rank=2, size=5, ranks=tuple(range(5)), hosts=tuple("abcde"), clocks=(3, 0, 3, 1, 0)))
    assert not common.shared
    assert common.of_rank == (0, 1, 0, 2, 1)


def test_a_part_of_the_world_keeps_its_clocks() -> None:
    assert start._numbered(["x", "x"]) == ()
    assert start._numbered(["x", "y", "x"]) == (0, 1, 0)


def test_the_clock_is_named_by_boot_and_namespace() -> None:
    assert start.clock_identity() == start.clock_identity()
    boot, _, namespace = start.clock_identity().partition(" ")
    assert len(boot) == 36
    assert not namespace or namespace.startswith("time:")
    assert time.monotonic_ns() > 0
