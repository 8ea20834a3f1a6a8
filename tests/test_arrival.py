"""Who came late: hand-made entries and exits, and what chance does not name."""

import numpy as np
import pytest

from collbench.arrival import arrivals, by_chance


def test_the_last_rank_and_its_delay() -> None:
    base = np.arange(20) * 1.0
    entries = np.stack([base, base + 0.1, base + 0.4])  # rank 2 enters 0.35 after the others' median
    exits = np.stack([base + 0.5, base + 0.5, base + 0.5])
    found = arrivals(entries, exits, error_s=1e-6)
    assert found.skew_s == pytest.approx(0.4)
    # Rank 0 waits 0.4 of 0.5, rank 1 0.3 of 0.4, rank 2 nothing of 0.1.
    assert found.wait_share == pytest.approx(0.7 / 1.0)
    assert found.last is not None
    assert (found.last.rank, found.last.share) == (2, 1.0)
    assert found.last.delay_s == pytest.approx(0.35)


def test_a_rank_that_leaves_before_the_last_one_enters_has_waited_no_longer_than_it_was_there() -> None:
    entries, exits = np.array([[0.0], [5.0]]), np.array([[1.0], [6.0]])
    assert arrivals(entries, exits, error_s=0.0).wait_share == pytest.approx(0.5)


def test_nobody_is_named_within_the_clocks_error() -> None:
    entries = np.stack([np.zeros(50), np.full(50, 1e-6)])
    assert arrivals(entries, entries + 1, error_s=2e-6).last is None
    assert arrivals(entries, entries + 1, error_s=0.5e-6).last is not None


def test_nobody_is_named_where_it_goes_round() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        entries = rng.uniform(0, 1e-3, (4, 200))
        assert arrivals(entries, entries + 1, error_s=0.0).last is None


def test_few_samples_name_nobody() -> None:
    entries = np.stack([np.zeros(9), np.ones(9)])
    assert arrivals(entries, entries + 1, error_s=0.0).last is None  # 2 x 0.5^9 = 0.0039
    entries = np.stack([np.zeros(11), np.ones(11)])
    assert arrivals(entries, entries + 1, error_s=0.0).last is not None  # 2 x 0.5^11 = 0.00098


def test_ties_are_shared_out() -> None:
    entries = np.zeros((2, 100))
    assert by_chance(0.5, 2, 100) == 1.0
    found = arrivals(entries, entries + 1, error_s=-1.0)
    assert found.last is None
    assert (found.skew_s, found.wait_share) == (0.0, 0.0)


def test_the_bound_of_chance_is_that_of_chernoff() -> None:
    assert by_chance(1.0, 2, 10) == pytest.approx(2 * 0.5**10)
    assert by_chance(1.0, 4, 3) == pytest.approx(4 * 0.25**3)
    assert by_chance(0.9, 2, 100) == pytest.approx(2 * (0.5 / 0.9) ** 90 * (0.5 / 0.1) ** 10)
