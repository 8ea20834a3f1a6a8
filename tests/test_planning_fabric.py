"""Closed forms of links and fabrics: by hand."""

import math
from pathlib import Path

import pytest

from collbench.errors import UsageError
from collbench.planning import fabric, large
from collbench.planning.costs import Cost, Link, Range
from collbench.planning.fabric import Across, Fabric, Layout

US, GB = 1e-6, 1e9

FILE = """
schema = 1
title = "eight and eight"
devices_per_host = 8
[vm]
latency = "2 us"
bandwidth = "200 GB/s"
algorithm = "ring"
[nic]
latency = "10 us"
bandwidth = "200 Gbit/s"
algorithm = "ring"
uncertainty = 0.1
"""
SWITCH = '[switch]\noversubscription = 4\nhosts_per_leaf = 4\nlatency = "1 us"\n'


def load(tmp_path: Path, text: str = FILE) -> Fabric:
    path = tmp_path / "fabric.toml"
    path.write_text(text)
    return fabric.load(path)


def test_forms_of_a_link() -> None:
    ring, tree = Link(2 * US, 100 * GB, algorithm="ring"), Link(2 * US, 100 * GB, algorithm="tree")
    size = 80_000_000  # 800 us at 100 GB/s
    assert ring.seconds("all_reduce", size, 8) == pytest.approx(14 * 2 * US + 2 * 7 / 8 * 800 * US)
    assert tree.seconds("all_reduce", size, 8) == pytest.approx(6 * 2 * US + 2 * 800 * US)
    for collective in ("all_gather", "reduce_scatter", "all_to_all"):
        assert ring.seconds(collective, size, 8) == pytest.approx(7 * 2 * US + 7 / 8 * 800 * US)
    assert ring.seconds("all_reduce", size, 1) == 0
    with pytest.raises(UsageError, match="got scan, expected one of all_reduce"):
        ring.seconds("scan", size, 8)


@pytest.mark.parametrize(
    ("ranks", "alpha", "bandwidth", "meet"), [(8, 2 * US, 230 * GB, 14.7e6), (16, 14 * US, 25 * GB, 61.6e6)]
)
def test_where_ring_and_tree_are_equal(ranks: int, alpha: float, bandwidth: float, meet: float) -> None:
    size = round(ranks * (ranks - 1 - math.log2(ranks)) * alpha * bandwidth)
    assert size == pytest.approx(meet, rel=0.005)
    ring, tree, best = (Link(alpha, bandwidth, algorithm=one) for one in ("ring", "tree", "best"))
    assert ring.seconds("all_reduce", size, ranks) == pytest.approx(tree.seconds("all_reduce", size, ranks))
    for other, quicker in ((size // 2, tree), (size * 2, ring)):
        assert best.seconds("all_reduce", other, ranks) == quicker.seconds("all_reduce", other, ranks)


def test_uncertainty_is_on_both_sides() -> None:
    found = Link(0.0, 1 * GB, uncertainty=0.2)("all_gather", 2_000_000_000, 2)
    assert (found.low, found.middle, found.high) == pytest.approx((0.8, 1.0, 1.2))


def test_hierarchical_all_reduce_by_hand(tmp_path: Path) -> None:
    found = load(tmp_path).cost("all_reduce", 100_000_000, Layout(32, 4))
    # 100 MB at 200 GB/s is 500 us; each of 8 devices has an eighth of 25 GB/s for an eighth of 100 MB, so 4 ms.
    half = 7 * 2 * US + 7 / 8 * 500 * US
    across = 6 * 10 * US + 2 * 3 / 4 * 4000 * US
    assert found.vm.middle == pytest.approx(2 * half)
    assert found.across.middle == pytest.approx(across)
    assert found.across.high == pytest.approx(1.1 * across)
    assert found.total.middle == pytest.approx(2 * half + across)


def test_other_hierarchical_forms(tmp_path: Path) -> None:
    described = load(tmp_path)
    inside, outside = 7 * 2 * US + 7 / 8 * 500 * US, 3 * 10 * US + 3 / 4 * 4000 * US
    for collective in ("all_gather", "reduce_scatter"):
        found = described.cost(collective, 100_000_000, Layout(32, 4))
        assert (found.vm.middle, found.across.middle) == pytest.approx((inside, outside))
    found = described.cost("all_to_all", 100_000_000, Layout(32, 4))
    # Each device sends three quarters of its 100 MB through an eighth of the host's 25 GB/s.
    assert (found.vm.middle, found.across.middle) == pytest.approx((inside, 3 * 10 * US + 3 / 4 * 32000 * US))


def test_one_host_and_one_device_a_host(tmp_path: Path) -> None:
    described = load(tmp_path)
    alone = described.cost("all_reduce", 1000, Layout(8, 1))
    assert (alone.across.middle, alone.vm.middle) == pytest.approx((0, 14 * 2 * US + 14 / 8 * 1000 / (200 * GB)))
    apart = described.cost("all_reduce", 1000, Layout(4, 4))
    assert (apart.vm.middle, apart.across.middle) == pytest.approx((0, 6 * 10 * US + 6 / 4 * 1000 / (25 * GB)))
    assert described.cost("all_reduce", 1000, Layout(1, 1)).total.middle == 0


def test_one_device_in_a_vm_has_no_links_there(tmp_path: Path) -> None:
    """The links of one to itself are not asked for; those of several to each other are."""
    without = FILE.partition("[vm]")[0] + FILE[FILE.index("[nic]") :]
    found = load(tmp_path, without.replace("devices_per_host = 8", "devices_per_host = 1"))
    cost = found.cost("all_reduce", 1000, Layout(4, 4))
    assert (cost.vm.middle, cost.across.middle) == pytest.approx((0, 6 * 10 * US + 6 / 4 * 1000 / (25 * GB)))
    assert not any("in a VM: " in line or "both tiers" in line for line in found.assumptions)
    assert large.table(found, 1000, (2,)).rows[0]["hosts"] == 2
    with pytest.raises(UsageError, match="got 2 devices of a host, expected 1: its links are not described"):
        found.vm("all_reduce", 1000, 2)
    said = r"vm: got nothing, expected the links between the 8 devices of a host; describe them as \[vm\], or write dev"
    with pytest.raises(UsageError, match=said):
        load(tmp_path, without)


def test_a_measured_fabric_is_asked_by_tier() -> None:
    asked: list[tuple[str, str, int, int]] = []

    def tier(name: str) -> Cost:
        def cost(collective: str, size_bytes: int, ranks: int) -> Range:
            asked.append((name, collective, size_bytes, ranks))
            return Range(1, 2, 3)

        return cost

    measured = Fabric("measured", 2, tier("vm"), lambda sharers, hosts: tier(f"rails of {sharers}"))
    assert measured.cost("all_reduce", 1001, Layout(6, 3)).total == Range(3, 6, 9)
    assert asked == [
        ("vm", "reduce_scatter", 1001, 2),
        ("vm", "all_gather", 1001, 2),
        ("rails of 2", "all_reduce", 501, 3),
    ]


def slowed(placement: str, hosts: int, collective: str = "all_reduce") -> float:
    across = Across(0.0, 1 * GB, False, 0.0, "ring", 4.0, 4, 0.0, placement == "scattered")
    free = Across(0.0, 1 * GB, False, 0.0, "ring")
    size = 10**9
    return across(1, hosts)(collective, size, hosts).middle / free(1, hosts)(collective, size, hosts).middle


def test_oversubscription() -> None:
    assert slowed("scattered", 4) == 1  # on one leaf
    assert slowed("scattered", 8) == pytest.approx(4 * 4 / 7)  # four of seven others are elsewhere
    assert slowed("scattered", 16) == pytest.approx(4 * 12 / 15)
    assert slowed("by_leaf", 16) == 1  # one host of four sends through uplinks that hold one host's rate
    assert slowed("by_leaf", 16, "all_to_all") == pytest.approx(4 * 12 / 15)


def test_large_scale_lists_what_it_assumes(tmp_path: Path) -> None:
    described = load(tmp_path, FILE + SWITCH)
    table = large.table(described, 100_000_000)
    assert [row["devices"] for row in table.rows] == [8 * 2**power for power in range(10)]
    assert [row["hosts"] for row in table.rows] == [2**power for power in range(10)]
    times = [row["all_reduce_s"] for row in table.rows]
    assert times == sorted(times)
    last = table.rows[-1]
    across = 2 * 511 * 11 * US + 2 * 511 / 512 * 4000 * US * (4 * 508 / 511)
    assert last["all_reduce_across_s"] == pytest.approx(across)
    parts = sum(last[name] for name in ("reduce_scatter_vm_s", "all_reduce_across_s", "all_gather_vm_s"))
    assert last["all_reduce_s"] == pytest.approx(parts)
    assert last["algbw_bytes_per_s"] == pytest.approx(100_000_000 / last["all_reduce_s"])
    assert last["busbw_bytes_per_s"] == pytest.approx(2 * 4095 / 4096 * 100_000_000 / last["all_reduce_s"])
    said = "\n".join(table.notes)
    for words in ("described, not measured", "4 to 1 oversubscribed", "shared by its devices", "no uncertainty given",
                  "stragglers", "as few hosts", "on as few leaves as hold them, in any order",
                  "a job of up to 4 hosts is taken to sit on one leaf", "up to 4 times slower"):  # fmt: skip
        assert words in said


def test_what_is_said_of_leaves_is_what_is_computed(tmp_path: Path) -> None:
    free, leaves = load(tmp_path), load(tmp_path, FILE + SWITCH)
    for hosts, slower in ((4, False), (5, True)):
        one, other = (each.cost("all_reduce", 10**9, Layout(8 * hosts, hosts)).across for each in (free, leaves))
        assert (one.middle < other.middle) == slower
    assert not any("sit anywhere" in line for line in leaves.assumptions)
    ordered = load(tmp_path, FILE + SWITCH + 'placement = "by_leaf"\n')
    assert any("on as few leaves as hold them, ordered by leaf" in line for line in ordered.assumptions)
    even = load(tmp_path, FILE + SWITCH.replace("= 4", "= 1", 1))
    assert not any("times slower" in line for line in even.assumptions)


def test_hosts_that_are_not_full_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--devices: got 12, expected a multiple of the 8 devices"):
        large.table(load(tmp_path), 1000, (12,))


def test_hosts_without_a_link(tmp_path: Path) -> None:
    alone = load(tmp_path, FILE[: FILE.index("[nic]")])
    with pytest.raises(UsageError, match=r"nic: got nothing, .*describe them as \[nic\]"):
        alone.cost("all_reduce", 1000, Layout(16, 2))


WRONG = [
    ('"200 GB/s"', '"200 GB"', "vm.bandwidth: got .*expected a rate with its unit, such as links have; write e.g."),
    ('"200 Gbit/s"', "200", "nic.bandwidth: got 200, expected a rate"),
    ('"200 Gbit/s"', '"0 Gbit/s"', "nic.bandwidth: got .*expected a rate above 0"),
    ("uncertainty = 0.1", "uncertainty = 1", "nic.uncertainty: got 1, expected a number from 0, below 1"),
    ('algorithm = "ring"', 'algorithm = "wheel"', "vm.algorithm: got .wheel., expected one of ring, tree, best"),
    ("devices_per_host = 8", "devices_per_host = 0", "devices_per_host: got 0, expected a whole number from 1"),
    ("devices_per_host = 8", "", "devices_per_host: got nothing"),
]


@pytest.mark.parametrize(("old", "new", "said"), WRONG)
def test_wrong_files(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in FILE
    with pytest.raises(UsageError, match=said):
        load(tmp_path, FILE.replace(old, new))


def test_a_switch_needs_links(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"switch: got a table, expected none without \[nic\]"):
        load(tmp_path, FILE[: FILE.index("[nic]")] + SWITCH)
