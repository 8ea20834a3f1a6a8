"""What a row says of arrivals: by ranks of the world, of those that take part, where entries are known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collbench.backends.base import BoundCall
from collbench.backends.loopback import Loopback
from collbench.clock import Clock
from collbench.collectives import collective_of
from collbench.figures import Point, figures
from collbench.plan import expand
from collbench.scenario import Measure, Scenario, Sweep
from collbench.timing import Sampled
from collbench.world import World

SAMPLES = 30
ENTRIES = np.stack([np.arange(SAMPLES) + late for late in (0.0, 0.3, 0.1)])  # the second one is last


def said(collective: str, mode: str = "latency", device_clock: Clock | None = None, **changed: Any) -> dict[str, Any]:
    """The figures of a case on ranks 4, 7 and 9 of a world."""
    sweep = Sweep(collectives=(collective,), sizes=(8,))
    (case,) = expand(Scenario(name="t", title="t", sweeps=(sweep,), measure=Measure(modes=(mode,)))).cases
    group = World(size=3, ranks=(4, 7, 9), hosts=("a", "b", "c"), clocks=(0, 1, 2))
    made = collective_of(collective, "", 3)
    shape = made.shape(8, 4, 3)
    point = Point(case, "world", group, Loopback(World()), made, shape, made.layout(shape.count, 3, 0))
    durations = np.full((3, SAMPLES), 0.4)
    sampled = Sampled(durations, durations, None, 1, 1, "budget", entry_s=ENTRIES, clock_error_s=0.01)
    return figures(
        point,
        BoundCall(buffers=[], device_clock=device_clock),
        replace(sampled, **changed),
        clock=Clock(1e-9, 1e-8),
        oversubscribed=False,
        flags=(),
    )


def test_the_last_rank_is_one_of_the_world() -> None:
    row = said("all_reduce")
    assert (row["last_rank"], row["last_rank_share"], row["clock_error_s"]) == (7, 1.0, 0.01)
    assert row["last_rank_delay_s"] == pytest.approx(0.25)
    assert row["arrival_skew_s"] == pytest.approx(0.3)
    assert row["wait_share"] == pytest.approx((0.3 + 0.2) / 1.2)
    assert row["late_starts"] is None


def test_who_looks_on_does_not_count() -> None:
    row = said("ping_pong")  # the first rank and the last one
    assert row["last_rank"] == 9
    assert row["arrival_skew_s"] == pytest.approx(0.1)
    assert row["wait_share"] == pytest.approx(0.1 / 0.8)


def test_a_delay_within_the_clocks_error_names_nobody() -> None:
    row = said("all_reduce", clock_error_s=0.26)
    assert row["arrival_skew_s"] == pytest.approx(0.3)
    assert "last_rank" not in row


def test_a_batch_has_no_arrivals() -> None:
    row = said("all_reduce", mode="throughput", late_starts=3)
    assert (row["late_starts"], row["clock_error_s"]) == (3, 0.01)
    assert "arrival_skew_s" not in row
    assert "arrival_skew_s" not in said("all_reduce", entry_s=None)


def test_rows_of_a_devices_clock_have_its_step_and_its_floor() -> None:
    device_s = np.full((3, SAMPLES), 1e-5)
    fine, coarse = Clock(4e-7, 3.2e-8), Clock(1.5e-6, 5e-7)
    row = said("all_reduce", device_clock=coarse, device_s=device_s)
    assert (row["clock"], row["timer_floor_s"], row["clock_step_s"]) == ("device", 1.5e-6, 5e-7)
    assert row["notes"] == "timer_floor"  # 1.5 of 10 us
    # All samples are alike, and yet the median is known to a step only.
    assert row["time_p50_high_s"] - row["time_p50_low_s"] == pytest.approx(5e-7)
    assert said("all_reduce", device_clock=fine, device_s=device_s)["notes"] is None
    # Sixteen operations in a graph share the events around it.
    row = said("all_reduce", mode="graph", device_clock=coarse, device_s=device_s, batch=16)
    assert row["notes"] is None
    assert row["time_p50_high_s"] - row["time_p50_low_s"] == pytest.approx(5e-7 / 16)


def test_the_clock_of_a_device_says_nothing_of_times_by_the_hosts() -> None:
    row = said("all_reduce", device_clock=Clock(1.5e-6, 5e-7))
    assert (row["clock"], row["timer_floor_s"], row["clock_step_s"]) == ("host", 1e-9, 1e-8)


def test_arrivals_are_by_the_hosts_clock() -> None:
    device_s = np.full((3, SAMPLES), 1e-5)
    assert said("all_reduce", device_clock=Clock(1.0, 1.0), device_s=device_s)["last_rank"] == 7
