"""What the doctor makes of settings: files that hold some, hosts that differ, interfaces that are not there."""

from pathlib import Path

import pytest

from collbench.doctor import interfaces, settings
from sysfs_trees import changed, holding, levels, seen, tree

HOME = {"HOME": "/home/me"}


def facts(folder: Path, files: dict[str, str | bytes | None], environment: dict[str, str]) -> settings.Facts:
    return settings.measure(changed("", folder, files), environment, "/opt/ompi/lib/libmpi.so.40")


def test_no_files_and_no_settings_are_nothing_to_say(tmp_path: Path) -> None:
    assert settings.findings(seen(facts(tmp_path, {}, HOME))) == []


def test_files_that_hold_settings_are_told(tmp_path: Path) -> None:
    files: dict[str, str | bytes | None] = {
        "etc/nccl.conf": "# ours\nNCCL_ALGO=Ring\nNCCL_PROTO = Simple",
        "home/me/.nccl.conf": "NCCL_ALGO=Tree",
        "opt/ompi/etc/openmpi-mca-params.conf": "btl = tcp,self\n#pml = ucx",
        "home/me/.openmpi/mca-params.conf": "pml = ob1",
        "opt/ompi/etc/ucx/ucx.conf": "[UCX]\nUCX_TLS=tcp",
    }
    found = facts(tmp_path, files, HOME | {"UCX_TLS": "rc"})
    assert {one.name: (one.value, one.source) for one in found.effective} == {
        "UCX_TLS": ("rc", "the environment"),
        "NCCL_ALGO": ("Tree", "/home/me/.nccl.conf"),
        "NCCL_PROTO": ("Simple", "/etc/nccl.conf"),
        "OMPI_MCA_pml": ("ob1", "/home/me/.openmpi/mca-params.conf"),
        "OMPI_MCA_btl": ("tcp,self", "/opt/ompi/etc/openmpi-mca-params.conf"),
    }
    told = settings.findings(seen(found))
    assert set(levels(told)) == {"note"}
    assert holding(told, "/etc/nccl.conf sets NCCL_ALGO=Ring, NCCL_PROTO=Simple").remedy
    assert holding(told, "/opt/ompi/etc/ucx/ucx.conf sets UCX_TLS=tcp")


def test_each_open_mpi_has_its_own_file(tmp_path: Path) -> None:
    root = changed("", tmp_path, {"etc/openmpi/openmpi-mca-params.conf": "pml = ^ucx"})
    own = settings.measure(root, HOME, "/opt/ompi/lib/libmpi.so.40")
    distribution = settings.measure(root, HOME, "/usr/lib/x86_64-linux-gnu/openmpi/lib/libmpi.so.40")
    assert settings.value_of(own, "OMPI_MCA_pml") is None
    assert settings.value_of(distribution, "OMPI_MCA_pml") == settings.Setting(
        "OMPI_MCA_pml", "^ucx", "/etc/openmpi/openmpi-mca-params.conf"
    )


def test_nccl_conf_file_takes_the_place_of_ones_own(tmp_path: Path) -> None:
    files: dict[str, str | bytes | None] = {"my.conf": "NCCL_ALGO=Ring", "home/me/.nccl.conf": "NCCL_ALGO=Tree"}
    found = facts(tmp_path, files, HOME | {"NCCL_CONF_FILE": "/my.conf"})
    assert settings.value_of(found, "NCCL_ALGO") == settings.Setting("NCCL_ALGO", "Ring", "/my.conf")


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    found = facts(tmp_path, {"etc/nccl.conf": "NCCL_ENV=API_KEY=abc\nHOME=/x"}, HOME | {"UCX_TOKEN": "abc"})
    assert "abc" not in repr(found)
    assert "HOME" not in {one.name for one in found.effective}


def test_a_file_on_one_host_only_is_a_difference(tmp_path: Path) -> None:
    with_file = facts(tmp_path, {"etc/nccl.conf": "NCCL_IB_HCA=mlx5_0"}, HOME)
    found = settings.findings(seen(facts(tmp_path, {}, HOME), facts(tmp_path, {}, HOME), with_file))
    one = holding(found, "NCCL_IB_HCA differs between hosts")
    assert one.differs
    assert one.seen.endswith("mlx5_0 (from /etc/nccl.conf) on c; not set on a, b")
    own = settings.findings(
        seen(facts(tmp_path, {}, {"SLURM_JOB_ID": "1"}), facts(tmp_path, {}, {"SLURM_JOB_ID": "2"}))
    )
    assert own == []


@pytest.mark.parametrize(
    ("name", "value", "missing"),
    [
        ("NCCL_SOCKET_IFNAME", "ens", ""),  # a prefix
        ("NCCL_SOCKET_IFNAME", "=ens1f0np0", ""),
        ("NCCL_SOCKET_IFNAME", "eth0", "eth0"),
        ("NCCL_SOCKET_IFNAME", "^eth0,docker", ""),
        ("NCCL_IB_HCA", "mlx5", ""),
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_7:1", "mlx5_7:1"),
        ("UCX_NET_DEVICES", "all", ""),
        ("UCX_NET_DEVICES", "mlx5_0:1", ""),
        ("UCX_NET_DEVICES", "eno1,rxe0:1", "rxe0:1"),
        ("OMPI_MCA_btl_tcp_if_include", "eno1", ""),
        ("OMPI_MCA_btl_tcp_if_include", "en", "en"),  # not a prefix
        ("OMPI_MCA_oob_tcp_if_include", "eth0", "eth0"),
        ("GLOO_SOCKET_IFNAME", "ib0", "ib0"),
        ("FI_TCP_IFACE", "eno1", ""),
        ("FI_TCP_IFACE", "eth1", "eth1"),
    ],
)
def test_names_of_interfaces(name: str, value: str, missing: str) -> None:
    found = interfaces.findings(seen(interfaces.measure(tree("mlx5"), {name: value})))
    if not missing:
        assert levels(found) == ["ok"]
        return
    assert levels(found) == ["warning"]
    assert found[0].seen == f"{name}={value} (from the environment) names {missing}, which is not here"
    assert found[0].remedy.startswith("name one of ")


def test_an_interface_that_is_down() -> None:
    (one,) = interfaces.findings(seen(interfaces.measure(tree("mlx5"), {"GLOO_SOCKET_IFNAME": "eno2"})))
    assert "eno2, which is down" in one.seen
    assert one.remedy.startswith("ip link set eno2 up")


def test_a_network_stands_for_the_interface_that_is_in_it() -> None:
    name = "OMPI_MCA_btl_tcp_if_include"
    assert levels(interfaces.findings(seen(interfaces.measure(tree("pod"), {name: "10.244.0.0/16"})))) == ["ok"]
    (one,) = interfaces.findings(seen(interfaces.measure(tree("pod"), {name: "10.9.0.0/16"})))
    assert one.level == "warning"


def test_an_interface_that_one_host_lacks() -> None:
    environment = {"NCCL_SOCKET_IFNAME": "ens"}
    hosts = [interfaces.measure(tree(name), environment) for name in ("mlx5", "rxe")]
    (one,) = interfaces.findings(seen(*hosts))
    assert one.differs
    assert "(on b)" in one.seen
    assert one.remedy == "name one of eth0"


def test_mtus_that_differ_between_hosts(tmp_path: Path) -> None:
    jumbo, usual = (
        changed("mlx5", tmp_path, {"sys/class/net/eno1/mtu": mtu, "sys/class/net/docker0/mtu": mtu})
        for mtu in ("9000", "1500")
    )
    assert interfaces.findings(seen(interfaces.measure(usual, {}), interfaces.measure(usual, {}))) == []
    (one,) = interfaces.findings(seen(interfaces.measure(usual, {}), interfaces.measure(jumbo, {})))
    assert one.differs
    assert one.seen == "the MTU of eno1 differs between hosts: 1500 on a; 9000 on b"


def test_a_name_from_a_file_is_found_too(tmp_path: Path) -> None:
    root = changed("mlx5", tmp_path, {"etc/nccl.conf": "NCCL_SOCKET_IFNAME=bond0"})
    (one,) = interfaces.findings(seen(interfaces.measure(root, {})))
    assert "(from /etc/nccl.conf) names bond0" in one.seen


def test_a_launch_records_what_files_hold_without_naming_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".nccl.conf").write_text("NCCL_ALGO=Ring\nSOMETHING=else\nNCCL_AUTH_TOKEN=secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NCCL_CONF_FILE", raising=False)
    found = settings.by_file()
    assert found["~/.nccl.conf"]["NCCL_ALGO"] == "Ring"
    assert "SOMETHING" not in found["~/.nccl.conf"]
    assert "secret" not in str(found)
