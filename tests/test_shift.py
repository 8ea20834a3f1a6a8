"""The ratio of two sets of launches: its exact bounds, by hand and by enumeration."""

import itertools
import math
import random

import pytest

from collbench.readers.shift import launches_needed, least_level, ratio


def test_bounds_are_the_ordered_ratios_that_the_table_of_the_rank_sum_names() -> None:
    # Of 252 orders of 5 and 5, U is below 3 in 1 + 1 + 2 = 4 (0.0159), below 4 in 7 (0.0278): the third at 1/60.
    base, new = [1.0, 1.01, 1.02, 1.03, 1.04], [2.0, 2.3, 2.1, 2.4, 2.2]
    ratios = sorted(n / b for n in new for b in base)
    found = ratio(base, new, 1 / 60)
    assert [found.low, found.high] == pytest.approx([ratios[2], ratios[-3]])
    assert found.middle == pytest.approx(ratios[12])


@pytest.mark.parametrize(
    ("base", "new", "level"), [(1, 1, 0.05), (2, 2, 0.05), (3, 3, 0.025), (5, 1, 0.05), (18, 1, 0.05)]
)
def test_too_few_launches_have_no_bounds(base: int, new: int, level: float) -> None:
    found = ratio([1.0] * base, [9.0] * new, level)
    assert found.middle == pytest.approx(9)
    assert (found.low, found.high) == (None, None)


@pytest.mark.parametrize(("base", "new", "level"), [(3, 3, 0.05), (19, 1, 0.05), (5, 5, 1 / 252)])
def test_as_many_launches_as_are_needed_have_bounds(base: int, new: int, level: float) -> None:
    assert ratio([1.0] * base, [9.0] * new, level).low == pytest.approx(9)


@pytest.mark.parametrize(("base", "new"), [(3, 4), (5, 2), (4, 4)])
@pytest.mark.parametrize("level", [0.03, 0.05, 0.2])
def test_the_lower_bound_is_above_the_truth_no_more_often_than_the_level(base: int, new: int, level: float) -> None:
    """All orders of distinct times, which are equally likely where the sides do not differ."""
    values = [1.0 + random.Random(7).random() * place for place in range(base + new)]
    missed = 0
    for chosen in itertools.combinations(range(base + new), new):
        its = [values[at] for at in chosen]
        others = [values[at] for at in range(base + new) if at not in chosen]
        low = ratio(others, its, level).low
        missed += low is not None and low > 1
    total = math.comb(base + new, new)
    assert missed <= level * total
    assert low is None or missed > 0


def test_swapping_the_sides_inverts_the_ratio() -> None:
    base, new = [1.0, 1.2, 1.1, 1.3], [1.5, 1.4, 1.9, 2.0]
    there, back = ratio(base, new, 0.05), ratio(new, base, 0.05)
    assert there.low is not None
    assert back.high == pytest.approx(1 / there.low)
    assert back.middle == pytest.approx(1 / there.middle)


def test_the_launches_that_a_level_needs() -> None:
    assert least_level(5, 5) == pytest.approx(1 / 252)
    assert [launches_needed(level) for level in (0.5, 0.05, 0.05 / 3, 0.025 / 3)] == [1, 3, 4, 5]


@pytest.mark.parametrize(("base", "new"), [([], [1.0]), ([1.0], []), ([0.0], [1.0]), ([1.0], [-1.0])])
def test_times_that_no_ratio_can_be_made_of_are_refused(base: list[float], new: list[float]) -> None:
    with pytest.raises(ValueError, match="expected positive times"):
        ratio(base, new, 0.05)
