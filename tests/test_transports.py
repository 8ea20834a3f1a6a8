"""The order of transports, and what a scenario may expect of them."""

import itertools

import pytest

from collbench.transports import EXPECTATIONS, expected, in_order, known, on_network


def test_the_column_has_the_best_first_and_tcp_last() -> None:
    every = ["nvls", "p2p", "shm", "collnet/gdr", "collnet", "net/ib/gdr", "net/ib", "net/gib/gdr", "net/socket"]
    for found in itertools.permutations(every, 3):
        ordered = in_order(found)
        assert [every.index(one) for one in ordered] == sorted(every.index(one) for one in found)


@pytest.mark.parametrize(
    ("wanted", "found", "hosts", "answer"),
    [
        ("rdma", "p2p+net/ib/gdr", 2, True),
        ("rdma", "p2p+net/ib", 2, True),
        ("rdma", "p2p+net/ib/gdr+net/socket", 2, False),  # some went over TCP
        ("rdma", "p2p", 1, False),  # nothing went over a network
        ("rdma", "net/libfabric/gdr", 2, True),
        ("rdma", "net/libfabric/tcp", 2, False),
        ("rdma", "net/fastrak/gdr", 2, False),  # GPUDirect over TCP
        ("rdma", "collnet/gdr+net/ib/gdr", 2, True),
        ("gdr", "p2p+net/ib/gdr", 2, True),
        ("gdr", "p2p+net/ib/gdr+net/ib", 2, False),
        ("gdr", "net/fastrak/gdr", 2, True),
        ("ib", "net/ib/gdr+net/ib", 2, True),
        ("ib", "net/libfabric", 2, False),
        ("socket", "p2p+net/socket", 2, True),
        ("tcp", "net/socket", 2, True),
        ("tcp", "net/ib+net/socket", 2, False),
        ("p2p", "nvls+p2p", 1, True),
        ("p2p", "p2p+shm", 1, False),
        ("p2p", "p2p+net/socket", 1, False),  # on one host some pair went over the network
        ("p2p", "p2p+net/ib/gdr", 2, True),  # between hosts it has to
        ("p2p", "shm", 1, False),
        ("shm", "shm", 1, True),
        ("shm", "p2p+shm", 1, True),
        ("shm", "p2p", 1, False),
        ("nvls", "nvls+p2p", 1, True),
        ("collnet", "p2p+collnet/gdr+net/ib", 2, True),
        ("p2p+gdr", "p2p+net/ib/gdr", 2, True),
        ("p2p+gdr", "shm+net/ib/gdr", 2, False),
        ("net/ib/gdr", "p2p+net/ib/gdr", 2, True),
        ("GDR", "net/ib/gdr", 2, True),
        ("p2p", "", 1, False),
        ("nonsense", "p2p", 1, False),
    ],
)
def test_an_expectation(wanted: str, found: str, hosts: int, answer: bool) -> None:
    assert expected(wanted, found, hosts) is answer


def test_every_word_can_hold_and_fail() -> None:
    for word in EXPECTATIONS:
        held = [expected(word, found, 2) for found in ("nvls+p2p", "shm", "net/ib/gdr", "net/socket", "collnet")]
        assert any(held), word
        assert not all(held), word


def test_what_goes_over_a_network() -> None:
    assert on_network(["nvls", "shm", "net/ib", "collnet/gdr"]) == {"net/ib", "collnet/gdr"}


@pytest.mark.parametrize(
    ("wanted", "found", "holds"),
    [
        ("rdma", "rdma:mlx5_0,mlx5_1", True),
        ("ib", "rdma:mlx5_0", True),
        ("tcp", "tcp:eth0", True),
        ("socket", "tcp:eth0", True),
        ("tcp:eth0", "tcp:eth0", True),
        ("rdma", "tcp:eth0", False),
        ("tcp", "rdma:rxe0", False),
        ("rdma:mlx5_1", "rdma:mlx5_0", False),
        ("rdma", "mixed:rdma:mlx5_0=0.60;tcp:eth0=0.40", False),
        ("shm", "shm", True),
        ("shm", "tcp:lo", False),
        ("rdma", "undecided", False),
        ("rdma+tcp", "rdma:mlx5_0", False),
        ("gdr", "rdma:mlx5_0", False),
    ],
)
def test_what_counters_say(wanted: str, found: str, holds: bool) -> None:
    assert expected(wanted, found, 2) is holds


@pytest.mark.parametrize(
    "wanted", [*EXPECTATIONS, "p2p+rdma", "rdma:mlx5_0", "tcp:eth0", "net/ib/gdr", "net/gib", "collnet/gdr"]
)
def test_what_may_be_expected(wanted: str) -> None:
    assert known(wanted)


@pytest.mark.parametrize("wanted", ["rdam", "mixed", "tcp:", "undecided", "p2p+rdam", "", "infiniband"])
def test_what_no_row_could_fulfil(wanted: str) -> None:
    assert not known(wanted)
