"""Limits against figures that were worked out by hand and agree with the data sheets."""

from types import SimpleNamespace

import pytest

from collbench import device_limits
from collbench.device_limits import memory_limit, nvlink_limit, pcie_limit
from fake_nvml import Device, as_nvml, hexadecimal, installed, links_to


def memory(megahertz: int, bits: int) -> dict[str, object]:
    return {"GetMaxClockInfo": lambda kind: {2: megahertz}[kind], "GetMemoryBusWidth": bits}


@pytest.mark.parametrize(
    ("megahertz", "bits", "rate_GBps"),
    [
        (1215, 5120, 1555.2),  # A100 40 GB: 1555
        (2619, 5120, 3352.32),  # H100: 3350
        (3201, 6144, 4916.736),  # H200: 4.9 TB/s
        (5001, 256, 320.064),  # T4: 320
    ],
)
def test_memory(monkeypatch: pytest.MonkeyPatch, megahertz: int, bits: int, rate_GBps: float) -> None:  # noqa: N803
    with installed(monkeypatch, Device(as_nvml(1), memory(megahertz, bits))):
        limit = memory_limit(hexadecimal(1))
    assert limit is not None
    assert limit.GBps == pytest.approx(rate_GBps)
    assert limit.bytes_per_s == pytest.approx(rate_GBps * 1e9)
    assert limit.source == f"memory {megahertz} MHz x 2 x {bits} bit"


@pytest.mark.parametrize(("gibibytes", "slices"), [(9.5, 1), (19.5, 2), (39.5, 4), (79, 8)])
def test_an_instance_has_its_slices_of_the_memorys_rate(
    monkeypatch: pytest.MonkeyPatch, gibibytes: float, slices: int
) -> None:
    whole = Device(as_nvml(1), memory(1593, 5120) | {"GetMemoryInfo": SimpleNamespace(total=80 << 30)})
    part = {"GetMemoryInfo": SimpleNamespace(total=int(gibibytes * 2**30))}
    with installed(monkeypatch, whole, Device(as_nvml(2, "MIG"), part, parent=whole)):
        limit = memory_limit(hexadecimal(2))
    assert limit is not None
    assert limit.GBps == pytest.approx(2039.04 * slices / 8)
    assert limit.source == f"{slices} of 8 memory slices of memory 1593 MHz x 2 x 5120 bit"


def test_an_instance_of_unknown_size_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Device(as_nvml(1), memory(1593, 5120))
    with installed(monkeypatch, whole, Device(as_nvml(2, "MIG"), parent=whole)):
        assert memory_limit(hexadecimal(2)) is None


def test_what_nvml_denies_cuda_may_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = {"MemoryClockRate": 1215000, "GlobalMemoryBusWidth": 5120}
    with installed(monkeypatch, Device(as_nvml(1))):
        assert memory_limit(hexadecimal(1)) is None
        limit = memory_limit(hexadecimal(1), attributes)
    assert limit is not None
    assert limit.GBps == pytest.approx(1555.2)
    assert limit.source == "memory 1215 MHz x 2 x 5120 bit"


@pytest.mark.parametrize(
    ("generation", "lanes", "rate_GBps", "source"),
    [
        (1, 16, 4.0, "PCIe 1 x16 each way: 2.5 GT/s x 16 lanes x 8/10"),
        (3, 16, 15.753846, "PCIe 3 x16 each way: 8 GT/s x 16 lanes x 128/130"),
        (4, 8, 15.753846, "PCIe 4 x8 each way: 16 GT/s x 8 lanes x 128/130"),
        (5, 16, 63.015385, "PCIe 5 x16 each way: 32 GT/s x 16 lanes x 128/130"),
        (6, 16, 128.0, "PCIe 6 x16 each way: 64 GT/s x 16 lanes"),
    ],
)
def test_pcie(
    monkeypatch: pytest.MonkeyPatch,
    generation: int,
    lanes: int,
    rate_GBps: float,  # noqa: N803
    source: str,
) -> None:
    answers = {"GetMaxPcieLinkGeneration": generation, "GetMaxPcieLinkWidth": lanes, "GetCurrPcieLinkGeneration": 1}
    with installed(monkeypatch, Device(as_nvml(1), answers)):
        limit = pcie_limit(hexadecimal(1))
    assert limit is not None
    assert limit.GBps == pytest.approx(rate_GBps)
    assert limit.source == source


@pytest.mark.parametrize(("generation", "lanes"), [(0, 16), (5, 0), (9, 16), (None, 16), (5, None)])
def test_pcie_that_is_not_told(monkeypatch: pytest.MonkeyPatch, generation: int | None, lanes: int | None) -> None:
    answers = {"GetMaxPcieLinkGeneration": generation, "GetMaxPcieLinkWidth": lanes}
    with installed(
        monkeypatch, Device(as_nvml(1), {name: value for name, value in answers.items() if value is not None})
    ):
        assert pcie_limit(hexadecimal(1)) is None


def test_nvlink(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (Device(as_nvml(n), links_to(*[(2, "0000000f:01:00.0", 26562)] * 18)) for n in (1, 2))
    with installed(monkeypatch, one, two, Device(as_nvml(3))):
        limit = nvlink_limit(hexadecimal(1), hexadecimal(2))
        assert nvlink_limit(hexadecimal(1), hexadecimal(3)) is None
        assert nvlink_limit(hexadecimal(1), hexadecimal(1)) is None
    assert limit is not None
    assert limit.GBps == pytest.approx(478.116)
    assert limit.source == "18 NVLinks x 26.562 GB/s one way"


def test_a_machine_without_nvml_has_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_limits, "opened", lambda: None)
    monkeypatch.setattr("collbench.devices.opened", lambda: None)
    assert memory_limit(hexadecimal(1)) is None
    assert pcie_limit(hexadecimal(1)) is None
    assert nvlink_limit(hexadecimal(1), hexadecimal(2)) is None
