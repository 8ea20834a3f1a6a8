"""Each topology on small worlds, by hand; the tournament by what it must be."""

import pytest

from collbench.errors import CannotRun
from collbench.topology import Group, rounds, sampled

TWO_HOSTS = ("a", "a", "b", "b")


def ranks(topology: str, hosts: tuple[str, ...]) -> list[list[tuple[int, ...]]]:
    return [[group.ranks for group in one] for one in rounds(topology, hosts)]


def test_by_hand() -> None:
    assert ranks("world", TWO_HOSTS) == [[(0, 1, 2, 3)]]
    assert ranks("host", TWO_HOSTS) == [[(0, 1), (2, 3)]]
    assert ranks("rail", TWO_HOSTS) == [[(0, 2), (1, 3)]]
    assert ranks("bisection", TWO_HOSTS) == [[(0, 2), (1, 3)]]
    assert ranks("first:3", TWO_HOSTS) == [[(0, 1, 2)]]
    assert ranks("first:doubling", ("a",) * 6) == [[(0, 1)], [(0, 1, 2, 3)], [(0, 1, 2, 3, 4, 5)]]
    assert ranks("first:doubling", ("a",) * 2) == [[(0, 1)]]
    assert ranks("first:doubling", ("a",)) == [[(0,)]]
    assert ranks("every:2", ("a",) * 5) == [[(0, 2, 4)]]
    assert ranks("0-1;3", TWO_HOSTS) == [[(0, 1), (3,)]]
    assert rounds("two_hosts", TWO_HOSTS) == ((Group("a+b", (0, 2)),),)
    assert rounds("two_hosts", ("b", "c", "b", "a")) == ((Group("b+c", (0, 1)),),)
    assert rounds("two_hosts", ("a",) * 3) == ((Group("first:2 on a", (0, 1)),),)
    assert rounds("host", ("b", "a"))[0] == (Group("b", (0,)), Group("a", (1,)))


@pytest.mark.parametrize("size", range(2, 18))
def test_a_tournament_has_each_pair_once_in_disjoint_rounds(size: int) -> None:
    played = rounds("pairs", ("a",) * size)
    assert len(played) == size - 1 + size % 2
    seen = [group.ranks for one in played for group in one]
    assert sorted(seen) == [(a, b) for a in range(size) for b in range(a + 1, size)]
    for one in played:
        busy = [rank for group in one for rank in group.ranks]
        assert len(busy) == len(set(busy))


@pytest.mark.parametrize(
    ("topology", "hosts", "said"),
    [
        ("rail", ("a", "a"), "expected at least two"),
        ("rail", ("a", "a", "b"), "2 on a, 1 on b"),
        ("pairs", ("a",), "at least 2"),
        ("2-0", ("a",) * 3, "the lower rank first"),
        ("two_hosts", ("a",), r"got 1 rank \(on a\), expected at least 2"),
        ("bisection", ("a",) * 3, "an even number"),
        ("first:5", TWO_HOSTS, "expected at least 5"),
        ("0-1;1-2", TWO_HOSTS, "rank 1 in two groups"),
        ("0-4", TWO_HOSTS, "ranks below 4"),
    ],
)
def test_what_does_not_fit_says_why(topology: str, hosts: tuple[str, ...], said: str) -> None:
    with pytest.raises(CannotRun, match=said):
        rounds(topology, hosts)


@pytest.mark.parametrize("topology", ["host", "rail", "pairs", "bisection"])
def test_alone_is_the_same_groups_one_after_the_other(topology: str) -> None:
    hosts = ("a", "a", "b", "b")
    together = [group for one in rounds(topology, hosts) for group in one]
    apart = rounds(f"{topology}:alone", hosts)
    assert [group for (group,) in apart] == together


def test_above_64_ranks_pairs_are_pairs_of_hosts() -> None:
    hosts = tuple(f"h{rank // 8}" for rank in range(80))
    played = rounds("pairs", hosts)
    found = [group.ranks for one in played for group in one]
    assert len(found) == len(set(found)) == 45
    assert {rank for pair in found for rank in pair} == set(range(0, 80, 8))
    assert "every pair of 10 hosts" in sampled("pairs", hosts)
    assert sampled("pairs", hosts[:64]) == ""


@pytest.mark.parametrize("size", [65, 100, 513])
def test_above_64_hosts_each_meets_eight_others_in_disjoint_rounds(size: int) -> None:
    hosts = tuple(f"h{rank}" for rank in range(size))
    played = rounds("pairs", hosts)
    met: dict[int, set[int]] = {rank: set() for rank in range(size)}
    for one in played:
        ranks = [rank for group in one for rank in group.ranks]
        assert len(ranks) == len(set(ranks))
        for a, b in (group.ranks for group in one):
            met[a].add(b)
            met[b].add(a)
    assert {len(others) for others in met.values()} == {8}
    assert len(played) < 20
    assert "each with 8 others" in sampled("pairs", hosts)
