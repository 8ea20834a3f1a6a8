"""Which path the bytes took, judged from counters that were made up for the purpose."""

import pytest

from collbench.counters import Counts, Reading
from collbench.evidence import FLOOR_BYTES, UNDECIDED, Moved, idle_rates, judge, moved
from collbench.rdma import Port
from collbench.wiring import Interface, Wiring

MB = 1_000_000


def port(device: str = "mlx5_0", netdev: str = "eth0", driver: str = "mlx5_core") -> Port:
    return Port(device, 1, "ACTIVE", "LinkUp", 12.5e9, "Ethernet", netdev, driver, (), "")


def wiring(*ports: Port, below: tuple[str, ...] = ()) -> Wiring:
    interfaces = {
        "eth0": Interface("eth0", 9000, None, None),
        "bond0": Interface("bond0", 9000, None, None, below),
        "lo": Interface("lo", 65536, None, None),
    }
    return Wiring(interfaces, ports, True)


def counted(seconds: float = 1.0, ports: dict[str, Counts] | None = None, **interfaces: int) -> Reading:
    return Reading(seconds, {name: Counts(count, count // 1000) for name, count in interfaces.items()}, ports or {})


@pytest.mark.parametrize(
    ("paths", "must_cross", "transport"),
    [
        ({"tcp:eth0": 105 * MB}, 100 * MB, "tcp:eth0"),
        ({"rdma:mlx5_0": 100 * MB, "tcp:eth0": 2 * MB}, 100 * MB, "rdma:mlx5_0"),
        ({"rdma:mlx5_0": 50 * MB, "rdma:mlx5_1": 50 * MB}, 100 * MB, "rdma:mlx5_0,mlx5_1"),
        ({"rdma:mlx5_0": 60 * MB, "tcp:eth0": 40 * MB}, 100 * MB, "mixed:rdma:mlx5_0=0.60;tcp:eth0=0.40"),
        ({"tcp:eth0": 20 * MB}, 100 * MB, UNDECIDED),  # the rest took a way that nothing counts
        ({"tcp:eth0": 100 * MB}, FLOOR_BYTES - 1, UNDECIDED),
        ({"tcp:lo": 100 * MB}, 100 * MB, UNDECIDED),  # nothing gets to another host through the loopback
    ],
)
def test_between_hosts(paths: dict[str, float], must_cross: float, transport: str) -> None:
    half = {path: count / 2 for path, count in paths.items()}
    assert judge([Moved("a", half), Moved("b", half)], must_cross).transport == transport


@pytest.mark.parametrize(
    ("paths", "transport"),
    [
        ({"tcp:eth0": 1 * MB}, "shm"),
        ({"tcp:lo": 110 * MB}, "tcp:lo"),
        ({"rdma:rxe0": 100 * MB}, "rdma:rxe0"),
        ({"tcp:lo": 40 * MB}, "mixed:shm=0.60;tcp:lo=0.40"),
        ({"tcp:eth0": 30 * MB}, "shm"),  # somebody else's
    ],
)
def test_within_a_host(paths: dict[str, float], transport: str) -> None:
    assert judge([Moved("a", paths)], 100 * MB).transport == transport


def test_undecided_says_why() -> None:
    verdict = judge([Moved("a", {"tcp:eth0": 1 * MB}), Moved("b", {})], 100 * MB)
    assert verdict.why == "the counters saw 0 of 100000000 bytes"
    assert "had to move" in judge([Moved("a", {})], 5).why


def test_the_idle_rate_is_taken_off() -> None:
    idle = idle_rates(counted(0.5, eth0=5 * MB))
    assert idle == {"eth0": 10 * MB}
    assert moved("a", wiring(), counted(2.0, eth0=120 * MB), idle).paths["tcp:eth0"] == 100 * MB
    # Twice the idle bytes could be a busier neighbour: that is no evidence.
    assert moved("a", wiring(), counted(2.0, eth0=30 * MB), idle).paths["tcp:eth0"] == 0


def test_hardware_rdma_is_not_in_the_interface_counters() -> None:
    found = moved("a", wiring(port()), counted(ports={"mlx5_0:1": Counts(100 * MB, None)}, eth0=3 * MB), {})
    assert found.paths == {"rdma:mlx5_0": 100 * MB, "tcp:eth0": 3 * MB}


def test_software_rdma_is_counted_once() -> None:
    soft = wiring(port("rxe0", driver="rdma_rxe"))
    packets = 100 * MB // 4096
    found = moved("a", soft, counted(ports={"rxe0:1": Counts(None, packets)}, eth0=103 * MB), {})
    assert found.paths["rdma:rxe0"] == pytest.approx(packets * (4096 + 82))
    assert found.paths["tcp:eth0"] == pytest.approx(103 * MB - packets * 4178)


def test_an_active_device_that_sent_nothing_is_no_rdma() -> None:
    soft = wiring(port("rxe0", driver="rdma_rxe"))
    found = moved("a", soft, counted(ports={"rxe0:1": Counts(None, 0)}, eth0=102 * MB), {})
    assert judge([found, found], 200 * MB).transport == "tcp:eth0"


def test_a_bond_and_what_it_sends_through_are_one_path() -> None:
    found = moved("a", wiring(below=("eth0",)), counted(eth0=100 * MB, bond0=100 * MB), {})
    assert found.paths == {"tcp:eth0": 0, "tcp:bond0": 100 * MB}


def test_events_are_summed_over_ports_interfaces_and_tcp() -> None:
    reading = Reading(
        1.0,
        {"eth0": Counts(0, 0, {"drops": 2, "pauses": 7})},
        {"mlx5_0:1": Counts(0, 0, {"drops": 1, "retransmissions": 5})},
        {"retransmissions": 3},
    )
    assert moved("a", wiring(port()), reading, {}).events == {"drops": 3, "pauses": 7, "retransmissions": 8}
