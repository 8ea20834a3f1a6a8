"""What devices are and how they are linked, of machines that a test describes; tests/gpu has the real ones."""

from types import SimpleNamespace
from typing import Any

import pytest

from collbench import devices
from collbench.devices import Link, access, facts, links, paths
from collbench.nvml import NOT_AVAILABLE
from fake_nvml import Device, as_nvml, hexadecimal, installed, links_to

GIB = 1 << 30
SYSTEM = {"GetDriverVersion": "570.86.15", "GetCudaDriverVersion": 12080}


def test_a_machine_without_nvml_has_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "nvml", lambda: "NVML cannot be used (why)")
    monkeypatch.setattr(devices, "opened", lambda: None)
    assert facts(hexadecimal(1)) == {"nvml": "NVML cannot be used (why)"}
    assert links([hexadecimal(1), hexadecimal(2)]) == [[Link()] * 2] * 2
    assert paths(links([hexadecimal(1)])) == ["not_available"]
    assert access(links([hexadecimal(1)])) == ["?"]


def test_a_device_that_nvml_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch):
        assert list(facts(hexadecimal(1))) == ["nvml"]
        assert links([hexadecimal(1)])[0][0] == Link()


def test_everything_denied_is_not_available_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, Device(as_nvml(1))):
        found = facts(hexadecimal(1))
    assert len(found) > 15
    assert set(found.values()) == {NOT_AVAILABLE}


def test_the_facts_of_a_whole_device(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {
        "GetName": b"NVIDIA H200",
        "GetUUID": as_nvml(1),
        "GetMemoryInfo": SimpleNamespace(total=141 * GIB, free=0, used=0),
        "GetComputeMode": 3,
        "GetPersistenceMode": 1,
        "GetEccMode": [1, 1],
        "GetMigMode": [0, 0],
        "GetVirtualizationMode": 1,
        "GetPciInfo": SimpleNamespace(busId=b"00000000:18:00.0"),
        "GetCurrPcieLinkGeneration": 1,
        "GetMaxPcieLinkGeneration": 5,
        "GetCurrPcieLinkWidth": 16,
        "GetMaxPcieLinkWidth": 16,
        "GetCpuAffinity": lambda words: [0b1111, *[0] * (words - 1)],
        "GetEnforcedPowerLimit": 700000,
        "GetMaxClockInfo": lambda kind: {1: 1980, 2: 3201}[kind],
    }
    with installed(monkeypatch, Device(as_nvml(1), answers), system=SYSTEM):
        found = facts(hexadecimal(1))
    found.pop("numa_node")  # by this machine's kernel
    assert found == {
        "name": "NVIDIA H200",
        "uuid": as_nvml(1),
        "driver_version": "570.86.15",
        "cuda_driver_version": "12.8",
        "memory_bytes": 141 * GIB,
        "compute_mode": "exclusive process",
        "persistence": "on",
        "ecc": "on",
        "pci": "00000000:18:00.0",
        "pcie_generation": 1,
        "pcie_generation_most": 5,
        "pcie_width": 16,
        "pcie_width_most": 16,
        "cores_near": "0-3",
        "power_limit_W": 700.0,
        "clock_most_MHz": 1980,
        "memory_clock_most_MHz": 3201,
        "mig": "off",
        "virtualization": "pass-through",
    }


def test_the_facts_of_an_instance_and_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Device(as_nvml(1), {"GetName": "NVIDIA A100-SXM4-80GB", "GetMigMode": [1, 1], "GetEccMode": [0, 0]})
    answers = {
        "GetName": "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
        "GetUUID": as_nvml(2, "MIG"),
        "GetMemoryInfo": SimpleNamespace(total=40 * GIB),
        "GetGpuInstanceId": 2,
        "GetComputeInstanceId": 0,
        "GetAttributes": SimpleNamespace(gpuInstanceSliceCount=3, multiprocessorCount=42),
    }
    with installed(monkeypatch, whole, Device(as_nvml(2, "MIG"), answers, parent=whole)):
        found = facts(hexadecimal(2))
    assert found["name"] == "NVIDIA A100-SXM4-80GB MIG 3g.40gb"
    assert (found["memory_bytes"], found["ecc"]) == (40 * GIB, "off")
    assert (found["mig"], found["mig_parent"]) == ("on", "NVIDIA A100-SXM4-80GB")
    assert (found["mig_gpu_instance"], found["mig_compute_instance"]) == (2, 0)
    assert (found["mig_slices"], found["multiprocessors"]) == (3, 42)


def licence(state: int, supported: int = 1) -> Any:
    feature = SimpleNamespace(featureState=state, productName=b"NVIDIA Virtual Compute Server", licenseInfo=b"")
    return SimpleNamespace(
        isGridLicenseSupported=supported, licensableFeaturesCount=1, gridLicensableFeatures=[feature]
    )


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (licence(1), "NVIDIA Virtual Compute Server: licensed"),
        (licence(0), "unlicensed: the driver cuts its speed after some time"),
        (licence(0, supported=0), "not needed"),
        (None, NOT_AVAILABLE),
    ],
)
def test_a_vgpu_tells_its_type_and_licence(monkeypatch: pytest.MonkeyPatch, features: Any, said: str) -> None:
    answers = {"GetName": "GRID A100-40C", "GetVirtualizationMode": 2}
    answers |= {"GetGridLicensableFeatures": features} if features else {}
    with installed(monkeypatch, Device(as_nvml(1), answers)):
        found = facts(hexadecimal(1))
    assert (found["virtualization"], found["vgpu_type"], found["vgpu_licence"]) == ("vGPU", "A100-40C", said)


def device(number: int, links: dict[str, Any], level: int = 50, nvlink: int = 0) -> Device:
    """A device at its own address, with NVLinks, a way over PCIe to every other, and a status of peer access."""
    return Device(
        as_nvml(number),
        links
        | {
            "GetPciInfo": SimpleNamespace(busId=f"0000000{number}:18:00.0".encode()),
            "GetTopologyCommonAncestor": lambda other: level,
            "GetP2PStatus": lambda other, kind: nvlink if kind == 2 else 0,
        },
    )


def test_direct_links_are_counted_by_the_far_ends_address(monkeypatch: pytest.MonkeyPatch) -> None:
    one = device(
        1, links_to((0, "00000002:18:00.0", 25781), (0, "00000002:18:00.0", 25781), (0, "00000003:18:00.0", 1))
    )
    two = device(2, links_to((0, "00000001:18:00.0", 25781), (0, "00000001:18:00.0", 25781)))
    with installed(monkeypatch, one, two, device(4, {}, level=10, nvlink=5)):
        found = links([hexadecimal(1), hexadecimal(2), hexadecimal(4)])
    assert paths(found) == ["X NV2 SYS", "NV2 X SYS", "PIX PIX X"]
    assert access(found) == ["X nvlink nvlink", "nvlink X nvlink", "pcie pcie X"]
    assert found[0][1] == Link("NV2", "ok", "ok", "ok", 2, "4.0", 2 * 25781e6)
    assert found[0][2].nvlinks == 0  # link 2 leads to a device that is not ours
    assert found[2][0] == Link("PIX", "ok", "ok", "not supported")


def test_through_switches_all_links_lead_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (device(n, links_to(*[(2, "0000000f:01:00.0", 26562)] * 18)) for n in (1, 2))
    with installed(monkeypatch, one, two):
        link = links([hexadecimal(1), hexadecimal(2)])[0][1]
    assert (link.path, link.nvlinks, link.nvlink_version) == ("NV18", 18, "4.0")
    assert link.nvlink_bytes_per_s == 18 * 26562e6


def test_a_pair_has_as_many_links_as_its_poorer_device(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (device(n, links_to(*[(2, "0000000f:01:00.0", 26562)] * many)) for n, many in ((1, 18), (2, 16)))
    with installed(monkeypatch, one, two):
        assert paths(links([hexadecimal(1), hexadecimal(2)])) == ["X NV16", "NV16 X"]


def test_links_that_lead_elsewhere_are_not_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (device(n, links_to(*[(0, "0000000e:18:00.0", 25781)] * 4)) for n in (1, 2))
    with installed(monkeypatch, one, two):
        assert paths(links([hexadecimal(1), hexadecimal(2)])) == ["X SYS", "SYS X"]


def test_a_guest_that_is_not_told_the_far_end_goes_by_peer_access(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(number: int, nvlink: int) -> Device:
        made = device(number, links_to(*[(0, "", 0)] * 12), nvlink=nvlink)
        for name in ("GetNvLinkRemotePciInfo", "GetNvLinkRemoteDeviceType", "GetFieldValues"):
            del made.answers[name]
        return made

    with installed(monkeypatch, hidden(1, 0), hidden(2, 0)):
        link = links([hexadecimal(1), hexadecimal(2)])[0][1]
    assert (link.path, link.nvlink_version, link.nvlink_bytes_per_s) == ("NV12", "", None)
    with installed(monkeypatch, hidden(1, 5), hidden(2, 5)):
        assert paths(links([hexadecimal(1), hexadecimal(2)])) == ["X SYS", "SYS X"]


def test_the_same_device_twice_and_one_that_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, device(1, {}, nvlink=5)):
        found = links([hexadecimal(1), hexadecimal(1), hexadecimal(9)])
    assert [link.path for link in found[0]] == ["X", "X", NOT_AVAILABLE]
    assert found[2][0] == Link()
