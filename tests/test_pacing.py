"""Starts at instants: the compiled wait and Python's, what counts as late, and how the windows adapt."""

import time

import numpy as np
import pytest

from collbench import pacing
from collbench.backends.base import NO_CALLS, BoundCall, Call, Steps, call_list
from collbench.common_clock import CommonClock
from collbench.kernels import start_at
from collbench.kernels.call_loop import call_loop
from collbench.pacing import INSTANT, Int64s, Pacer, new_schedule, waiting_step
from collbench.scenario import Measure
from collbench.timing import ALL_LATE, Sampled, python_loop, sample
from collbench.world import World

MEASURE = Measure(time_budget_s=0.5, least_time_s=0.0, least_iterations=20, warmup_time_s=0.02, precision=1e-9)
GENEROUS_NS = 5_000_000
"""A grace that hardly any load on this machine uses up."""


def after_instants(caller: str, starts: int, *, ahead_ns: int, period_ns: int) -> Int64s:
    """Run an empty loop over a schedule; by how much each sample began after its instant."""
    schedule = new_schedule()
    stamps = np.zeros((starts, 3), np.int64)
    meet = call_list([Call(start_at.start_at.address, (int(schedule.ctypes.data),))])
    call_loop(NO_CALLS, NO_CALLS, NO_CALLS, 0, 1, np.zeros((1, 3), np.int64))  # the first call takes milliseconds
    first = time.monotonic_ns() + ahead_ns
    schedule[:] = first, period_ns
    if caller == "compiled":
        assert call_loop(meet, NO_CALLS, NO_CALLS, 0, 1, stamps) == 0
    else:
        assert python_loop(Steps(waiting_step(schedule), lambda k: None), 0, 1, stamps) == 0
    assert schedule[INSTANT] == first + starts * period_ns
    after: Int64s = stamps[:, 0] - first - period_ns * np.arange(starts)
    return after


@pytest.mark.parametrize("caller", ["compiled", "python"])
def test_no_start_is_before_its_instant(caller: str) -> None:
    after = after_instants(caller, 50, ahead_ns=10**7, period_ns=200_000)
    assert (after >= 0).all()
    assert after.min() < 100_000  # others may want the core, but hardly at every one of them


@pytest.mark.parametrize("caller", ["compiled", "python"])
def test_who_comes_after_the_instant_does_not_wait(caller: str) -> None:
    after = after_instants(caller, 20, ahead_ns=-(10**9), period_ns=1)
    assert (after >= 10**9).all()
    assert (after < 2 * 10**9).all()


def test_both_speak_of_the_same_words() -> None:
    for name in ("INSTANT", "PERIOD", "WORDS"):
        assert getattr(pacing, name) == getattr(start_at, name)


def a_pacer() -> Pacer:
    return Pacer(new_schedule(), World(), CommonClock(World()))


def test_the_window_holds_the_usual_sample_and_not_the_longest() -> None:
    pacer = a_pacer()
    longest = np.full(100, 1000)
    longest[:5] = 10**9
    pacer.learn(longest, np.zeros(100, np.bool_))
    assert pacer.period_s == pytest.approx((2 * 1000 + 4000) * 1e-9)
    # What began late has waited for others: it says nothing of the operation.
    pacer.learn(np.full(1000, 10**9), np.ones(1000, np.bool_))
    assert pacer.period_s < 20_000e-9


def test_a_first_guess_that_was_far_too_long_is_given_up_where_all_are_late() -> None:
    pacer = a_pacer()
    pacer.expect(1.0)
    pacer.learn(np.array([10**7, 3000]), np.ones(2, np.bool_))
    assert pacer.period_s < 20_000e-9


def test_the_window_grows_where_many_are_late() -> None:
    pacer = a_pacer()
    pacer.expect(0.001)
    late = np.zeros(20, np.bool_)
    late[5:9] = True
    before = pacer.period_s
    pacer.learn(np.full(20, 10**6), late)
    assert pacer.period_s > 1.4 * before
    for _ in range(50):
        pacer.learn(np.full(20, 10**6), late)
    assert pacer.period_s <= 0.1 + 1e-4  # and no further
    pacer = a_pacer()
    pacer.expect(0.001)
    pacer.learn(np.full(20, 10**6), np.arange(20) == 9)  # one in twenty
    assert pacer.period_s == pytest.approx(before)


def test_nothing_waits_once_a_block_has_ended() -> None:
    """A window may be long, and verification makes the same calls."""
    schedule = new_schedule()
    pacer = Pacer(schedule, World(), CommonClock(World()))
    pacer.expect(100.0)
    pacer.begin(1)
    began_ns = time.monotonic_ns()
    waiting_step(schedule)(0)
    assert time.monotonic_ns() > began_ns
    pacer.end(np.array([began_ns]))
    began = time.monotonic()
    waiting_step(schedule)(1)
    waiting_step(schedule)(2)
    assert time.monotonic() - began < 5


def test_who_begins_too_long_after_its_instant_is_late() -> None:
    schedule = new_schedule()
    pacer = Pacer(schedule, World(), CommonClock(World()))
    pacer._grace_ns = 700
    pacer.expect(0.001)
    pacer.begin(4)
    instants = schedule[INSTANT] + 2_004_000 * np.arange(4)  # twice what a sample takes, and what lies between
    assert pacer.end(instants + np.array([0, 700, 701, 3 * 10**6])).tolist() == [False, False, True, True]


def test_a_block_is_short_or_has_one_start() -> None:
    pacer = a_pacer()
    pacer.expect(1.0)
    assert pacer.most == 1
    pacer.expect(0.0)
    assert 1000 <= pacer.most <= 2000


def paced(run: object, measure: Measure = MEASURE, mode: str = "latency") -> Sampled:
    schedule = new_schedule()
    bound = BoundCall(buffers=[], steps=Steps(waiting_step(schedule), run), schedule=schedule)  # type: ignore[arg-type]
    return sample(bound, World(), measure, mode=mode, step_s=1e-8)


def test_late_samples_are_discarded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "_GRACE_IN_PYTHON_NS", GENEROUS_NS)
    monkeypatch.setattr(pacing, "_BLOCK_NS", 100_000_000)  # a block outlasts several long ones
    calls = [0]

    def run(k: int) -> None:
        calls[0] += 1
        time.sleep(0.02 if calls[0] % 25 == 0 else 0.0005)

    found = paced(run)
    assert found.late_starts is not None
    assert found.late_starts > 0  # after each long one
    assert found.durations_s.shape[1] + found.late_starts + found.warmup_iterations == calls[0]
    assert found.entry_s is not None
    assert found.entry_s.shape == found.durations_s.shape
    assert found.entry_s.min() == 0.0
    assert found.exit_s == pytest.approx(found.entry_s + found.durations_s)


def test_where_all_are_late_the_budget_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "_GRACE_IN_PYTHON_NS", -1)
    monkeypatch.setattr(pacing, "_GRACE_READINGS", -1)
    began = time.monotonic()
    found = paced(lambda k: None)
    assert time.monotonic() - began < 5
    assert found.stopped_by == ALL_LATE
    assert found.durations_s.size == 0
    assert (found.late_starts or 0) > 0


def test_a_batch_starts_at_an_instant_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "_GRACE_IN_PYTHON_NS", GENEROUS_NS)
    found = paced(lambda k: time.sleep(0.0005), mode="throughput")
    assert found.batch >= 4
    assert found.durations_s.shape[1] > 0
    assert float(np.median(found.durations_s)) == pytest.approx(0.0005, rel=2.0)
    assert found.exit_s is not None
    assert found.entry_s is not None
    assert float(np.median(found.exit_s - found.entry_s)) == pytest.approx(
        found.batch * float(np.median(found.durations_s))
    )
