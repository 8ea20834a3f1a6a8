"""One slow case among many: its chance, by hand, and that it holds for any number of cases."""

import math

import numpy as np
import pytest

from collbench.readers import standing_out
from collbench.readers.standing_out import adjusted, least


def test_of_all_ways_only_the_measured_one_is_as_large() -> None:
    base, new = np.array([[0.0], [0.1], [0.2]]), np.array([[1.0], [1.1], [1.3]])
    assert adjusted(base, new, 0.0) == pytest.approx([1 / math.comb(6, 3)])


def test_what_is_allowed_is_taken_off_first() -> None:
    base, new = np.array([[0.0], [0.1], [0.2]]), np.array([[1.0], [1.1], [1.3]])
    assert adjusted(base, new, 2.0)[0] == 1.0
    assert adjusted(base, new, 1.0)[0] > 0.2


def test_the_slow_case_is_named_and_no_other() -> None:
    random = np.random.default_rng(3)
    base, new = random.normal(0, 0.05, (6, 30)), random.normal(0, 0.05, (6, 30))
    new[:, 17] += 0.5
    chances = adjusted(base, new, math.log(1.1))
    assert chances[17] <= 0.01
    assert np.delete(chances, 17).min() > 0.05


def test_any_case_is_falsely_named_no_more_often_than_the_level() -> None:
    random = np.random.default_rng(4)
    trials, wrong = 400, 0
    for _ in range(trials):
        modes = np.where(random.random((10, 1)) < 0.25, math.log(2), 0.0)
        both = modes + random.normal(0, 0.1, (10, 20))
        wrong += bool(adjusted(both[:5], both[5:], 0.0).min() <= 0.05)
    assert 0.01 * trials < wrong < 0.09 * trials  # 20 expected, 4.4 is a standard deviation


def test_many_launches_are_drawn_from_and_the_answer_is_the_same_twice() -> None:
    random = np.random.default_rng(5)
    base, new = random.normal(0, 0.1, (12, 4)), random.normal(0.03, 0.1, (12, 4))
    first = adjusted(base, new, 0.0)
    assert (first == adjusted(base, new, 0.0)).all()
    assert first.min() >= least(12, 12) == 1e-4


def test_equal_launches_have_no_spread_to_divide_by() -> None:
    same = np.zeros((4, 2))
    assert (adjusted(same, same, math.log(1.1)) == 1.0).all()
    assert (adjusted(same, same, 0.0) == 1.0).all()


def test_many_cases_are_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(6)
    base, new = random.normal(0, 0.1, (5, 7)), random.normal(0.1, 0.1, (5, 7))
    whole = adjusted(base, new, 0.0)
    monkeypatch.setattr(standing_out, "_CELLS_AT_ONCE", 30)
    assert (adjusted(base, new, 0.0) == whole).all()
