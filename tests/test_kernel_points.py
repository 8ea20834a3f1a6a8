"""Kernels as points of a sweep, as far as that needs no device: what they move, their names, and who refuses them."""

import pytest

from collbench.backends import backend_named
from collbench.backends.loopback import Loopback
from collbench.collectives import TABLE, Piece, collective_of, entry_named, kernel_names, names
from collbench.collectives.peer_copy import PeerCopy
from collbench.errors import Agreed, CannotRun, CollbenchError
from collbench.plan import expand
from collbench.scenario import Scenario, Sweep, known
from collbench.world import World


def test_kernels_are_no_collectives_but_have_a_row_each() -> None:
    assert kernel_names() == ("copy", "host_copy", "peer_copy", "reduce_local", "rdma_write")
    assert set(TABLE) == {*names(), *kernel_names(), "replay"}
    assert not set(names()) & set(kernel_names())
    assert not set(known()["collective"]) & set(kernel_names())
    assert {"device", "peer"} <= set(known()["backend"])


@pytest.mark.parametrize("name", kernel_names())
def test_the_first_way_is_the_default_and_others_must_be_known(name: str) -> None:
    collective = collective_of(name, "", 3)
    assert collective.is_kernel
    assert collective.has_patterns == bool(collective.ways)
    for way in collective.ways:
        assert getattr(collective_of(name, way, 3), "way") == way  # noqa: B009  only kernels have it
    if collective.ways:
        assert getattr(collective, "way") == collective.ways[0]  # noqa: B009
    with pytest.raises(CannotRun, match=f"way: got 'uniform' for {name}, expected"):
        collective_of(name, "uniform", 3)


@pytest.mark.parametrize(
    ("way", "ranks", "writes"),
    [
        ("engine one_way", 1, {0: 0}),
        ("kernel all", 1, {0: 0}),
        ("engine one_way", 2, {0: 1}),
        ("engine both_ways", 2, {0: 1, 1: 0}),
        ("kernel all", 2, {0: 1, 1: 0}),
        ("kernel one_way", 4, {0: 3}),
        ("engine both_ways", 4, {0: 3, 3: 0}),
        ("kernel all", 4, {0: 1, 1: 2, 2: 3, 3: 0}),
    ],
)
def test_who_writes_to_whom(way: str, ranks: int, writes: dict[int, int]) -> None:
    collective = collective_of("peer_copy", way, ranks)
    assert isinstance(collective, PeerCopy)
    assert collective.pairs(ranks) == [*writes.items()]
    for rank in range(ranks):
        layout = collective.layout(10, ranks, rank)
        sources = [source for source, target in writes.items() if target == rank]
        assert layout.send == (10 if rank in writes else 0)
        assert layout.expected == tuple(Piece(0, 10, source, source) for source in sources)
        assert layout.recv == 10 * len(sources)
    # Onlookers must not give the time where only the first rank writes.
    assert collective.timed_ranks == (1 if way.endswith("one_way") else -1)


def test_reduce_local_has_both_inputs_in_its_send_buffer() -> None:
    collective = collective_of("reduce_local", "", 4)
    layout = collective.layout(10, 4, 2)
    assert collective.contributors(4) == 2
    assert collective_of("all_reduce", "", 4).contributors(4) == 4
    assert (layout.send, layout.recv) == (20, 10)
    assert layout.inputs == (Piece(0, 10, 0, 0), Piece(10, 10, 1, 1))
    assert layout.expected == (Piece(0, 10, 0, 1),)


def test_rates() -> None:
    assert [collective_of(name, "", 3).bus_factor(3, 16) for name in kernel_names()] == [2.0, 1.0, 1.0, 3.0, 1.0]
    assert collective_of("copy", "", 3).shape(1001, 4, 3).size_bytes == 1000


def test_other_backends_refuse_kernels() -> None:
    sweep = Sweep(kind="kernel", backends=("loopback",), collectives=kernel_names(), patterns=(), sizes=(64,))
    cases = expand(Scenario(name="kernels", title="", sweeps=(sweep,))).cases
    ways = {name: entry_named(name).collective.ways for name in kernel_names()}
    expected = {(name, way) for name, its in ways.items() for way in its or ("",)}
    assert {(case.collective, case.pattern) for case in cases} == expected
    for case in cases:
        owner = "perftest" if case.collective == "rdma_write" else "device"
        assert str(Loopback(World()).refuse(case)) == f"{case.collective} is a kernel of the {owner} backend"


@pytest.mark.parametrize("name", ["device", "peer"])
def test_a_machine_without_a_device_says_so_in_one_sentence(name: str) -> None:
    backend = backend_named(name)
    assert backend.name == name
    reason = backend.unavailable()
    assert reason is None or ("\n" not in reason and reason)


def test_all_or_none_says_whose_fault_it_was() -> None:
    def fail() -> None:
        raise CollbenchError("no room")

    world = World(hosts=("here",))
    assert world.all_or_none(lambda: 3) == 3
    with pytest.raises(Agreed, match=r"^rank 0 on here: no room$"):
        world.all_or_none(fail)
    with pytest.raises(Agreed, match=r"^rank 0 on here: ZeroDivisionError"):
        world.all_or_none(lambda: 1 // 0)
