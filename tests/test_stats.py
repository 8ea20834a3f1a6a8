"""Statistics against numbers worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.stats import (
    median_interval,
    median_interval_ranks,
    median_of,
    percentile,
    relative_half_width,
    slowest_rank,
    summarise,
)


@pytest.mark.parametrize(
    ("count", "ranks"),
    [
        # floor((n - 1.96 sqrt n) / 2) and ceil(1 + (n + 1.96 sqrt n) / 2), from 1, kept within 1..n; here from 0.
        (5, None),
        (6, (0, 5)),  # 0.599 -> 0 -> 1; 6.400 -> 7 -> 6
        (10, (0, 9)),  # 1.90 -> 1; 9.099 -> 10
        (16, (3, 12)),  # 4.08 -> 4; 12.92 -> 13
        (25, (6, 18)),  # 7.60 -> 7; 18.40 -> 19
        (100, (39, 60)),  # 40.2 -> 40; 60.8 -> 61
        (1000, (468, 531)),  # 469.01 -> 469; 531.99 -> 532
    ],
)
def test_positions_of_the_interval(count: int, ranks: tuple[int, int] | None) -> None:
    assert median_interval_ranks(count) == ranks


@pytest.mark.parametrize("count", [6, 7, 10, 20, 33, 100])
def test_the_interval_covers_at_least_95_percent(count: int) -> None:
    """By the binomial distribution: the median lies between order statistics l and u unless too few lie below it."""
    positions = median_interval_ranks(count)
    assert positions is not None
    low, high = positions
    below = [math.comb(count, k) / 2**count for k in range(count + 1)]
    assert sum(below[low + 1 : high + 1]) >= 0.95


def test_hand_computed_summary() -> None:
    durations = np.array([5.0, 1.0, 3.0, 2.0, 4.0, 6.0, 9.0, 7.0, 8.0, 10.0])
    found = summarise(durations)
    assert (found.count, found.minimum_s, found.median_s, found.maximum_s) == (10, 1.0, 5.5, 10.0)
    assert (found.low_s, found.high_s) == (1.0, 10.0)
    assert found.mean_s == 5.5
    assert (found.p95_s, found.p99_s) == (None, None)


def test_percentiles_that_a_sample_carries() -> None:
    ordered = np.arange(1.0, 101.0)
    assert percentile(ordered, 0.95) == 95.0
    assert percentile(ordered, 0.99) == 99.0
    assert percentile(ordered[:99], 0.99) is None  # would be the maximum
    assert percentile(ordered[:20], 0.95) == 19.0
    assert percentile(ordered[:19], 0.95) is None


def test_no_interval_is_narrower_than_the_clock() -> None:
    ordered = np.full(100, 1e-7)
    bounds = median_interval(ordered, 1e-8)
    assert bounds is not None
    assert bounds[1] - bounds[0] == pytest.approx(1e-8)
    assert relative_half_width(ordered, 1e-8) == pytest.approx(0.05)
    assert median_interval(np.full(100, 1e-9), 1e-8) == pytest.approx((0.0, 6e-9))


def test_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="got no durations"):
        summarise(np.array([]))


def test_slowest_rank_shares_ties() -> None:
    durations = np.array([[1.0, 2.0, 3.0, 3.0], [2.0, 2.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    found = slowest_rank(durations)
    assert found is not None
    assert (found.rank, found.share) == (0, 0.625)  # half of the tie, and two of its own, of four
    assert slowest_rank(durations[:1]) is None


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60))
def test_order_does_not_matter_and_bounds_hold(values: list[float]) -> None:
    found, turned = summarise(np.array(values)), summarise(np.array(values[::-1]))
    assert (found.median_s, found.low_s, found.high_s) == (turned.median_s, turned.low_s, turned.high_s)
    assert found.median_s == pytest.approx(float(np.median(values)))
    assert found.median_s == median_of(np.sort(np.array(values)))
    if found.low_s is not None and found.high_s is not None:
        assert found.minimum_s <= found.low_s <= found.median_s <= found.high_s <= found.maximum_s
