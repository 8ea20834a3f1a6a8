"""Intervals over launches: their level, and what few launches do to them."""

import math

import numpy as np
import pytest

from collbench.readers.bootstrap import Estimate, interval, replicates, student


def test_students_t() -> None:
    assert [student(count) for count in (1, 2, 4, 30)] == pytest.approx([12.706, 4.303, 2.776, 2.042], abs=0.001)


@pytest.mark.parametrize("launches", [2, 3, 10])
def test_the_interval_of_a_mean_is_students(launches: int) -> None:
    draw = np.random.default_rng(launches)
    logs = draw.normal(0, 0.2, (launches, 1))
    found = interval(float(np.exp(logs.mean())), np.exp(replicates(logs)[:, 0]).tolist(), launches)
    half = student(launches - 1) * float(np.std(logs, ddof=1)) / math.sqrt(launches)
    assert found.low is not None
    assert found.high is not None
    assert math.log(found.high / found.low) / 2 == pytest.approx(half, rel=0.15)  # two hundred replicates


def test_launches_are_drawn_whole() -> None:
    logs = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [5.0, 5.0, 5.0]])
    drawn = replicates(logs)
    assert (drawn == drawn[:, :1]).all()
    assert len(np.unique(drawn[:, 0])) == 10  # ways to draw three of three with replacement


def test_what_no_drawn_launch_has_is_nan() -> None:
    drawn = replicates(np.array([[0.0, 1.0], [0.0, np.nan]]))
    assert np.isnan(drawn[:, 1]).any()
    assert np.nanmax(np.abs(drawn[:, 1] - 1.0)) == 0.0


def test_the_same_launches_have_the_same_replicates() -> None:
    logs = np.random.default_rng(1).normal(size=(4, 3))
    assert (replicates(logs) == replicates(logs)).all()
    assert (replicates(logs[:1]) == logs[:1]).all()


def test_one_launch_has_no_interval() -> None:
    assert interval(2.0, [], 1) == Estimate(2.0)


def test_what_is_held_at_zero_by_all_launches_has_no_interval() -> None:
    assert interval(0.0, [0.0, 0.0, 0.0], launches=3) == Estimate(0.0)


def test_an_interval_that_reaches_zero_stops_there() -> None:
    found = interval(1e-6, [0.0, 2e-6, 1e-6, 0.0], launches=3)
    assert found.low == 0.0
    assert found.high is not None
    assert found.high > 3e-6
