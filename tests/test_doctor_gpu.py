"""What the doctor makes of the ranks' devices."""

from collbench.doctor.gpu import RankDevice, findings


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
    assert found[1].seen == "ranks 0, 1 share devices"
    assert "NV18" in found[2].seen


def test_vgpus_without_nvlink_or_licence_are_warned_of() -> None:
    ranks = [
        device(0, "x", virtualization="vGPU", vgpu_licence="unlicensed: ..."),
        device(1, "y", virtualization="vGPU"),
    ]
    found = findings(ranks, {"a": ["X PHB", "PHB X"]})
    assert [one.level for one in found] == ["ok", "warning", "warning"]
    assert "no licence" in found[1].seen
    assert "NVLink only" in found[2].why
