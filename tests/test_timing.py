"""Sampling on a clock of our own: when it stops, what it counts, what it discards."""

import time
from dataclasses import replace

import numpy as np
import pytest

from collbench.backends.base import BoundCall, Steps, no_step
from collbench.clock import Clock
from collbench.scenario import Measure
from collbench.timing import Sampled, python_loop, sample
from collbench.world import World

MEASURE = Measure(time_budget_s=0.3, least_time_s=0.0, least_iterations=20, warmup_time_s=0.05, precision=0.02)


def bound(run: object) -> BoundCall:
    return BoundCall(buffers=[], steps=Steps(no_step, run))  # type: ignore[arg-type]


def sleeping(seconds: float) -> BoundCall:
    return bound(lambda k: time.sleep(seconds))


def taken(call: BoundCall, measure: Measure, mode: str = "latency") -> Sampled:
    return sample(call, World(), measure, mode=mode, step_s=1e-8)


def test_it_stops_at_the_budget_where_the_precision_is_out_of_reach() -> None:
    rng = np.random.default_rng(1)
    erratic = bound(lambda k: time.sleep(float(rng.uniform(0, 0.004))))
    began = time.monotonic()
    found = taken(erratic, replace(MEASURE, precision=1e-6))
    assert found.stopped_by == "budget"
    assert 0.3 <= time.monotonic() - began < 3


def test_it_stops_early_where_the_interval_is_narrow() -> None:
    found = taken(sleeping(0.001), replace(MEASURE, precision=0.5, time_budget_s=30.0))
    assert found.stopped_by == "precision"
    assert found.durations_s.shape[1] >= 20
    assert float(np.median(found.durations_s)) == pytest.approx(0.001, rel=1.0)


def test_samples_that_take_less_than_the_meeting_before_them_keep_to_the_budget() -> None:
    meetings: list[int] = []

    def meet(k: int) -> None:
        meetings.append(k)
        time.sleep(0.002)

    taken(BoundCall(buffers=[], steps=Steps(meet, lambda k: None)), replace(MEASURE, precision=1e-9))
    assert len(meetings) < 500


def test_least_time_and_least_iterations_hold() -> None:
    began = time.monotonic()
    found = taken(sleeping(0.0), replace(MEASURE, precision=0.9, least_time_s=0.2, time_budget_s=5.0))
    assert time.monotonic() - began >= 0.2
    found = taken(sleeping(0.0), replace(MEASURE, precision=0.9, least_iterations=500, time_budget_s=5.0))
    assert found.durations_s.shape[1] >= 500


def test_most_iterations_is_a_stop_of_its_own() -> None:
    found = taken(sleeping(0.0), replace(MEASURE, precision=1e-9, most_iterations=50))
    assert found.stopped_by == "iterations"
    assert found.durations_s.shape[1] <= 50


def test_warm_up_is_not_among_the_samples() -> None:
    """The first calls are slow, as first calls are: none of them may be sampled."""
    calls = [0]

    def run(k: int) -> None:
        calls[0] += 1
        time.sleep(0.02 if calls[0] <= 3 else 0.0005)

    found = taken(bound(run), replace(MEASURE, warmup_time_s=0.5))
    assert found.warmup_iterations >= 3
    assert float(found.durations_s.max()) < 0.02


def test_warm_up_has_a_cap() -> None:
    durations = iter(np.geomspace(0.0001, 10, 100_000))  # never stationary
    began = time.monotonic()
    taken(bound(lambda k: time.sleep(min(0.01, next(durations)))), replace(MEASURE, time_budget_s=0.05))
    assert time.monotonic() - began < 2


def test_throughput_divides_by_the_batch() -> None:
    found = taken(sleeping(0.0005), MEASURE, mode="throughput")
    assert found.batch >= 4
    assert float(np.median(found.durations_s)) == pytest.approx(0.0005, rel=1.0)


def test_rotations_go_on_from_block_to_block() -> None:
    seen: list[int] = []
    taken(bound(seen.append), replace(MEASURE, time_budget_s=0.01))
    assert seen == list(range(len(seen)))


def test_the_python_loop_reads_the_clock_as_the_compiled_one_does() -> None:
    order: list[str] = []
    stamps = np.zeros((2, 3), np.int64)
    steps = Steps(lambda k: order.append(f"m{k}"), lambda k: order.append(f"r{k}"), lambda k: order.append(f"f{k}"))
    python_loop(steps, 10, 2, stamps)
    assert order == ["m10", "r10", "r11", "f10", "m12", "r12", "r13", "f12"]
    assert (np.diff(stamps.ravel()) >= 0).all()


def quantised(step_s: float) -> BoundCall:
    """A case that a device's clock says takes 5 us, each time."""
    call = sleeping(0.0)
    call.device_times = lambda first, samples: np.full(samples, 5000, np.int64)
    call.device_clock = Clock(1e-6, step_s)
    return call


def test_precision_is_no_better_than_the_devices_clock() -> None:
    measure = replace(MEASURE, precision=0.02, time_budget_s=0.05)
    assert taken(quantised(1e-8), measure).stopped_by == "precision"
    assert taken(quantised(5e-7), measure).stopped_by == "budget"  # a half step is 5 %


def test_what_begins_later_than_it_is_queued_is_timed_from_then() -> None:
    call = sleeping(0.002)
    began: list[int] = []

    def finish(k: int) -> None:
        time.sleep(0.002)
        began.append(time.monotonic_ns())
        time.sleep(0.001)

    assert call.steps is not None
    call.steps = replace(call.steps, finish=finish)
    call.entry_times = lambda first, samples: np.array(began[first : first + samples])
    found = taken(call, replace(MEASURE, precision=0.5))
    assert found.entry_s is not None
    count = found.durations_s.shape[1]
    assert 0.001 <= float(np.median(found.durations_s)) < 0.002
    assert float(np.median(found.enqueue_s)) >= 0.002
    entries = np.array(began[-count:])
    assert found.entry_s[0] == pytest.approx((entries - entries[0]) * 1e-9, abs=1e-9)
