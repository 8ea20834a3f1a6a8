"""Payload rates against the published arithmetic."""

import pytest

from collbench.payload import payload, rdma, tcp
from collbench.rdma import Port
from collbench.wiring import Interface, Wiring, roce_mtu

GBIT = 1e9 / 8


def port(link_layer: str = "Ethernet", driver: str = "mlx5_core", state: str = "ACTIVE") -> Port:
    return Port("mlx5_0", 1, state, "LinkUp", 100 * GBIT, link_layer, "eth0", driver, (), "")


def wiring(interface: Interface, *ports: Port) -> Wiring:
    return Wiring({interface.name: interface}, ports, True)


@pytest.mark.parametrize(
    ("interface", "share"),
    [
        (Interface("eth0", 1500, GBIT, None), 1448 / 1538),
        (Interface("eth0", 9000, GBIT, None), 8948 / 9038),
        (Interface("eth0", 1500, 10 * GBIT, GBIT), 1448 / 1514),
        (Interface("eth0", 1500, None, GBIT), 1448 / 1514),
        (Interface("eth0", 1500, GBIT, 10 * GBIT), 1448 / 1538),  # a shaper that is wider than the link shapes nothing
    ],
)
def test_tcp(interface: Interface, share: float) -> None:
    found = tcp(interface)
    assert found is not None
    assert found.bytes_per_s == pytest.approx(GBIT * share)
    assert "1 Gbit/s" in found.source


def test_an_unknown_speed_is_not_guessed() -> None:
    assert tcp(Interface("eth0", 1500, None, None)) is None
    assert payload(wiring(Interface("eth0", 1500, None, None)), ("tcp:eth0",)) is None


def test_what_the_scenario_says_goes_before_what_the_interface_says() -> None:
    found = tcp(Interface("eth0", 1500, 10 * GBIT, None), 25 * GBIT)
    assert found is not None
    assert found.bytes_per_s == pytest.approx(25 * GBIT * 1448 / 1538)
    assert "25 Gbit/s (link_rate)" in found.source


@pytest.mark.parametrize(
    ("mtu", "path_mtu"), [(9000, 4096), (4192, 4096), (4191, 2048), (1500, 1024), (None, 1024), (300, 256)]
)
def test_roce_mtu(mtu: int | None, path_mtu: int) -> None:
    assert roce_mtu(Interface("eth0", mtu, None, None)) == path_mtu


@pytest.mark.parametrize(("mtu", "share"), [(9000, 4096 / 4178), (1500, 1024 / 1106)])
def test_roce(mtu: int, share: float) -> None:
    found = rdma(port(), wiring(Interface("eth0", mtu, 100 * GBIT, None), port()))
    assert found is not None
    assert found.bytes_per_s == pytest.approx(100 * GBIT * share)


def test_infiniband() -> None:
    found = rdma(port("InfiniBand"), wiring(Interface("ib0", 4092, None, None)))
    assert found is not None
    assert found.bytes_per_s == pytest.approx(100 * GBIT * 4096 / 4122)


def test_a_software_device_makes_its_rate_up() -> None:
    soft = port(driver="rdma_rxe")
    assert rdma(soft, wiring(Interface("eth0", 9000, None, None), soft)) is None
    found = rdma(soft, wiring(Interface("eth0", 9000, 10 * GBIT, None), soft))
    assert found is not None
    assert found.bytes_per_s == pytest.approx(10 * GBIT * 4096 / 4178)


def test_several_ports_carry_together() -> None:
    one = port()
    two = Port("mlx5_1", 1, "ACTIVE", "LinkUp", 100 * GBIT, "Ethernet", "eth0", "mlx5_core", (), "")
    found = payload(wiring(Interface("eth0", 9000, None, None), one, two), ("rdma:mlx5_0", "rdma:mlx5_1"))
    assert found is not None
    assert found.bytes_per_s == pytest.approx(200 * GBIT * 4096 / 4178)
