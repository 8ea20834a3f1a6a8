"""What lies around a question: ranks, hosts and sizes that were measured together, and what is a bound."""

import math
import re

import numpy as np
import pytest

from collbench.errors import UsageError
from collbench.readers.bootstrap import student
from collbench.readers.fit_rows import curve
from collbench.readers.fitted import Fitted, fit_family
from collbench.readers.forecast import forecast
from collbench.readers.forecast_range import distance, no_slower
from collbench.readers.laws import Law, fit_law, whole_steps
from collbench.readers.over_ranks import Distance, rank_error, support
from fitted_curves import ALPHA, BANDWIDTH, KIB, MIB, SIZES, doubling, family, law, made_up, ring, ring_s, width

HIERARCHY, ACROSS = (law("all_reduce", name) for name in ("hierarchical", "ring across hosts"))


def tiered_s(size: int, per_host: int, hosts: int, by: Law = HIERARCHY) -> float:
    """3 us and 100 GB/s on a host, 20 us and 3 GB/s between hosts."""
    (inner, moved), (outer, crossed) = by.tiers(per_host * hosts, hosts, per_host)
    return inner * 3e-6 + moved * size / 1e11 + outer * 2e-5 + crossed * size / 3e9


def tiered(*layouts: tuple[int, int], by: Law = HIERARCHY, collective: str = "all_reduce") -> Fitted:
    """Curves of ranks per host on hosts, four launches each, 2 % about."""
    curves = []
    for per_host, hosts in layouts:
        noise = np.random.default_rng(10 * per_host + hosts).normal(0, 0.02, (4, len(SIZES)))
        times = np.array([tiered_s(size, per_host, hosts, by) for size in SIZES]) * np.exp(noise)
        curves.append(curve(SIZES, times.tolist(), per_host * hosts, hosts))
    return fit_family(family(*curves, collective=collective))


CORNER = ((2, 1), (4, 1), (8, 1), (1, 2))
"""Several ranks on one host, and several hosts, but never both."""


def test_ranks_and_hosts_that_were_never_measured_together_are_beyond() -> None:
    its = tiered(*CORNER)
    with pytest.raises(UsageError, match="ranks per host: got 4 on 2 hosts, expected 1 as measured; measure it, or"):
        forecast(its, MIB, 8, 2)
    one = forecast(its, MIB, 8, 2, extrapolate=True)
    assert one.extrapolated
    assert one.marks[0] == "extrapolated: ranks per host 4 on 2 hosts beyond 1"
    assert one.law == "hierarchical"  # no flat law has the one curve between hosts
    errors = {law.fitted.law.name: law.error or 0.0 for law in its.laws}
    assert errors["ring"] > 0.3 > errors["hierarchical"]
    assert one.low_s is not None
    assert one.high_s is not None
    assert one.low_s < tiered_s(MIB, 4, 2) < one.high_s


def test_sizes_that_the_hosts_asked_for_lack_are_beyond() -> None:
    """What a law is carried by counts: 8 ranks on 2 hosts up to 1 KiB; 16 ranks on 4 hosts have all sizes."""
    few, all_sizes = SIZES[:4], doubling(KIB, 64 * MIB)
    curves = [
        curve(sizes, [[tiered_s(size, ranks // hosts, hosts) for size in sizes]] * 3, ranks, hosts)
        for ranks, hosts, sizes in ((8, 2, few), (16, 4, all_sizes), (32, 4, all_sizes))
    ]
    one = forecast(fit_family(family(*curves)), 64 * MIB, 16, 2, extrapolate=True)
    assert "extrapolated: size 64 MiB beyond 1 KiB to 8 KiB" in one.marks
    assert (one.low_s or 0) < tiered_s(64 * MIB, 8, 2) < (one.high_s or 0)


def test_a_larger_size_takes_no_less_on_other_ranks_and_hosts_either() -> None:
    """Start-ups alone, with noise, and no layout that bounds the one asked for."""
    sizes, layouts = doubling(8, 4 * KIB), ((4, 2), (4, 4), (8, 3), (8, 4))
    noise = np.exp(np.random.default_rng(15).normal(0, 0.05, (5, len(layouts), len(sizes))))
    curves = [
        curve(sizes, np.array([tiered_s(size, *where) for size in sizes]) * noise[:, place], math.prod(where), where[1])
        for place, where in enumerate(layouts)
    ]
    its = fit_family(family(*curves))
    end, far = (forecast(its, size, 16, 2, extrapolate=True) for size in (4 * KIB, 16 * MIB))
    assert (far.low_s or 0) >= (end.low_s or 0) > 0
    assert (far.high_s or 0) <= 4096 * math.exp(1.96 * 0.13 * math.sqrt(12)) * (end.high_s or 0) * 1.001


@pytest.mark.parametrize("by", [HIERARCHY, ACROSS], ids=lambda one: one.name)
def test_a_hierarchy_and_one_ring_across_hosts_are_both_in_the_interval(by: Law) -> None:
    """One layout between hosts fits both: with twice the ranks on each, the hierarchy sends half across, the ring as
    much."""
    its = tiered((2, 1), (4, 1), (8, 1), (4, 2), by=by)
    one = forecast(its, MIB, 16, 2, extrapolate=True)
    assert (one.low_s or 0) < tiered_s(MIB, 8, 2, by) < (one.high_s or 0)
    assert {one.law} | set("".join(one.marks).partition("as well supported: ")[2].split(", ")) >= {
        HIERARCHY.name,
        ACROSS.name,
    }


def test_one_ring_across_hosts_is_found() -> None:
    its = tiered((4, 1), (8, 1), (4, 2), (8, 2), (8, 4), by=ACROSS)
    assert its.laws[0].fitted.law.name == ACROSS.name
    one = forecast(its, MIB, 16, 4, extrapolate=True)
    assert one.time_s == pytest.approx(tiered_s(MIB, 4, 4, ACROSS), rel=0.1)


def test_ranks_that_do_not_spread_evenly_over_hosts_are_refused() -> None:
    its = tiered((4, 1), (2, 2), (4, 2))
    said = "ranks: got 7 ranks on 2 hosts, expected as many on each host; ask about 6 or 8 ranks, or other --hosts"
    for hosts in (2, None):
        with pytest.raises(UsageError, match=said):
            forecast(its, MIB, 7, hosts, extrapolate=True)
    assert forecast(its, MIB, 6, 2).time_s > 0
    # Unless they were measured so.
    uneven = family(*(curve(SIZES, ring(ranks).times.tolist(), ranks, 2) for ranks in (2, 3)))
    assert forecast(fit_family(uneven), MIB, 3, 2).time_s == pytest.approx(ring_s(MIB, 3), rel=0.2)


def test_more_ranks_on_a_host_than_measured_are_beyond() -> None:
    its = tiered((4, 1), (4, 2), (4, 4))
    for ranks, hosts, got in ((16, 1, "16 on 1 host"), (16, 2, "8 on 2 hosts"), (8, 4, "2 on 4 hosts")):
        with pytest.raises(UsageError, match=f"ranks per host: got {got}, expected 4 as measured"):
            forecast(its, MIB, ranks, hosts)
    assert not forecast(its, MIB, 12, 3).extrapolated
    near, far = (forecast(its, MIB, 4 * n, 1, extrapolate=True) for n in (2, 8))
    assert width(far) > width(near)


def test_by_a_law_it_is_no_surer_than_the_law_fits() -> None:
    """The curves beside it hide from each other what the law misses: all are off it alike."""
    off = [3.0 if number % 2 else 1.0 for number in range(len(SIZES))]
    curves = [
        curve(SIZES, [factor * ring_s(size, ranks) for size, factor in zip(SIZES, off, strict=True)], ranks)
        for ranks in (2, 4, 8)
    ]
    its = fit_family(family(*curves))
    best = its.laws[0]
    one = forecast(its, MIB, 6)
    assert best.error is not None
    assert best.error < 0.1 < 0.4 < best.misfit
    assert (one.high_s or 0) >= 0.999 * one.time_s * math.exp(best.misfit)


def test_what_one_host_takes_is_no_bound_between_hosts() -> None:
    one = forecast(tiered(*CORNER), 16 * MIB, 16, 2, extrapolate=True)
    assert (one.high_s or 0) > 1.05 * one.time_s
    assert (one.low_s or 0) < tiered_s(16 * MIB, 8, 2) < (one.high_s or 0)


def test_ranks_are_on_as_many_hosts_as_were_measured_for_them() -> None:
    its = tiered((4, 1), (4, 2), (4, 4))
    assert [forecast(its, MIB, ranks, extrapolate=True).hosts for ranks in (4, 8, 12, 16, 32)] == [1, 2, 3, 4, 8]
    one = forecast(its, 16 * MIB, 32, extrapolate=True)
    assert one.time_s == pytest.approx(tiered_s(16 * MIB, 4, 8), rel=0.1)
    with pytest.raises(UsageError, match="ranks: got 32, expected 4, 8 or 16 as measured"):
        forecast(its, MIB, 32)
    on_one = fit_family(family(*(ring(ranks) for ranks in (2, 4))))
    assert forecast(on_one, MIB, 16, extrapolate=True).hosts == 1


@pytest.mark.parametrize(
    ("ranks", "hosts", "bound"),
    [(12, 1, (8, 1)), (6, 1, (4, 1)), (32, 8, (16, 4)), (32, 4, (8, 1)), (9, 3, None), (10, 3, (8, 2))],
)
def test_fewer_ranks_are_a_bound_on_one_host_or_with_as_many_on_each(
    ranks: int, hosts: int, bound: tuple[int, int] | None
) -> None:
    found = no_slower(tiered((4, 1), (8, 1), (4, 2), (4, 4)), ranks, hosts)
    assert (None if found is None else (found.curve.ranks, found.curve.hosts)) == bound


@pytest.mark.parametrize(("ranks", "hosts"), [(16, 4), (24, 4), (16, 2)])
def test_fewer_ranks_on_a_host_are_no_bound(ranks: int, hosts: int) -> None:
    """The part of a rank shrinks when a host has more of them, and with it what crosses: so were 32 ranks measured."""
    its = tiered((2, 1), (8, 1), (2, 2), (2, 4), (8, 4))
    one = forecast(its, MIB, ranks, hosts, extrapolate=True)
    truth = tiered_s(MIB, ranks // hosts, hosts)
    assert one.time_s == pytest.approx(truth, rel=0.1)
    assert (one.low_s or 0) < truth < (one.high_s or 0)
    assert not any("raised" in mark for mark in one.marks)


def test_hosts_without_a_rank_are_refused() -> None:
    with pytest.raises(UsageError, match="hosts: got 8 for 4 ranks, expected a rank on each"):
        forecast(tiered((4, 1), (4, 2)), MIB, 4, 8, extrapolate=True)


GAP = [KIB, 2 * KIB, 4 * KIB, 8 * KIB, 512 * MIB, 1024 * MIB]


def test_a_gap_between_sizes_is_not_measured_around() -> None:
    """Another start-up and bandwidth are somewhere in the gap."""
    truth = {size: 5e-6 + size / 1e10 if size < MIB else 5e-3 + size / 2e9 for size in [*GAP, 4 * MIB]}
    its = fit_family(family(curve(GAP, [truth[size] for size in GAP])))
    said = "size: got 4 MiB, expected up to 4 times 8 KiB or from 1/4 of 512 MiB on as measured"
    with pytest.raises(UsageError, match=said):
        forecast(its, 4 * MIB, 2)
    one = forecast(its, 4 * MIB, 2, extrapolate=True)
    assert one.marks[0] == "extrapolated: size 4 MiB in the gap between 8 KiB and 512 MiB"
    assert one.extrapolated
    assert one.low_s is not None
    assert one.high_s is not None
    assert one.low_s < truth[4 * MIB] < one.high_s
    assert not forecast(its, 32 * KIB, 2).extrapolated


def test_a_gap_between_numbers_of_ranks_is_not_measured_around() -> None:
    its = fit_family(family(*(ring(ranks) for ranks in (2, 16))))
    said = "ranks: got 8, expected 2 or 16, or two around it up to 4 times apart, as measured; measure it, or"
    with pytest.raises(UsageError, match=said):
        forecast(its, MIB, 8)
    one = forecast(its, MIB, 8, extrapolate=True)
    assert one.extrapolated
    assert one.marks[0] == "extrapolated: ranks 8 in the gap between 2 and 16"
    assert not forecast(its, MIB, 16).extrapolated
    assert not forecast(fit_family(family(*(ring(ranks) for ranks in (2, 4, 16)))), MIB, 8).extrapolated


@pytest.mark.parametrize(
    ("layouts", "ranks", "hosts", "mark"),
    [
        (((4, 1), (8, 1), (16, 1), (4, 8)), 16, 4, "hosts 4 in the gap between 1 and 8"),
        (((1, 2), (8, 2), (4, 1), (8, 1)), 8, 2, "ranks per host 4 on 2 hosts in the gap between 1 and 8"),
    ],
)
def test_a_gap_between_hosts_or_ranks_on_them_is_not_measured_around(
    layouts: tuple[tuple[int, int], ...], ranks: int, hosts: int, mark: str
) -> None:
    its = tiered(*layouts)
    with pytest.raises(UsageError, match=re.escape(mark.partition(" in the")[0].replace(" 4", ": got 4", 1))):
        forecast(its, MIB, ranks, hosts)
    assert f"extrapolated: {mark}" in forecast(its, MIB, ranks, hosts, extrapolate=True).marks


def test_in_a_wide_gap_between_ranks_it_is_wider() -> None:
    its = fit_family(family(*(ring(ranks, of_row=0.1) for ranks in (2, 4, 8, 16, 256))))
    near, far = (width(forecast(its, MIB, ranks, extrapolate=True)) for ranks in (6, 64))
    assert far > 1.2 * near


def test_below_the_least_ranks_and_hosts_it_is_as_unsure_as_beyond_the_most() -> None:
    its = tiered((4, 2), (4, 3), (4, 4), (4, 8))
    with pytest.raises(UsageError, match="ranks: got 4, expected 8, 12, 16 or 32 as measured"):
        forecast(its, MIB, 4, 1)
    with pytest.raises(UsageError, match="hosts: got 1, expected 2, 3, 4 or 8 as measured"):
        forecast(its, MIB, 8, 1)
    below = forecast(its, MIB, 4, 1, extrapolate=True)
    assert below.marks[:2] == (
        "extrapolated: ranks 4 beyond 8, 12, 16 or 32",
        "extrapolated: hosts 1 beyond 2, 3, 4 or 8",
    )
    assert width(below) > 1.05 * width(forecast(its, MIB, 24, 6))
    assert distance(its, 4, 1) == Distance(0.0, 1.0, 1.0)
    assert distance(its, 64, 16) == Distance(1.0, 0.0, 1.0)


def test_fewer_ranks_are_tried_from_more() -> None:
    """A law that foretells more ranks from fewer is not therefore right the other way."""
    curves = [curve(SIZES, [ring_s(size, n) * (2 if n == 4 else 1) for size in SIZES], n) for n in (4, 8, 16, 32)]
    found = support(fit_law(law("all_reduce", "ring"), curves), fit_family(family(*curves)).fits)
    assert [octaves for octaves, _, _ in found.behind] == [1, 1, 1]
    ahead, behind = ([float(np.abs(errors).max()) for _, _, errors in its] for its in (found.ahead, found.behind))
    assert behind == pytest.approx([math.log(2), 0, 0], abs=1e-6)
    assert sum(ahead) > 0.8
    below, above = (rank_error(found, MIB, Distance(*away, 1.0)) for away in ((0.0, 1.0), (1.0, 0.0)))
    assert below == pytest.approx(student(3) * math.log(2) / math.sqrt(3))
    assert above != pytest.approx(below)


def test_one_rank_does_not_make_two_measured_around() -> None:
    alone = made_up(1e-7, 1e10, SIZES, ranks=1)
    its = fit_family(family(alone, ring(4), ring(8), ring(16)))
    with pytest.raises(UsageError, match="ranks: got 2, expected 4, 8 or 16 as measured"):
        forecast(its, MIB, 2)
    assert not forecast(its, MIB, 1).extrapolated


def test_farther_from_a_measured_size_is_wider() -> None:
    cut = [size for size in doubling(KIB, 4096 * KIB) if not 16 * KIB < size < 256 * KIB]
    curve_of_one = made_up(ALPHA, BANDWIDTH, cut, of_row=0.05, seed=4)
    gapped = fit_family(family(curve(cut, [curve_of_one.times.tolist()] * 3)))
    held_out = gapped.fits[0].carried
    assert held_out is not None
    near, far = (math.log(width(forecast(gapped, size * KIB, 2))) for size in (24, 64))
    assert far > 1.5 * near


def test_between_sizes_it_takes_what_the_sizes_beside_it_allow() -> None:
    """Errors of the others make the interval wider than from one measured size to the next."""
    jumping = [(1e-6 + size / 1e9) * (1.4 if number % 3 == 0 else 1) for number, size in enumerate(SIZES)]
    its = fit_family(family(curve(SIZES, [jumping] * 3)))
    assert not its.fits[0].dips[-1].to_bytes > 512 * KIB
    one = forecast(its, 700 * KIB, 2)
    low, high = jumping[-2:]
    assert one.low_s == pytest.approx(low)
    assert one.high_s == pytest.approx(high)
    falling = [size for size in SIZES if size in (dip.to_bytes for dip in its.fits[0].dips)]
    dipped = forecast(its, falling[-1] * 3 // 4, 2)
    place = SIZES.index(falling[-1])
    assert (dipped.high_s or 0) > 1.01 * jumping[place]


def between_powers(name: str, n: int) -> tuple[float, float]:
    """Start-ups and bytes of what a library may do on n ranks, all alike on powers of two."""
    if name == "log2":
        return math.log2(n), math.log2(n)
    if name == "ceil":
        return whole_steps(n), whole_steps(n)
    its = ("Rabenseifner" if n.bit_count() == 1 else "ring") if name == "ring otherwise" else name
    return law("all_reduce", its).tiers(n, 1, n)[0]


@pytest.mark.parametrize(
    "name", ["log2", "ceil", "recursive doubling", "ring otherwise", "Rabenseifner", "ring", "tree"]
)
@pytest.mark.parametrize("ranks", [3, 6, 12])
def test_ranks_unlike_all_measured_have_every_way_of_taking_them_in(name: str, ranks: int) -> None:
    """2, 4 and 8 measured say nothing of how others are taken in."""
    curves = [
        made_up(ALPHA, BANDWIDTH, SIZES, launches=5, of_launch=0.03, of_row=0.02, seed=n, ranks=n, starts=a, moved=b)
        for n in (2, 4, 8)
        for a, b in (between_powers(name, n),)
    ]
    its = fit_family(family(*curves))
    starts, moved = between_powers(name, ranks)
    for size in (4 * KIB, 48 * KIB, MIB):
        one = forecast(its, size, ranks, extrapolate=True)
        assert (one.low_s or 0) < starts * ALPHA + moved * size / BANDWIDTH < (one.high_s or 0)
        said = f"how {ranks} ranks, no power of two, are taken in was not tried: the interval has the usual ways"
        assert said in one.marks
        assert not any("no power of two" in mark for mark in forecast(its, size, 16, extrapolate=True).marks)


def test_ranks_unlike_powers_that_were_measured_are_no_longer_doubted() -> None:
    its, tried = (fit_family(family(*(ring(ranks) for ranks in counts))) for counts in ((2, 4, 8), (2, 3, 4, 8)))
    assert width(forecast(tried, KIB, 6)) < width(forecast(its, KIB, 6))
    assert not forecast(tried, KIB, 6).marks


def test_on_hosts_the_next_power_of_two_is_of_hosts_and_of_ranks_on_each() -> None:
    its = tiered((4, 1), (4, 2), (4, 4))
    one, more = forecast(its, MIB, 12, 3), forecast(its, MIB, 16, 4)
    assert any("12 ranks, no power of two" in mark for mark in one.marks)
    assert (one.high_s or 0) > more.time_s


def test_a_gather_by_doubling_may_fold_ranks_in() -> None:
    doubled = law("all_gather", "recursive doubling")
    curves = [
        made_up(ALPHA, BANDWIDTH, SIZES, launches=3, ranks=n, starts=s, moved=m)
        for n in (2, 4, 8, 16)
        for s, m in doubled.tiers(n, 1, n)
    ]
    its = fit_family(family(*curves, collective="all_gather"))
    one = forecast(its, MIB, 6)
    assert one.law == "recursive doubling"
    assert (one.low_s or 0) < 4 * ALPHA + (3 / 4 + 7 / 6) * MIB / BANDWIDTH < (one.high_s or 0)
