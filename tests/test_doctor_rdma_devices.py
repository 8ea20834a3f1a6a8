"""What the doctor makes of RDMA devices, alone and of several hosts."""

from pathlib import Path

import pytest

from collbench.doctor.rdma_devices import findings, measure, path_mtu
from sysfs_trees import changed, holding, levels, seen, tree

RXE = "sys/class/infiniband/rxe0/ports/1"
MLX5 = "sys/class/infiniband/mlx5_0/ports/1"
DOWN: dict[str, str | bytes | None] = {f"{RXE}/state": "1: DOWN", f"{RXE}/phys_state": "3: Disabled"}


def test_no_device_is_one_note(tmp_path: Path) -> None:
    nothing = measure(str(tmp_path), {})
    found = findings(seen(nothing, nothing))
    assert [(one.level, one.seen) for one in found] == [("note", "no RDMA device is here")]
    (pod,) = findings(seen(measure(str(tmp_path), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})))
    assert "nvidia.com/mlnxnics" in pod.remedy


def test_healthy_devices_are_described() -> None:
    (one,) = findings(seen(measure(tree("rxe"), {})))
    assert one.level == "ok"
    assert one.seen == (
        "rxe0:1 ACTIVE, Soft-RoCE, 2.5 Gbit/s (made up by the driver), RoCE v2, RoCE MTU 4096 by eth0's 9000"
    )
    (one,) = findings(seen(measure(tree("mlx5"), {})))
    assert one.seen == (
        "mlx5_0:1 ACTIVE, mlx5, 200 Gbit/s, RoCE v1, RoCE v2, RoCE MTU 4096 by ens1f0np0's 4200; "
        "mlx5_1:1 ACTIVE, mlx5, 200 Gbit/s, InfiniBand"
    )
    (one,) = findings(seen(measure(tree("pvrdma"), {})))
    assert one.seen.startswith("vmw_pvrdma0:1 ACTIVE, PVRDMA, 100 Gbit/s, RoCE v1, RoCE v2, RoCE MTU 1024")


@pytest.mark.parametrize(("interface", "roce"), [(9000, 4096), (4200, 4096), (4191, 2048), (1500, 1024), (60, None)])
def test_the_mtu_of_roce_is_the_one_that_fits(interface: int, roce: int | None) -> None:
    assert path_mtu(interface) == roce


def test_alike_hosts_are_said_once_though_their_addresses_differ(tmp_path: Path) -> None:
    other = changed("rxe", tmp_path, {f"{RXE}/gids/1": "0000:0000:0000:0000:0000:ffff:0a4d:0002"})
    found = findings(seen(measure(tree("rxe"), {}), measure(other, {})))
    assert levels(found) == ["ok"]
    assert found[0].seen.endswith("(on both hosts)")


def test_a_port_that_is_down_is_a_difference_and_names_its_host(tmp_path: Path) -> None:
    found = findings(seen(measure(tree("rxe"), {}), measure(changed("rxe", tmp_path, DOWN), {})))
    assert holding(found, "the state of rxe0:1 differs").seen.endswith("ACTIVE on a; DOWN on b")
    down = holding(found, "rxe0:1 is DOWN (link Disabled)")
    assert (down.level, down.differs) == ("warning", True)
    assert "(on b)" in down.seen
    assert "TCP" in down.why


def test_a_second_port_that_is_down_is_only_a_note(tmp_path: Path) -> None:
    root = changed("mlx5", tmp_path, {"sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN"})
    assert holding(findings(seen(measure(root, {}))), "mlx5_1:1 is DOWN").level == "note"


def test_tables_of_addresses_are_compared_by_index_and_kind(tmp_path: Path) -> None:
    # One address more before the others: index 3 is another thing on this host.
    types = {f"{MLX5}/gid_attrs/types/{k}": kind for k, kind in enumerate(["IB/RoCE v1", "IB/RoCE v1"])}
    other = measure(changed("mlx5", tmp_path, types), {})
    one = holding(findings(seen(measure(tree("mlx5"), {}), other)), "the table of addresses (GIDs) of mlx5_0:1")
    assert one.differs
    assert "1 IB/RoCE v1 IPv6 link-local" in one.seen
    assert "1 RoCE v2 IPv6 link-local" in one.seen
    assert "nccl#426" in one.source


@pytest.mark.parametrize(
    ("index", "level", "words"),
    [
        ("3", None, ""),
        ("-1", None, ""),
        ("2", "warning", "points to a RoCE v1 address of mlx5_0:1"),
        ("5", "problem", "points to an unset address of mlx5_0:1"),
    ],
)
@pytest.mark.parametrize("name", ["NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX"])
def test_what_an_index_points_to(name: str, index: str, level: str | None, words: str) -> None:
    found = findings(seen(measure(tree("mlx5"), {name: index})))
    if level is None:
        assert levels(found) == ["ok"]
        return
    one = holding(found, words)
    assert (one.level, one.remedy) == (level, "unset it, or take 1 or 3")
    assert f"{name}={index}" in one.seen


def test_an_index_that_is_right_on_one_host_only(tmp_path: Path) -> None:
    environment = {"NCCL_IB_GID_INDEX": "1"}
    other = changed("rxe", tmp_path, {f"{RXE}/gids/1": "0000:0000:0000:0000:0000:0000:0000:0000"})
    found = findings(seen(measure(tree("rxe"), environment), measure(other, environment)))
    one = holding(found, "points to an unset address")
    assert (one.level, one.differs) == ("problem", True)
    assert "(on b)" in one.seen


def test_no_file_in_dev_is_a_pod_without_the_resource() -> None:
    one = holding(findings(seen(measure(tree("pod"), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}))), "no file in /dev")
    assert one.level == "warning"
    assert "rdma/..." in one.remedy
    assert "modprobe" in holding(findings(seen(measure(tree("pod"), {}))), "no file in /dev").remedy


def test_no_address_of_version_2(tmp_path: Path) -> None:
    root = changed("rxe", tmp_path, {f"{RXE}/gid_attrs/types/{k}": "IB/RoCE v1" for k in (0, 1)})
    one = holding(findings(seen(measure(root, {}))), "rxe0:1 has no RoCE v2 address")
    assert "ip addr add" in one.remedy


def test_a_host_without_a_device_among_others(tmp_path: Path) -> None:
    found = findings(seen(measure(tree("rxe"), {}), measure(str(tmp_path), {})))
    one = holding(found, "no RDMA device on b, but on a")
    assert one.differs
    assert one.source == "nccl#234"


def test_unlike_rates_mtus_and_names(tmp_path: Path) -> None:
    root = changed("mlx5", tmp_path, {f"{MLX5}/rate": "100 Gb/sec (4X EDR)", "sys/class/net/ens1f0np0/mtu": "1500"})
    found = findings(seen(measure(tree("mlx5"), {}), measure(root, {})))
    assert "100 Gbit/s on b" in holding(found, "the rate of mlx5_0:1 differs").seen
    assert "1500 on b" in holding(found, "the MTU of the interface of mlx5_0:1 differs").seen
    found = findings(seen(measure(tree("mlx5"), {}), measure(tree("rxe"), {})))
    assert holding(found, "the set of ports differs").differs
