"""Ports of RDMA devices, read from recorded and written trees."""

from pathlib import Path

import pytest

from collbench.rdma import ROCE_V2, Gid, ports
from sysfs_trees import changed, tree

PORT = "sys/class/infiniband/rxe0/ports/1"


def test_a_machine_without_rdma_has_no_ports(tmp_path: Path) -> None:
    assert ports(str(tmp_path)) == ()


def test_soft_roce_as_it_was_recorded() -> None:
    (port,) = ports(tree("rxe"))
    assert (port.name, port.state, port.phys_state, port.link_layer) == ("rxe0:1", "ACTIVE", "LinkUp", "Ethernet")
    assert port.active
    assert port.on_ethernet
    assert port.rate_bytes_per_s == 2.5e9 / 8
    assert (port.netdev, port.driver) == ("eth0", "rdma_rxe")
    assert port.gids == (
        Gid(0, "fe80:0000:0000:0000:5054:00ff:fe77:0001", ROCE_V2, "eth0"),
        Gid(1, "0000:0000:0000:0000:0000:ffff:0a4d:0001", ROCE_V2, "eth0"),
    )
    assert (Path(port.path) / "hw_counters" / "sent_pkts").is_file()


def test_two_ports_of_mlx5() -> None:
    first, second = ports(tree("mlx5"))
    assert (first.name, first.driver, first.netdev) == ("mlx5_0:1", "mlx5_core", "ens1f0np0")
    assert [gid.type for gid in first.gids] == ["IB/RoCE v1", ROCE_V2, "IB/RoCE v1", ROCE_V2]
    assert first.rate_bytes_per_s == 25e9
    # On InfiniBand no address names the interface: it is the one of the same function.
    assert (second.name, second.link_layer, second.netdev) == ("mlx5_1:1", "InfiniBand", "ibs1f1")
    assert not second.on_ethernet


def test_pvrdma_tells_its_driver_by_uevent() -> None:
    (port,) = ports(tree("pvrdma"))
    assert (port.name, port.driver, port.netdev) == ("vmw_pvrdma0:1", "vmw_pvrdma", "ens224")


@pytest.mark.parametrize("text", ["", "nonsense", "x Gb/sec", ". Gb/sec"])
def test_what_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    root = changed("rxe", tmp_path, {f"{PORT}/rate": text, f"{PORT}/state": text, f"{PORT}/gid_attrs": None})
    (port,) = ports(root)
    assert port.rate_bytes_per_s is None
    assert not port.active
    assert [(gid.type, gid.netdev) for gid in port.gids] == [(None, None), (None, None)]
    assert port.netdev == "eth0"  # by the device's parent


def test_devices_and_ports_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    files: dict[str, str | bytes | None] = {
        f"sys/class/infiniband/mlx5_{device}/ports/{port}/state": "4: ACTIVE" for device in (10, 2) for port in (2, 1)
    }
    found = [port.name for port in ports(changed("", tmp_path, files))]
    assert found == ["mlx5_2:1", "mlx5_2:2", "mlx5_10:1", "mlx5_10:2"]
