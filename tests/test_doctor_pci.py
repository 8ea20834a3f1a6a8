"""What the doctor makes of PCI Express, on configuration spaces made up bit by bit, and of NCCL's topology file."""

from pathlib import Path

from collbench.doctor import congestion, nccl_topology, pci
from sysfs_trees import changed, holding, levels, seen, tree

DEVICES = "sys/bus/pci/devices"
NIC, GPU, BRIDGE = "0000:18:00.0", "0000:1a:00.0", "0000:17:00.0"


def config(*, relaxed: bool = True, ats: bool | None = None, redirect: bool | None = None) -> bytes:
    """4096 bytes with the PCI Express capability, and where asked for ATS and ACS, behind another of each kind."""
    space = bytearray(4096)
    space[0x34] = 0x40
    space[0x40:0x42] = bytes([0x01, 0x60])  # power management, then
    space[0x60:0x62] = bytes([0x10, 0x00])
    space[0x68] = 0x10 if relaxed else 0
    extended = [(0x0001, 0)]  # error reporting
    if ats is not None:
        extended.append((0x000F, 0x8000 if ats else 0))
    if redirect is not None:
        extended.append((0x000D, 0x04 if redirect else 0x01))
    for k, (capability, control) in enumerate(extended):
        at = 0x100 + 0x40 * k
        after = at + 0x40 if k + 1 < len(extended) else 0
        space[at : at + 4] = (capability | 1 << 16 | after << 20).to_bytes(4, "little")
        space[at + 6 : at + 8] = control.to_bytes(2, "little")
    return bytes(space)


def machine(
    folder: Path, base: str = "mlx5", nic: bytes | None = None, bridge: bytes | None = None, gpus: int = 1
) -> str:
    files: dict[str, str | bytes | None] = {}
    devices = {NIC: ("0x15b3", "0x020000", nic or config()), BRIDGE: ("0x8086", "0x060400", bridge or config())}
    for k in range(gpus):
        devices[f"0000:{0x1A + k:x}:00.0"] = ("0x10de", "0x030200", config())
    for address, (vendor, kind, space) in devices.items():
        files |= {f"{DEVICES}/{address}/{name}": value for name, value in (("vendor", vendor), ("class", kind))}
        files[f"{DEVICES}/{address}/config"] = space
    files[f"{DEVICES}/{NIC}/infiniband/mlx5_0/node_type"] = "1: CA"
    return changed(base, folder, files)


def test_without_devices_there_is_nothing_to_say() -> None:
    assert pci.findings(seen(pci.measure(tree("mlx5")))) == []


def test_bits_are_read_where_they_are(tmp_path: Path) -> None:
    facts = pci.measure(machine(tmp_path, nic=config(relaxed=False, ats=True), bridge=config(redirect=True)))
    assert facts.devices == (
        pci.Device(NIC, False, True, relaxed_ordering=False, ats=True),
        pci.Device(GPU, True, True, relaxed_ordering=True, ats=None),
    )
    assert facts.redirecting == (BRIDGE,)
    assert pci.measure(machine(tmp_path, bridge=config(redirect=False))).redirecting == ()


def test_a_healthy_machine(tmp_path: Path) -> None:
    found = pci.findings(seen(pci.measure(machine(tmp_path))))
    assert [(one.level, one.seen) for one in found] == [("ok", "relaxed ordering is on at 1 RDMA devices")]


def test_without_root_nothing_is_guessed(tmp_path: Path) -> None:
    root = machine(tmp_path, nic=config()[:64], bridge=config(redirect=True)[:64])
    (Path(root) / DEVICES / GPU / "config").write_bytes(config()[:64])
    found = pci.findings(seen(pci.measure(root)))
    assert [(one.level, one.seen) for one in found] == [
        ("note", "ACS, ATS and relaxed ordering are not readable without root")
    ]


def test_acs_on_a_bare_machine_with_gpus(tmp_path: Path) -> None:
    bridge = config(redirect=True)
    one = holding(pci.findings(seen(pci.measure(machine(tmp_path, bridge=bridge)))), "ACS")
    assert one.level == "warning"
    # Without GPUs nothing goes directly between devices; under a hypervisor ACS must stay.
    assert levels(pci.findings(seen(pci.measure(machine(tmp_path, bridge=bridge, gpus=0))))) == ["ok"]
    found = pci.findings(seen(pci.measure(machine(tmp_path, "pvrdma", nic=config(ats=True), bridge=bridge))))
    assert levels(found) == ["ok"]


def test_ats_in_a_virtual_machine(tmp_path: Path) -> None:
    for space in (config(ats=False), config()):
        one = holding(pci.findings(seen(pci.measure(machine(tmp_path, "pvrdma", nic=space)))), "ATS is not on")
        assert (one.level, "mlxconfig" in one.remedy) == ("warning", True)


def test_relaxed_ordering_that_is_off_on_one_host(tmp_path: Path) -> None:
    hosts = [pci.measure(machine(tmp_path, nic=config(relaxed=on))) for on in (True, False)]
    assert "(on b)" in holding(pci.findings(seen(*hosts)), "relaxed ordering is off").seen


def test_topology_files(tmp_path: Path) -> None:
    bare, virtual = machine(tmp_path, gpus=2), machine(tmp_path, "pvrdma", gpus=2)
    assert nccl_topology.findings(seen(nccl_topology.measure(bare, {}))) == []
    (one,) = nccl_topology.findings(seen(nccl_topology.measure(virtual, {})))
    assert (one.level, "2 GPUs in a virtual machine" in one.seen) == ("note", True)
    asked = {"NCCL_TOPO_FILE": "/etc/topology.xml"}
    (one,) = nccl_topology.findings(seen(nccl_topology.measure(virtual, asked)))
    assert (one.level, one.seen) == ("warning", "NCCL_TOPO_FILE=/etc/topology.xml is not there")
    given = changed("", tmp_path, {"etc/topology.xml": "<system/>"})
    found = nccl_topology.findings(seen(nccl_topology.measure(given, asked), nccl_topology.measure(virtual, {})))
    assert levels(found) == ["warning (differs)", "ok", "note"]
    default = changed("", tmp_path, {nccl_topology.VIRTUAL.lstrip("/"): "<system/>"})
    assert nccl_topology.measure(default, {}).default_is_there


def test_ecn_where_the_driver_shows_it(tmp_path: Path) -> None:
    ecn, pfc = congestion.findings(seen(congestion.measure(tree("mlx5"))))
    assert ecn.level == "ok"
    assert ecn.seen == "ECN: mlx5_0:1 notification point on for priorities 3, reaction point on for priorities 3"
    assert (pfc.level, "not readable" in pfc.seen) == ("note", True)
    off = changed("mlx5", tmp_path, {"sys/class/net/ens1f0np0/ecn/roce_rp/enable/3": "0"})
    found = congestion.findings(seen(congestion.measure(off)))
    assert holding(found, "reaction point off").level == "warning"
    found = congestion.findings(seen(congestion.measure(tree("mlx5")), congestion.measure(off)))
    assert holding(found, "ECN differs").differs


def test_what_is_not_readable_is_said_and_not_guessed() -> None:
    found = congestion.findings(seen(congestion.measure(tree("pvrdma"))))
    assert levels(found) == ["note", "note"]
    assert all("not readable" in one.seen for one in found)
    (one,) = congestion.findings(seen(congestion.measure(tree("rxe"))))
    assert "neither PFC nor ECN" in one.seen


def test_traffic_classes_that_differ(tmp_path: Path) -> None:
    path = "sys/class/infiniband/mlx5_0/tc/1/traffic_class"
    other = changed("mlx5", tmp_path, {path: "Global tclass=0"})
    found = congestion.findings(seen(congestion.measure(tree("mlx5")), congestion.measure(other)))
    assert "tclass=0 on b" in holding(found, "the traffic class of RoCE differs").seen
