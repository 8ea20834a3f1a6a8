"""Forecasts: what they come to, what they refuse, and how often their intervals hold what is then measured."""

import math
import re

import numpy as np
import pytest

from collbench.errors import UsageError
from collbench.readers.bootstrap import student
from collbench.readers.fit import root_mean_square
from collbench.readers.fit_rows import Curve, curve
from collbench.readers.fitted import Fitted, fit_family
from collbench.readers.forecast import forecast
from fitted_curves import ALPHA, BANDWIDTH, KIB, MIB, SIZES, doubling, family, made_up, ring, ring_s, width


@pytest.fixture(scope="module")
def over_ranks() -> Fitted:
    return fit_family(family(*(ring(ranks) for ranks in (2, 4, 8))))


def test_a_measured_size_is_what_was_measured(over_ranks: Fitted) -> None:
    one = forecast(over_ranks, 4 * KIB, 4)
    its = over_ranks.fits[1].curve
    assert one.time_s == pytest.approx(its.times[2])
    assert (one.law, one.extrapolated, one.marks) == ("", False, ())
    scatter = np.exp(np.std(its.log_times[:, 2], ddof=1))
    assert scatter < width(one) < 1.5


def test_between_sizes_it_goes_through_the_measured_ones() -> None:
    its = fit_family(family(made_up(ALPHA, BANDWIDTH, SIZES)))
    one = forecast(its, 5000, 2)
    assert one.time_s == pytest.approx(ALPHA + 5000 / BANDWIDTH, rel=1e-6)
    few = "from one launch: another is taken to be within a factor of 2 of that, which is an assumption"
    assert one.marks == (few,)
    assert width(one) == pytest.approx(4, rel=0.01)


def test_between_sizes_it_is_not_doubted_for_what_the_ends_do() -> None:
    times = [ALPHA + size / BANDWIDTH for size in SIZES]
    times[-1] *= 3
    its = fit_family(family(curve(SIZES, [times] * 3)))
    assert width(forecast(its, 3 * KIB, 2)) < 1.1
    held_out = its.fits[0].carried
    assert held_out is not None
    half = student(5) * root_mean_square(held_out[-6:-1])
    assert width(forecast(its, 700 * KIB, 2)) == pytest.approx(math.exp(2 * half))


def test_between_numbers_of_ranks_it_goes_by_the_law(over_ranks: Fitted) -> None:
    one = forecast(over_ranks, 100_000, 6)
    assert one.law == "ring"
    assert one.time_s == pytest.approx(ring_s(100_000, 6), rel=0.08)
    assert width(one) < 2


@pytest.mark.parametrize(
    ("size", "ranks", "hosts", "got"),
    [
        (16 * MIB, 4, None, "size: got 16 MiB, expected 1 KiB to 1 MiB"),
        (8, 4, None, "size: got 8 B, expected 1 KiB to 1 MiB"),
        (MIB, 16, None, "ranks: got 16, expected 2, 4 or 8"),
    ],
)
def test_beyond_what_was_measured_it_is_refused(
    over_ranks: Fitted, size: int, ranks: int, hosts: int | None, got: str
) -> None:
    with pytest.raises(UsageError) as caught:
        forecast(over_ranks, size, ranks, hosts)
    assert str(caught.value) == (
        f"forecast: all_reduce: {got} as measured; measure it, or allow --extrapolate and a wider interval"
    )
    one = forecast(over_ranks, size, ranks, hosts, extrapolate=True)
    assert one.extrapolated
    assert one.marks[0] == "extrapolated: " + got.replace(": got", "").replace(", expected", " beyond")


def test_hosts_without_a_way_between_them_are_refused_in_any_case(over_ranks: Fitted) -> None:
    with pytest.raises(UsageError, match=re.escape("got 2 hosts, expected 1 as measured: nothing is known of the way")):
        forecast(over_ranks, MIB, 8, 2, extrapolate=True)


def test_more_hosts_than_measured_are_an_extrapolation() -> None:
    curves = [curve(SIZES, [hosts * (1e-5 + size / 1e9) for size in SIZES], 2 * hosts, hosts) for hosts in (1, 2)]
    its = fit_family(family(*curves))
    with pytest.raises(UsageError, match="ranks: got 8, expected 2 or 4 as measured"):
        forecast(its, MIB, 8, 4)
    with pytest.raises(UsageError, match="hosts: got 4, expected 1 or 2 as measured"):
        forecast(its, MIB, 4, 4)


def test_a_collective_without_a_law_stays_where_it_was_measured() -> None:
    its = fit_family(family(ring(2), collective="bisection"))
    assert forecast(its, MIB, 2).law == ""
    with pytest.raises(UsageError, match="no law over ranks tells of others"):
        forecast(its, MIB, 4, extrapolate=True)


@pytest.mark.parametrize(
    ("size", "ranks", "said"),
    [(0, 2, "size: got 0 B, expected at least 1 B"), (MIB, 1, "ranks: got 1, expected 2, 4 or 8 as measured")],
)
def test_nothing_and_nobody_are_refused(over_ranks: Fitted, size: int, ranks: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        forecast(over_ranks, size, ranks, extrapolate=True)


def test_one_rank_is_a_curve_and_tells_nothing_of_others() -> None:
    alone = made_up(1e-7, 1e10, SIZES, ranks=1)
    its = fit_family(family(alone, ring(2), ring(4)))
    assert forecast(its, MIB, 1).time_s == pytest.approx(1e-7 + MIB / 1e10, rel=1e-6)
    without = fit_family(family(ring(2), ring(4)))
    assert forecast(its, MIB, 3).time_s == pytest.approx(forecast(without, MIB, 3).time_s)


def test_what_is_rounded_to_the_ranks_is_still_measured() -> None:
    odd = [size // 12 * 12 for size in SIZES]
    its = fit_family(family(made_up(ALPHA, BANDWIDTH, odd, ranks=3, launches=2, of_launch=0.01)))
    one = forecast(its, MIB, 3)
    assert not one.extrapolated
    assert width(one) < 1.5


def test_a_size_that_the_curves_beside_do_not_have_is_beyond() -> None:
    few = made_up(ALPHA, BANDWIDTH, doubling(KIB, 64 * KIB), ranks=2)
    its = fit_family(family(few, ring(4)))
    with pytest.raises(UsageError, match="size: got 1 MiB, expected 1 KiB to 64 KiB as measured"):
        forecast(its, MIB, 3)


def test_hosts_that_the_others_lack_are_not_held_out() -> None:
    curves = [curve(SIZES, [hosts**2 * (1e-5 + size / 1e9) for size in SIZES], 4 * hosts, hosts) for hosts in (1, 2, 4)]
    found = fit_family(family(*curves)).laws[0]
    assert [count for count, _, _ in found.held_out] == [4, 8, 16]
    assert [octaves for octaves, _, _ in found.ahead] == [1.0]  # from 8 to 16; from one host to two nothing is known


def test_a_measured_size_is_as_unsure_as_its_own_launches_are() -> None:
    """What the fit is off by, and what other sizes scatter by, have no part in it."""
    times = np.array([[(1e-6 + size / 1e9) * (3 if place % 2 else 1) for place, size in enumerate(SIZES)]] * 4)
    times *= np.exp(np.outer([-1, 1, -1, 1], [0.02 if size == MIB else 0.5 for size in SIZES]))
    one = forecast(fit_family(family(curve(SIZES, times.tolist()))), MIB, 2)
    spread = 0.02 * math.sqrt(4 / 3)
    assert one.time_s == pytest.approx(1e-6 + MIB / 1e9)
    assert width(one) == pytest.approx(math.exp(2 * student(3) * spread * math.sqrt(1 + 1 / 4)))
    assert one.marks == ()


@pytest.mark.parametrize(("factors", "few"), [((1.0,), "one launch"), ((0.9, 1.2), "2 launches")])
def test_of_few_launches_another_is_within_twice(factors: tuple[float, ...], few: str) -> None:
    truth = [1e-6 + size / 1e9 for size in SIZES]
    its = fit_family(family(curve(SIZES, [[factor * time for time in truth] for factor in factors])))
    one = forecast(its, MIB, 2)
    ends = [(one.low_s or 0) / truth[-1], (one.high_s or 0) / truth[-1]]
    assert ends == pytest.approx([min(factors) / 2, max(factors) * 2])
    assert one.marks == (f"from {few}: another is taken to be within a factor of 2 of that, which is an assumption",)


def test_between_sizes_of_two_launches_it_is_within_twice_of_those_beside_it() -> None:
    its = fit_family(family(curve(SIZES, [[factor * (1e-6 + size / 1e9) for size in SIZES] for factor in (0.9, 1.2)])))
    one, (low, high) = forecast(its, 768 * KIB, 2), (1e-6 + size / 1e9 for size in SIZES[-2:])
    assert (one.low_s or 0) >= 0.999 * 0.9 * low / 2
    assert (one.high_s or 0) <= 1.001 * 1.2 * high * 2


def test_sizes_of_different_launches_are_of_one_launch_each() -> None:
    table = np.log(ring(2).times) + np.zeros((2, 1))
    table[0, :6], table[1, 6:] = np.nan, np.nan
    its = fit_family(family(Curve(2, 1, 2, np.array(SIZES, dtype=np.float64), table)))
    assert any(mark.startswith("from one launch: another") for mark in forecast(its, MIB, 2).marks)


@pytest.mark.parametrize("having", [1, 2, 3])
@pytest.mark.parametrize("asked", [700 * KIB, 48 * KIB, 2 * MIB])
def test_sizes_of_few_launches_are_as_unsure_as_those_are(having: int, asked: int) -> None:
    """Five launches up to 32 KiB, few of them at larger sizes: between these, and from them on, it is not surer."""
    table = np.array(made_up(ALPHA, BANDWIDTH, SIZES, launches=5, of_launch=0.2, seed=1).log_times)
    table[having:, 6:] = np.nan
    its = fit_family(family(Curve(2, 1, 2, np.array(SIZES, dtype=np.float64), table)))
    one, at = (forecast(its, size, 2, extrapolate=True) for size in (asked, MIB))
    assert width(one) > 0.9 * width(at)
    if having < 3 and asked < MIB:
        few = "one launch" if having == 1 else f"{having} launches"
        assert any(mark.startswith(f"from {few}: another") for mark in one.marks)


def test_sizes_of_all_launches_stay_as_sure_beside_those_of_few() -> None:
    table = np.array(made_up(ALPHA, BANDWIDTH, SIZES, launches=5, of_launch=0.05, seed=1).log_times)
    table[2:, 6:] = np.nan
    its = fit_family(family(Curve(2, 1, 2, np.array(SIZES, dtype=np.float64), table)))
    assert width(forecast(its, 24 * KIB, 2)) < 1.4
    assert forecast(its, 24 * KIB, 2).marks == ()


def test_farther_is_wider() -> None:
    its = fit_family(family(ring(2, of_row=0.03, seed=3)))
    widths = [width(forecast(its, MIB << octaves, 2, extrapolate=True)) for octaves in (1, 4, 12, 16)]
    assert widths == sorted(widths)


def test_a_bandwidth_that_drifts_is_expected_to_go_on() -> None:
    steady, drifting = (
        fit_family(family(curve(SIZES, [[(1e-7 + size / 1e10) * size**drift for size in SIZES]] * 3)))
        for drift in (0, 0.1)
    )
    one = forecast(drifting, 16 * MIB, 2, extrapolate=True)
    assert one.high_s is not None
    assert one.high_s > (1e-7 + 16 * MIB / 1e10) * (16 * MIB) ** 0.1
    still = forecast(steady, 16 * MIB, 2, extrapolate=True)
    assert width(one) > 1.3 * width(still)
    assert width(still) == pytest.approx(math.exp(2 * 1.96 * 0.13 * math.sqrt(4)))  # no bandwidth is quite steady


def test_a_larger_size_takes_no_less() -> None:
    jumping = [(1e-6 + size / 1e9) * (3 if number % 2 else 1) for number, size in enumerate(SIZES)]
    its = fit_family(family(curve(SIZES, [jumping] * 3)))
    one = forecast(its, 2 * MIB, 2, extrapolate=True)
    assert one.low_s == pytest.approx(jumping[-1])


def test_a_far_larger_size_takes_no_less_either() -> None:
    """Start-ups alone, with the noise of launches: far out the bandwidth is anything, but no time falls."""
    sizes = doubling(8, KIB)
    for seed in range(10):
        its = fit_family(family(made_up(10e-6, 1e10, sizes, launches=5, of_launch=0.03, of_row=0.03, seed=seed)))
        if its.fits[0].segments[-1].per_byte_s:
            assert (forecast(its, 16 * MIB, 2, extrapolate=True).low_s or 0) > 7e-6


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("sizes", [(8, 64, KIB), (MIB,)])
def test_times_that_do_not_grow_tell_nothing_of_larger_sizes(sizes: tuple[int, ...], ranks: int) -> None:
    its = fit_family(family(curve(sizes, [[1e-5 for _ in sizes]] * 3)))
    alone = len(sizes) == 1
    said = "1 MiB as measured: one size tells" if alone else "at most 1 KiB as measured: the times up to there"
    for extrapolate in (False, True):
        with pytest.raises(UsageError, match=f"size: got 2 MiB, expected {said}"):
            forecast(its, 2 * MIB, ranks, extrapolate=extrapolate)


def test_one_size_tells_nothing_of_others_whichever_the_ranks() -> None:
    its = fit_family(family(*(curve([MIB], [[1e-4 * ranks]] * 3, ranks) for ranks in (2, 4))))
    for size, ranks in ((KIB, 2), (KIB, 3), (2 * MIB, 3)):
        with pytest.raises(UsageError, match="expected 1 MiB as measured: one size tells neither alpha nor B"):
            forecast(its, size, ranks, extrapolate=True)
    assert width(forecast(its, MIB, 3)) > 1


@pytest.mark.parametrize(("size", "least", "most"), [(2, 1, 4), (8, 4, 8 * math.exp(1.96 * 0.13)), (0.5, 0.25, 1)])
def test_of_too_few_sizes_the_interval_is_what_those_allow(size: float, least: float, most: float) -> None:
    """1 and 4 MiB at 1 GB/s, both launches alike: a size between them takes as long as one of them at the ends."""
    its = fit_family(family(curve([MIB, 4 * MIB], [[MIB / 1e9, 4 * MIB / 1e9]] * 2)))
    one = forecast(its, int(size * MIB), 2, extrapolate=True)
    assert ((one.low_s or 0) / MIB * 1e9, (one.high_s or 0) / MIB * 1e9) == pytest.approx((least, most))
    assert any(mark.startswith("too few sizes to say how far off the fit is") for mark in one.marks)
    rate = [MIB / 1e9, 3 * MIB / 1e9, 2 * MIB / 1e9]
    falls = forecast(fit_family(family(curve([MIB, 2 * MIB, 4 * MIB], [rate] * 2))), 3 * MIB, 2)
    assert (falls.low_s, falls.marks) == (None, ("too few sizes to say how far off it may be",))


def test_farther_in_ranks_is_wider(over_ranks: Fitted) -> None:
    widths = [width(forecast(over_ranks, MIB, ranks, extrapolate=True)) for ranks in (6, 16, 64)]
    assert widths == sorted(widths)
    assert widths[-1] > 1.1 * widths[0]


def test_one_number_of_ranks_has_the_laws_in_its_interval() -> None:
    its = fit_family(family(ring(2)))
    one = forecast(its, KIB, 16, extrapolate=True)
    assert any("which law over ranks holds was not tried" in mark for mark in one.marks)
    assert one.law == "not known"
    assert one.time_s == pytest.approx(
        4 * ring_s(KIB, 2), rel=0.15
    )  # three of five laws have log2(16) = 4 times the steps
    assert width(one) > 4
    assert one.low_s is not None
    assert one.high_s is not None
    assert one.low_s < ring_s(KIB, 16) < one.high_s


def test_laws_that_are_as_well_supported_are_said() -> None:
    small = doubling(8, 256)
    its = fit_family(
        family(*(made_up(ALPHA, BANDWIDTH, small, ranks=n, starts=steps) for n, steps in ((2, 1), (4, 2))))
    )
    marks = forecast(its, 64, 8, extrapolate=True).marks
    (said,) = [mark for mark in marks if mark.startswith("as well supported: ")]
    assert len({"tree", "recursive doubling", "Rabenseifner"} & set(said.partition(": ")[2].split(", "))) == 2


def test_ranks_beyond_cores_are_said() -> None:
    its = ring(2)
    over = Curve(2, 1, 2, its.sizes, its.log_times, oversubscribed=True)
    assert "measured in a launch of more ranks than cores" in forecast(fit_family(family(over)), MIB, 2).marks


def test_how_much_memory_was_measured_is_said() -> None:
    few = ring(2)
    its = fit_family(family(Curve(2, 1, 2, few.sizes, few.log_times, touched_bytes=4 * MIB)))
    said = "measured on 4 MiB of buffers, which a cache may hold: the upper end allows for its end ({} times the time)"
    near, far = (forecast(its, octaves * MIB, 2, extrapolate=True) for octaves in (2, 16))
    assert (said.format(2) in near.marks, said.format(4) in far.marks) == (True, True)
    assert near.high_s is not None
    assert far.high_s is not None
    assert near.high_s > 2 * near.time_s
    assert far.high_s > 4 * far.time_s
    assert not forecast(its, MIB, 2).marks
    from_memory = fit_family(family(Curve(2, 1, 2, few.sizes, few.log_times, touched_bytes=256 * MIB)))
    assert width(forecast(from_memory, 16 * MIB, 2, extrapolate=True)) < 3


@pytest.mark.parametrize("where", ["measured", "between", "beyond"])
def test_intervals_hold_the_next_launch_as_often_as_they_say(where: str) -> None:
    sizes = doubling(8 * KIB, 512 * KIB)
    asked = {"measured": 64 * KIB, "between": 90 * KIB, "beyond": 4 * MIB}[where]
    trials, held = 60, 0
    for seed in range(trials):
        its = made_up(ALPHA, BANDWIDTH, sizes, launches=4, of_launch=0.1, of_row=0.03, seed=seed)
        one = forecast(fit_family(family(its)), asked, 2, extrapolate=True)
        draw = np.random.default_rng(10_000 + seed)
        measured = (ALPHA + asked / BANDWIDTH) * math.exp(draw.normal(0, 0.1) + draw.normal(0, 0.03))
        assert one.low_s is not None
        assert one.high_s is not None
        held += one.low_s <= measured <= one.high_s
    assert held >= 53  # 95 % of 60 are 57; fewer than 53 once in a hundred times


def test_far_below_and_far_beyond_the_ends_are_still_bounded(over_ranks: Fitted) -> None:
    its = fit_family(family(made_up(ALPHA, BANDWIDTH, doubling(MIB, 64 * MIB), launches=3, of_row=0.05)))
    below, end = forecast(its, 8, 2, extrapolate=True), forecast(its, MIB, 2)
    assert None not in (below.low_s, below.high_s, end.low_s, end.high_s)
    assert (end.low_s or 0) * 8 / MIB / 4.001 <= (below.low_s or 0)
    assert (below.high_s or 0) <= 1.001 * (end.high_s or 0)
    far, most = forecast(over_ranks, MIB, 1_000_000, extrapolate=True), forecast(over_ranks, MIB, 8)
    assert (far.low_s or 0) > 0.5 * most.time_s
    assert (far.high_s or 0) < 2 * 2 * most.time_s * 1_000_000 / 8
