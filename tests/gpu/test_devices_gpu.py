"""NVML's words about the devices that are visible here, real or emulated, and what throttling and denial make of it."""

import json
import os
import sys
import time
from typing import Any

import pytest

import launching

cupy = pytest.importorskip("cupy", reason="cupy is not installed", exc_type=ImportError)
pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed", exc_type=ImportError)

from collbench import device_health, device_limits, devices  # noqa: E402
from collbench.backends.cuda import device_uuid  # noqa: E402
from collbench.nvml import NOT_AVAILABLE  # noqa: E402

EMULATED = launching.cuda_devices() > 0 and "emulated" in str(devices.facts(device_uuid(0)).get("driver_version"))
emulated = pytest.mark.skipif(not EMULATED, reason="the emulator's knobs")

ASK = """
import json, sys
from collbench import device_health, devices
from collbench.backends.cuda import device_uuid
uuid = device_uuid(0)
calm = device_health.Health(0.0)
reading = device_health.read(uuid)
print(json.dumps([devices.facts(uuid), device_health.notes(calm, reading), list(reading.reasons)]))
"""


def asked(**environment: str) -> tuple[dict[str, Any], list[str], list[str]]:
    """Ask in a process of its own, since the library reads its settings once."""
    answer = launching.run([sys.executable, "-c", ASK], timeout=60, env=environment).expect(0)
    facts, notes, reasons = json.loads(answer.out)
    return facts, notes, reasons


def test_every_visible_device_is_found_by_cupys_uuid() -> None:
    for index in range(cupy.cuda.runtime.getDeviceCount()):
        found = devices.facts(device_uuid(index))
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        assert found["name"] == properties["name"].decode()
        assert str(found["uuid"]).replace("-", "").endswith(device_uuid(index))
        assert found["driver_version"] != NOT_AVAILABLE
        assert found["cuda_driver_version"] != NOT_AVAILABLE
        assert json.loads(json.dumps(found)) == found  # as environment.json writes it


def test_the_matrix_is_square_and_the_same_both_ways() -> None:
    uuids = [device_uuid(index) for index in range(cupy.cuda.runtime.getDeviceCount())]
    found = devices.links(uuids)
    for a, row in enumerate(found):
        assert len(row) == len(uuids)
        assert row[a].path == "X"
        assert [link.path for link in row] == [found[b][a].path for b in range(len(uuids))]
    assert [row.split()[k] for k, row in enumerate(devices.access(found))] == ["X"] * len(uuids)


def test_a_reading_says_something_and_costs_little() -> None:
    uuid = device_uuid(0)
    first = device_health.read(uuid)
    assert first.at_s > 0
    began = time.perf_counter()
    for _ in range(20):
        device_health.read(uuid)
    each_s = (time.perf_counter() - began) / 20
    assert each_s < 0.05  # once before and once after a case
    print(f"one reading: {1e6 * each_s:.0f} us")


def test_limits_are_told_or_none() -> None:
    uuid = device_uuid(0)
    for limit in (
        device_limits.memory_limit(uuid, cupy.cuda.Device(0).attributes),
        device_limits.pcie_limit(uuid),
        device_limits.nvlink_limit(uuid, uuid),
    ):
        assert limit is None or (limit.GBps > 0 and limit.source)


@emulated
def test_the_emulated_device() -> None:
    found = devices.facts(device_uuid(0))
    assert (found["virtualization"], found["mig"], found["ecc"]) == ("none", "off", "on")
    assert (found["pcie_generation"], found["pcie_width"]) == (5, 16)
    limit = device_limits.pcie_limit(device_uuid(0))
    assert limit is not None
    assert limit.GBps == pytest.approx(63.015, abs=0.001)
    if cupy.cuda.runtime.getDeviceCount() > 1:
        link = devices.links([device_uuid(0), device_uuid(1)])[0][1]
        assert (link.path, link.read, link.nvlink) == ("NODE", "ok", "not supported")


@emulated
def test_throttling_is_a_note_of_the_row() -> None:
    assert asked()[1:] == ([], [])
    assert asked(EMUGPU_THROTTLE="1")[1:] == (["throttled"], ["thermal (software)"])


@emulated
def test_throttling_between_two_readings_is_seen_by_the_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ASK.replace(
        "calm = device_health.Health(0.0)", "calm = device_health.read(uuid)\nimport time; time.sleep(0.2)"
    )
    denied = "nvmlDeviceGetCurrentClocksEventReasons,nvmlDeviceGetCurrentClocksThrottleReasons"
    environment = {"EMUGPU_THROTTLE": "1", "EMUGPU_DENY_NVML": denied}
    answer = launching.run([sys.executable, "-c", text], timeout=60, env=environment).expect(0)
    assert json.loads(answer.out)[1:] == [["throttled"], []]


@emulated
def test_a_licensed_vgpu() -> None:
    found = asked(EMUGPU_VIRTUALIZATION="vgpu")[0]
    assert found["virtualization"] == "vGPU"
    assert str(found["vgpu_licence"]).startswith("Emulated vGPU: Licensed")
    assert "vgpu_licence" not in asked()[0]


@emulated
def test_what_a_vgpu_denies_is_not_available() -> None:
    denied = (
        "nvmlDeviceGetEccMode,nvmlDeviceGetPersistenceMode,nvmlDeviceGetClockInfo,nvmlDeviceGetPowerUsage,"
        "nvmlDeviceGetCurrPcieLinkWidth,nvmlDeviceGetPciInfo,nvmlDeviceGetTemperature,nvmlDeviceGetViolationStatus"
    )
    found, notes, _ = asked(EMUGPU_DENY_NVML=denied)
    for name in ("ecc", "persistence", "pcie_width", "pci"):
        assert found[name] == NOT_AVAILABLE
    assert found["name"] != NOT_AVAILABLE
    assert notes == []
    assert asked()[0]["ecc"] == "on"


@emulated
def test_a_library_that_denies_everything_is_a_sentence() -> None:
    found, notes, _ = asked(EMUGPU_DENY_NVML="nvmlDeviceGetHandleByUUID")
    assert list(found) == ["nvml"]
    assert notes == []


def test_a_machine_where_nvml_is_not_installed_is_a_sentence() -> None:
    text = "import sys; sys.modules['pynvml'] = None\n" + ASK
    answer = launching.run([sys.executable, "-c", text], timeout=60, env=dict(os.environ)).expect(0)
    found, notes, _ = json.loads(answer.out)
    assert found == {"nvml": "nvidia-ml-py is not installed; install collbench[cuda13] or collbench[cuda12]"}
    assert notes == []
