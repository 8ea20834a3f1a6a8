"""What a row says of its path beside what a library says, and why RDMA was not taken."""

import resource
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.collectives import collective_of
from collbench.paths import DISAGREES, at_once, merged, unseen, why_not
from collbench.rdma import Port
from collbench.wiring import Wiring

COUNTED = {"transport": "rdma:mlx5_0", "transport_source": "counters", "rdma_bytes": 5, "undecided": "", "no_rdma": ""}


def port(state: str = "ACTIVE") -> Port:
    return Port("mlx5_0", 1, state, "LinkUp", None, "Ethernet", "eth0", "mlx5_core", (), "")


def test_counters_alone() -> None:
    assert merged({}, COUNTED) == (
        {"transport": "rdma:mlx5_0", "transport_source": "counters", "rdma_bytes": 5}, (),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "counted", "source", "notes"),
    [
        ("p2p+net/ib/gdr", "rdma:mlx5_0", "library log and counters", ()),
        ("p2p+net/ib/gdr", "tcp:eth0", "library log and counters", (DISAGREES,)),
        ("net/socket", "tcp:eth0", "library log and counters", ()),
        ("net/socket", "rdma:mlx5_0", "library log and counters", (DISAGREES,)),
        ("net/ib", "mixed:rdma:mlx5_0=0.60;tcp:eth0=0.40", "library log and counters", (DISAGREES,)),
        ("p2p", "undecided", "library log", ()),
    ],
)
def test_a_librarys_word_goes_first_and_is_checked(
    said: str, counted: str, source: str, notes: tuple[str, ...]
) -> None:
    columns, found = merged({"transport": said}, COUNTED | {"transport": counted})
    assert "transport" not in columns
    assert columns["transport_source"] == source
    assert found == notes


def test_nothing_was_counted() -> None:
    assert merged({"transport": "p2p"}, {}) == ({"transport_source": "library log"}, ())
    assert merged({}, {}) == ({}, ())


@pytest.mark.parametrize(
    ("wiring", "library", "words"),
    [
        (Wiring({}, (), True), "MPICH", "b has no RDMA device"),
        (Wiring({}, (port("DOWN"),), True), "MPICH", "mlx5_0:1 on b is DOWN"),
        (Wiring({}, (port(),), False), "MPICH", "no uverbs device"),
        (Wiring({}, (port("DOWN"), port()), True), "Open MPI v5.0.11", "--mca pml ucx"),
        (Wiring({}, (port(),), True), "MPICH Version: 5.0.2", "was not used"),
    ],
)
def test_why_not_rdma(monkeypatch: pytest.MonkeyPatch, wiring: Wiring, library: str, words: str) -> None:
    unlimited: Any = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda which: unlimited)
    assert words in why_not(wiring, "b", library)


def test_locked_memory_is_the_likelier_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (8 << 20, 8 << 20))
    assert "8192 KiB may be locked" in why_not(Wiring({}, (port(),), True), "b", "Open MPI")


def test_groups_at_once_share_their_hosts_links() -> None:
    hosts = ("a", "a", "b", "b")
    assert at_once("rail", "rail0", hosts) == {"a": 2, "b": 2}
    assert at_once("rail:alone", "rail0", hosts) == {"a": 1, "b": 1}
    assert at_once("world", "world", hosts) == {"a": 1, "b": 1}
    assert at_once("host", "a", hosts)["a"] == 1  # nothing of it crosses
    assert at_once("pairs", "again:0-2", hosts) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("backend", "collective", "size", "found"),
    [
        ("device", "copy", 2, {"local": True}),
        ("device", "host_copy", 1, {"local": True}),
        ("device", "reduce_local", 2, {"local": True}),
        ("device", "peer_copy", 2, {"transport": "p2p", "transport_source": "backend"}),
        ("device", "peer_copy", 1, {"transport": "p2p", "transport_source": "backend"}),
        ("peer", "all_reduce", 2, {"transport": "p2p", "transport_source": "backend"}),
        ("peer", "all_reduce", 1, {}),
        ("mpi_cuda", "all_reduce", 2, {}),
    ],
)
def test_what_the_counters_do_not_see(backend: str, collective: str, size: int, found: dict[str, Any]) -> None:
    kind = collective_of(collective, "", size)
    point: Any = SimpleNamespace(
        backend=SimpleNamespace(name=backend), case=SimpleNamespace(collective=collective), collective=kind,
        group=SimpleNamespace(size=size),
    )  # fmt: skip
    assert unseen(point) == found
    columns, notes = merged({}, found)
    assert columns == {name: value for name, value in found.items() if name != "local"}
    assert notes == ()
