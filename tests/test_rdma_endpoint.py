"""Which RDMA port and address a rank takes, by what there is and what the environment names."""

import pytest

from collbench.rdma import ROCE_V2, Gid, Port
from collbench.rdma_endpoint import Endpoint, endpoint

LOCAL = Gid(0, "fe80:0000:0000:0000:5054:00ff:fe77:0001", "IB/RoCE v1", "eth0")
LOCAL_V2 = Gid(1, LOCAL.gid, ROCE_V2, "eth0")
IPV4 = Gid(2, "0000:0000:0000:0000:0000:ffff:0a4d:0001", "IB/RoCE v1", "eth0")
IPV4_V2 = Gid(3, IPV4.gid, ROCE_V2, "eth0")
GIDS = (LOCAL, LOCAL_V2, IPV4, IPV4_V2)


def port(
    device: str, number: int = 1, *, state: str = "ACTIVE", link: str = "Ethernet", gids: tuple[Gid, ...] = GIDS
) -> Port:
    return Port(device, number, state, "LinkUp", 12.5e9, link, "eth0", "mlx5_core", gids, "")


PORTS = (port("mlx5_0", state="DOWN"), port("mlx5_1"), port("mlx5_1", 2), port("rxe0"), port("mlx5_10"))


def test_the_first_active_port_by_its_ipv4_address_of_roce_v2() -> None:
    assert endpoint({}, PORTS) == Endpoint("mlx5_1", 1, 3, "10.77.0.1")


@pytest.mark.parametrize(
    ("gids", "index", "address"),
    [
        ((LOCAL, IPV4, LOCAL_V2), 1, ""),  # version 2 goes before an IPv4 address
        ((LOCAL, IPV4), 2, "10.77.0.1"),
        ((LOCAL,), 0, ""),
        ((), None, ""),
    ],
)
def test_the_best_address_that_there_is(gids: tuple[Gid, ...], index: int | None, address: str) -> None:
    assert endpoint({}, (port("rxe0", gids=gids),)) == Endpoint("rxe0", 1, index, address)


def test_infiniband_needs_no_address() -> None:
    assert endpoint({}, (port("mlx4_0", link="InfiniBand"),)) == Endpoint("mlx4_0", 1)


@pytest.mark.parametrize(
    ("settings", "device", "number"),
    [
        ({"NCCL_IB_HCA": "rxe"}, "rxe0", 1),
        ({"NCCL_IB_HCA": "mlx5_1:2"}, "mlx5_1", 2),
        ({"NCCL_IB_HCA": "=mlx5_10"}, "mlx5_10", 1),
        ({"NCCL_IB_HCA": "=mlx5_0,rxe0:1"}, "rxe0", 1),  # the first is down
        ({"NCCL_IB_HCA": "^mlx5"}, "rxe0", 1),
        ({"NCCL_IB_HCA": "^=mlx5_1"}, "rxe0", 1),
        ({"UCX_NET_DEVICES": "rxe0:1"}, "rxe0", 1),
        ({"UCX_NET_DEVICES": "eth0,mlx5_1:2"}, "mlx5_1", 2),
        ({"UCX_NET_DEVICES": "eth0"}, "mlx5_1", 1),  # names no port
        ({"UCX_NET_DEVICES": "all"}, "mlx5_1", 1),
        ({"NCCL_IB_HCA": "rxe0", "UCX_NET_DEVICES": "mlx5_1:1"}, "rxe0", 1),
    ],
)
def test_what_the_settings_name_is_taken(settings: dict[str, str], device: str, number: int) -> None:
    found = endpoint(settings, PORTS)
    assert isinstance(found, Endpoint)
    assert (found.device, found.port) == (device, number)


def test_what_cannot_be_used_is_said() -> None:
    assert endpoint({}, ()) == "there is no RDMA device here"
    assert endpoint({}, PORTS[:1]) == "no RDMA port is ACTIVE here (mlx5_0:1 is DOWN)"
    assert endpoint({"NCCL_IB_HCA": "=mlx5_0"}, PORTS[:2]) == (
        "NCCL_IB_HCA is '=mlx5_0', expected one that names an ACTIVE RDMA port (mlx5_1:1); correct it"
    )
    assert "UCX_NET_DEVICES is 'mlx4_0:1'" in str(endpoint({"UCX_NET_DEVICES": "mlx4_0:1"}, PORTS))
