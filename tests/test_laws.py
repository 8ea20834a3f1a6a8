"""Laws over numbers of ranks: their terms, published data, and made-up curves whose law is known."""

import math
from typing import Any

import numpy as np
import pytest

from collbench.collectives import names
from collbench.readers.fit_rows import Curve, curve
from collbench.readers.fitted import fit_family
from collbench.readers.laws import LAWS, crossover_bytes, fit_law, laws_of, misfit
from fitted_curves import DATA_B_US, KIB, MIB, doubling, family, law, made_up

SIZES = doubling(KIB, MIB)


def on(collective: str, name: str, ranks: int) -> tuple[Any, Any]:
    (tier,) = law(collective, name).tiers(ranks, 1, ranks)
    return tier


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_the_formulas_of_the_literature(n: int) -> None:
    steps, part = math.log2(n), (n - 1) / n
    assert on("all_reduce", "ring", n) == (2 * (n - 1), pytest.approx(2 * part))
    assert on("all_reduce", "tree", n) == (2 * steps, 2)
    assert on("all_reduce", "recursive doubling", n) == (steps, steps)
    assert on("all_reduce", "Rabenseifner", n) == (2 * steps, pytest.approx(2 * part))
    for collective in ("all_gather", "reduce_scatter"):
        assert on(collective, "ring", n) == (n - 1, pytest.approx(part))
    assert on("all_to_all", "pairwise", n) == (n - 1, pytest.approx(part))
    assert on("broadcast", "binomial tree", n) == (steps, steps)
    assert on("broadcast", "scatter and all_gather", n) == (steps + n - 1, pytest.approx(2 * part))


def test_ranks_beside_a_power_of_two_take_two_steps_more() -> None:
    assert on("all_reduce", "recursive doubling", 6) == (4, 4)
    assert on("all_reduce", "Rabenseifner", 6) == (6, pytest.approx(2 * 3 / 4 + 2))


def test_a_hierarchy_has_a_tier_of_its_own_between_hosts() -> None:
    inner, outer = law("all_reduce", "hierarchical").tiers(32, 4, 8)
    assert inner == pytest.approx((14, 2 * 7 / 8))
    assert outer == pytest.approx((6, 2 * 3 / 4 / 8))
    assert law("all_reduce", "hierarchical").tiers(8, 1, 8)[1] == (0.0, 0.0)


@pytest.mark.parametrize(("collective", "rounds"), [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)])
def test_one_ring_across_hosts_waits_for_the_links_between_them(collective: str, rounds: int) -> None:
    ring = law(collective, "ring across hosts")
    none, steps = (0.0, 0.0), (rounds * 31, rounds * 31 / 32)
    for hosts, expected in ((4, (none, steps)), (1, (steps, none))):
        for tier, its in zip(ring.tiers(32, hosts, 32 // hosts), expected, strict=True):
            assert tier == pytest.approx(its)


def test_a_law_is_tried_where_its_links_were_used() -> None:
    on_one, *others = (
        curve(SIZES, [hosts * (1e-5 + size / 1e9) for size in SIZES], 4 * hosts, hosts) for hosts in (1, 2, 4)
    )
    assert not law("all_reduce", "ring across hosts").knows(on_one, others)
    assert law("all_reduce", "ring across hosts").knows(others[1], [on_one, others[0]])
    assert law("all_reduce", "hierarchical").knows(on_one, others)
    for name in ("ring", "hierarchical", "ring across hosts"):
        assert not law("all_reduce", name).knows(others[0], [on_one])


def test_laws_are_of_collectives_that_exist() -> None:
    assert set(LAWS) <= set(names())
    for laws in LAWS.values():
        assert len({one.name for one in laws}) == len(laws)


def test_data_b_is_linear_in_the_steps_of_the_ring() -> None:
    curves = [curve([8], [time * 1e-6], ranks) for ranks, time in enumerate(DATA_B_US, 2)]
    found = fit_law(law("all_reduce", "ring"), curves)
    ((alpha, per_byte),) = found.tiers
    assert found.base_s == pytest.approx(5.56e-6, abs=0.005e-6)
    assert [alpha, per_byte] == pytest.approx([1.98e-6, 0.0], abs=0.005e-6)
    residuals = [abs(found.of(one)[0] - one.times[0]) for one in curves]
    assert max(residuals) == pytest.approx(0.61e-6, abs=0.005e-6)
    assert fit_family(family(*curves)).laws[0].fitted.law.name in ("ring", "linear")  # one size: the same steps


@pytest.mark.parametrize(("n", "alpha_us", "gbps", "mb"), [(8, 2, 230, 14.7), (16, 14, 25, 61.6)])
def test_ring_and_tree_cross(n: int, alpha_us: float, gbps: float, mb: float) -> None:
    alpha, bandwidth = alpha_us * 1e-6, gbps * 1e9
    at = crossover_bytes(n, alpha, bandwidth)
    assert at / 1e6 == pytest.approx(mb, abs=0.05)
    times = [
        starts * alpha + moved * at / bandwidth
        for starts, moved in (on("all_reduce", name, n) for name in ("ring", "tree"))
    ]
    assert times[0] == pytest.approx(times[1])


def by(collective: str, name: str, ranks: int, *, base_s: float = 0.0, seed: int = 0) -> Curve:
    starts, moved = on(collective, name, ranks)
    return made_up(
        3e-6, 8e9, SIZES, starts=starts, moved=moved, base_s=base_s, of_row=0.01, seed=seed + ranks, ranks=ranks
    )


@pytest.mark.parametrize(
    ("collective", "name"),
    [
        ("all_reduce", "ring"),
        ("all_reduce", "tree"),
        ("all_reduce", "recursive doubling"),
        ("all_reduce", "Rabenseifner"),
        ("all_gather", "ring"),
        ("all_gather", "recursive doubling"),
        ("reduce_scatter", "recursive halving"),
        ("all_to_all", "pairwise"),
        ("all_to_all", "Bruck"),
        ("broadcast", "binomial tree"),
        ("broadcast", "scatter and all_gather"),
    ],
)
def test_the_law_that_the_times_follow_is_found(collective: str, name: str) -> None:
    curves = [by(collective, name, ranks) for ranks in (2, 4, 6, 8, 16)]
    found = fit_family(family(*curves, collective=collective))
    best = found.laws[0]
    assert best.fitted.law.name == name
    assert best.error is not None
    assert best.error < 0.05
    ((alpha, per_byte),) = best.fitted.tiers
    assert [alpha, 1 / per_byte] == pytest.approx([3e-6, 8e9], rel=0.05)


def test_a_base_is_told_from_alpha_by_three_numbers_of_ranks() -> None:
    curves = [by("all_reduce", "ring", ranks, base_s=10e-6) for ranks in (2, 4, 8)]
    three, two = (fit_law(law("all_reduce", "ring"), its) for its in (curves, curves[:2]))
    assert three.base_s == pytest.approx(10e-6, rel=0.1)
    assert two.base_s == 0.0
    assert misfit(three, curves) < 0.03


def test_a_hierarchy_is_found_over_hosts() -> None:
    curves = []
    for hosts, per_host in ((1, 4), (1, 8), (2, 4), (2, 8), (4, 8)):
        tiers = law("all_reduce", "hierarchical").tiers(hosts * per_host, hosts, per_host)
        fabric = ((1e-6, 2e11), (2e-5, 1e10))
        times = np.zeros(len(SIZES))
        for (starts, moved), (alpha, rate) in zip(tiers, fabric, strict=True):
            times += starts * alpha + moved * np.array(SIZES) / rate
        curves.append(curve(SIZES, times.tolist(), hosts * per_host, hosts))
    found = fit_family(family(*curves)).laws[0]
    assert found.fitted.law.name == "hierarchical"
    (inner, outer) = found.fitted.tiers
    assert [inner[0], 1 / inner[1]] == pytest.approx([1e-6, 2e11], rel=0.01)
    assert [outer[0], 1 / outer[1]] == pytest.approx([2e-5, 1e10], rel=0.01)


def test_one_host_tells_nothing_of_a_hierarchy() -> None:
    known = {one.name for one in laws_of("all_reduce", [by("all_reduce", "ring", 4)])}
    assert not known & {"hierarchical", "ring across hosts"}


def test_one_rank_alone_has_no_law() -> None:
    found = fit_family(family(made_up(1e-7, 1e10, SIZES, ranks=1)))
    assert (len(found.fits), found.laws) == (1, ())
