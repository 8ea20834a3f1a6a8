"""Fits of time over size: against published data, and against made-up data whose truth is known."""

import builtins
from typing import Any

import numpy as np
import pytest

from collbench.errors import CannotRun
from collbench.readers import fit as module
from collbench.readers.bootstrap import Estimate, replicates
from collbench.readers.fit import estimates, fit, line, refitted, relative, segmented
from collbench.readers.fit_rows import Curve, curve
from fitted_curves import KIB, MIB, data_a, doubling, made_up


def relative_errors(its: module.Fit) -> Any:
    return np.abs(np.expm1(its.errors))


def test_data_a_by_one_line() -> None:
    found = fit(data_a(), breaks=0)
    (one,) = found.segments
    assert one.alpha_s == pytest.approx(83.1e-6, abs=0.05e-6)
    assert one.bandwidth == pytest.approx(49.14e9, abs=0.005e9)
    assert relative_errors(found).max() == pytest.approx(0.263, abs=0.0005)
    assert relative_errors(found).mean() == pytest.approx(0.094, abs=0.001)
    assert one.alpha_s / one.per_byte_s / MIB == pytest.approx(3.9, abs=0.05)


def test_data_a_has_two_segments() -> None:
    found = fit(data_a())
    sizes = found.curve.sizes
    low, high = found.segments
    assert (sizes[low.last], sizes[high.first]) == (4 * MIB, 8 * MIB)
    assert [one.alpha_s * 1e6 for one in found.segments] == pytest.approx([78.2, 37.8], abs=0.05)
    assert [one.bandwidth / 1e9 for one in found.segments] == pytest.approx([28.5, 48.2], abs=0.05)
    assert relative_errors(found).max() == pytest.approx(0.162, abs=0.0005)
    assert relative_errors(found).mean() == pytest.approx(0.060, abs=0.001)


def test_the_dip_of_data_a_is_named() -> None:
    (dip,) = fit(data_a()).dips
    assert (dip.from_bytes, dip.to_bytes) == (32 * MIB, 64 * MIB)
    assert dip.fall == pytest.approx(0.137, abs=0.0005)


def test_falls_that_follow_each_other_are_one_dip() -> None:
    sizes = doubling(KIB, 64 * KIB)
    rates = np.array([1, 2, 2, 1.5, 1, 1.5, 1.6]) * 1e9
    (dip,) = fit(curve(sizes, (np.array(sizes) / rates).tolist())).dips
    assert (dip.from_bytes, dip.to_bytes) == (4 * KIB, 16 * KIB)
    assert dip.fall == pytest.approx(0.5)


def test_a_fall_that_launches_disagree_on_is_no_dip() -> None:
    sizes = doubling(KIB, 8 * KIB)
    steady = np.array(sizes) / 1e9
    noisy = [steady * [1, 1, 1.5, 1], steady * [1, 1.2, 1, 1], steady * [1, 0.9, 1, 1]]
    assert fit(curve(sizes, [its.tolist() for its in noisy])).dips == ()


def test_alpha_is_never_negative() -> None:
    sizes = doubling(KIB, MIB)
    growing = [1e-9 * size * (1 + size / MIB) for size in sizes]  # its straight line would start below 0
    for breaks in (0, 1):
        assert all(one.alpha_s >= 0 and one.per_byte_s > 0 for one in fit(curve(sizes, growing), breaks).segments)


def test_a_time_that_does_not_grow_has_no_bandwidth() -> None:
    found = fit(curve(doubling(8, 512), [2e-6, 2e-6, 1.9e-6, 1.9e-6, 1.8e-6, 1.8e-6, 1.8e-6]), breaks=0)
    assert [one.value for one in estimates(found)[0][1:]] == [None, None]


@pytest.mark.parametrize(("sizes", "seed"), [(doubling(64, 16 * MIB), 1), (doubling(KIB, MIB), 2)])
def test_no_breakpoint_where_none_was_planted(sizes: list[int], seed: int) -> None:
    counts = [
        len(fit(made_up(5e-6, 1e10, sizes, of_row=0.03, seed=seed * 100 + number)).segments) for number in range(15)
    ]
    assert counts.count(1) >= 13


def planted(breaks: tuple[int, ...], seed: int) -> Curve:
    sizes = np.array(doubling(64, 16 * MIB), dtype=np.float64)
    factors = np.ones(len(sizes))
    for place in breaks:
        factors[place:] *= 1.8
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.02, len(sizes)))
    return curve(sizes.tolist(), ((2e-6 + sizes / 5e9) * factors * noise).tolist())


@pytest.mark.parametrize("breaks", [(8,), (5, 12)])
def test_breakpoints_are_found_where_they_were_planted(breaks: tuple[int, ...]) -> None:
    found = [tuple(one.first for one in fit(planted(breaks, seed)).segments[1:]) for seed in range(5)]
    assert found.count(breaks) >= 4


def test_each_segment_has_three_sizes() -> None:
    for breaks in (1, 2):
        its = segmented(data_a().sizes, data_a().times, breaks)
        assert all(one.last - one.first >= 2 for one in its)
    with pytest.raises(ValueError, match="got 5 sizes"):
        segmented(data_a().sizes[:5], data_a().times[:5], 1)


def test_between_two_segments_the_time_goes_from_one_to_the_other() -> None:
    sizes, times = data_a().sizes, data_a().times
    its = segmented(sizes, times, 1)
    low, middle, high = line(its, sizes, np.array([4, np.sqrt(32), 8]) * MIB)
    left = its[0].alpha_s + its[0].per_byte_s * np.sqrt(32) * MIB
    right = its[1].alpha_s + its[1].per_byte_s * np.sqrt(32) * MIB
    assert middle == pytest.approx(np.sqrt(left * right))
    assert low == pytest.approx(its[0].alpha_s + its[0].per_byte_s * 4 * MIB)
    assert high == pytest.approx(its[1].alpha_s + its[1].per_byte_s * 8 * MIB)


def test_what_is_held_out_is_not_used() -> None:
    sizes = doubling(KIB, MIB)
    times = [1e-6 + size / 1e9 for size in sizes]
    times[5] *= 3
    found = fit(curve(sizes, times), breaks=0)
    assert found.held_out is not None
    assert found.held_out[5] == pytest.approx(np.log(1 / 3), abs=0.001)
    assert found.carried is not None
    assert found.carried[5] == pytest.approx(np.log(1 / 3), abs=0.001)
    assert np.abs(np.delete(found.carried, 5)).max() > 0.1  # beside it the forecast is carried by it


def test_a_forecast_ahead_knows_only_smaller_sizes() -> None:
    sizes = doubling(KIB, MIB)
    times = np.array([1e-6 + size / 1e9 for size in sizes])
    times[-1] *= 2
    found = fit(curve(sizes, times.tolist()), breaks=0)
    to_last = [one for one in found.ahead if one.error < -0.1]
    assert len(to_last) == len(sizes) - 3
    assert [one.octaves for one in to_last] == [float(number) for number in range(1, len(sizes) - 2)]
    assert all(one.error == pytest.approx(-np.log(2), abs=1e-6) for one in to_last)
    assert found.ahead[0].byte_share > 0.99


def test_a_size_that_a_launch_lacks_is_left_out_of_that_launch() -> None:
    whole = made_up(2e-6, 5e9, doubling(KIB, MIB), launches=4, of_launch=0.1, seed=3)
    holed = whole.log_times.copy()
    holed[1, 4] = np.nan
    its = Curve(2, 1, 2, whole.sizes, holed)
    found = fit(its)
    assert np.isfinite(found.curve.times).all()
    assert all(number.value is not None and number.low is not None for number in estimates(found)[0])


def test_one_launch_has_no_interval() -> None:
    for number in estimates(fit(made_up(2e-6, 5e9, doubling(KIB, MIB))))[0]:
        assert number.value is not None
        assert number == Estimate(number.value)


@pytest.mark.parametrize("launches", [3, 5])
def test_intervals_hold_the_truth_as_often_as_they_say(launches: int) -> None:
    sizes = doubling(256, 256 * KIB)
    trials, held = 150, [0, 0]
    for seed in range(trials):
        its = made_up(4e-6, 4e9, sizes, launches=launches, of_launch=0.15, of_row=0.01, seed=seed)
        drawn = replicates(its.log_times)[::4]  # fifty are enough for a standard error
        bare = module.Fit(its, segmented(its.sizes, its.times, 0), its.sizes, None, None, (), drawn, (), ())
        alpha, bandwidth, _ = estimates(bare)[0]
        for place, (truth, number) in enumerate([(4e-6, alpha), (4e9, bandwidth)]):
            assert number.low is not None
            assert number.high is not None
            held[place] += number.low <= truth <= number.high
    # 95 % of 150 are 142; a binomial count is below 135 or is 150 once in a hundred times
    assert all(135 <= count < 150 for count in held)


def test_replicates_keep_the_breakpoints() -> None:
    its = made_up(2e-6, 5e9, doubling(KIB, MIB), launches=3, of_launch=0.1, seed=5)
    found = fit(its, breaks=1)
    assert found.replicates.std(axis=0).min() > 0.01
    for row in found.replicates[:5]:
        again = refitted(found, row)
        assert [(one.first, one.last) for one in again] == [(one.first, one.last) for one in found.segments]


def test_a_column_of_zeros_gets_nothing() -> None:
    assert relative([np.zeros(3), np.ones(3)], np.full(3, 2.0)).tolist() == pytest.approx([0.0, 2.0])


def test_without_scipy_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return original(name, *rest, **more)

    module.solve.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(CannotRun) as caught:
        fit(data_a())
    assert str(caught.value) == "forecast: scipy: got none, expected it to fit with; pip install 'collbench[forecast]'"
