"""What the doctor makes of the ranks' devices."""

import pytest

from collbench.doctor.gpu import RankDevice, findings, share_of


def device(rank: int, uuid: str, **facts: object) -> RankDevice:
    return RankDevice(rank, "a", uuid=uuid, facts=(("name", "H200"), *facts.items()))


def test_a_machine_without_a_gpu_is_one_sentence() -> None:
    (one,) = findings([RankDevice(0, "a", "no CUDA driver"), RankDevice(1, "a", "no CUDA driver")], {})
    assert (one.check, one.level, one.seen) == ("gpu", "note", "no CUDA driver")


def test_a_rank_without_a_device_among_others_is_named() -> None:
    found = findings([device(0, "x"), RankDevice(1, "b", "no CUDA driver")], {})
    assert [(one.level, one.seen) for one in found] == [
        ("warning", "rank 1 on b: no CUDA driver"),
        ("ok", "1 x H200"),
    ]


def test_shared_devices_and_links() -> None:
    found = findings([device(0, "x"), device(1, "x"), device(2, "y")], {"a": ["X X NV18", "X X NV18", "NV18 NV18 X"]})
    assert [one.level for one in found] == ["ok", "warning", "ok"]
    assert found[0].seen == "2 x H200"
    assert (found[1].seen, found[1].remedy) == ("ranks 0, 1 share devices", "start one rank a device")
    assert "NV18" in found[2].seen


def test_a_list_that_ends_early_is_the_cause_of_sharing() -> None:
    ranks = [RankDevice(rank, "a", uuid="x", cut_short="CUDA_VISIBLE_DEVICES is '0,9'") for rank in (0, 1)]
    seen, one = findings(ranks, {})[:2]
    assert seen.seen.startswith("1 x ")
    assert one.seen == "ranks 0, 1 share devices; CUDA_VISIBLE_DEVICES is '0,9'"
    assert one.remedy == "correct CUDA_VISIBLE_DEVICES"


def test_a_device_is_the_same_in_another_pod() -> None:
    elsewhere = RankDevice(1, "b", uuid="x", facts=(("name", "H200"),))
    (_, one) = findings([device(0, "x"), elsewhere, device(2, "y")], {})
    assert (one.level, one.seen) == ("warning", "ranks 0 on a, 1 on b share devices")


def test_vgpus_without_nvlink_or_licence_are_warned_of() -> None:
    ranks = [
        device(0, "x", virtualization="vGPU", vgpu_licence="unlicensed: ..."),
        device(1, "y", virtualization="vGPU"),
    ]
    found = findings(ranks, {"a": ["X PHB", "PHB X"]})
    assert [one.level for one in found] == ["ok", "warning", "note", "warning"]
    assert "no licence" in found[1].seen
    assert "NVLink only" in found[3].why


def vgpu(rank: int, kind: str, **facts: object) -> RankDevice:
    found = {"name": f"NVIDIA {kind}", "virtualization": "vGPU", "vgpu_type": kind} | facts
    return RankDevice(rank, "a", uuid=str(rank), facts=tuple(found.items()))


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("A100-40C", "full"), ("A100-20C", "fractional"), ("A100DX-80C", "full"), ("A100D-40C", "fractional"),
        ("H100XM-80C", "full"), ("A100-2-10C", "MIG"), ("H100XM-3-40C", "MIG"), ("X900-12C", ""), ("nonsense", ""),
    ],
)  # fmt: skip
def test_profiles(kind: str, share: str) -> None:
    assert share_of(vgpu(0, kind)) == share


def test_instances_and_bare_devices() -> None:
    assert share_of(device(0, "x", virtualization="none", mig_parent="H200", mig_gpu_instance=1)) == "MIG"
    assert share_of(device(0, "x", virtualization="none")) == ""
    (_, one) = findings([device(0, "x", virtualization="none", mig_parent="H200", mig_gpu_instance=1)], {})
    assert (one.level, "do not reach each other's memory" in one.why) == ("note", True)


def test_a_fractional_profile_is_warned_of() -> None:
    found = findings([vgpu(0, "A100-20C"), vgpu(1, "A100-20C")], {"a": ["X PHB", "PHB X"]})
    assert [one.level for one in found] == ["ok", "warning", "warning"]
    assert found[1].seen == "fractional vGPU profile A100-20C"
    assert "enable_uvm" not in found[2].remedy


def test_the_trap_of_unified_memory_on_a100() -> None:
    pcie, nvlink = {"a": ["X PIX", "PIX X"]}, {"a": ["X NV12", "NV12 X"]}
    full = [vgpu(0, "A100-40C"), vgpu(1, "A100-40C")]
    assert "enable_uvm = 0" in findings(full, pcie)[-1].remedy
    assert {one.level for one in findings(full, nvlink)} == {"ok"}
    hopper = findings([vgpu(0, "H100XM-80C"), vgpu(1, "H100XM-80C")], pcie)
    assert "enable_uvm" not in hopper[-1].remedy
    assert hopper[-1].level == "warning"


def test_the_matrix_of_peer_access() -> None:
    links = {"a": ["X NV18", "NV18 X"]}
    ranks = [device(0, "x"), device(1, "y")]
    assert findings(ranks, links, {"a": ["X nvlink", "nvlink X"]})[-1].level == "ok"
    refused = findings(ranks, links, {"a": ["X no", "no X"]})[-1]
    assert (refused.level, "refused" in refused.seen) == ("note", True)


def test_drivers_that_differ() -> None:
    ranks = [device(0, "x", driver_version="580.1"), device(1, "y", driver_version="570.2")]
    (one,) = [one for one in findings(ranks, {}) if one.differs]
    assert one.seen == "the devices' driver version differs: 580.1 on ranks 0; 570.2 on ranks 1"
