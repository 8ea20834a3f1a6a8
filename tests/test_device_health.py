"""Readings of a device's health, and the flags that a row gets from two of them."""

from types import SimpleNamespace
from typing import Any

import pytest

from collbench import device_health
from collbench.device_health import Health, notes, read
from fake_nvml import Device, as_nvml, hexadecimal, installed

IDLE, SETTING, POWER_CAP, SLOWDOWN, SYNC, THERMAL_SW, THERMAL_HW, BRAKE, DISPLAY = (1 << bit for bit in range(9))


def test_a_machine_without_nvml_has_an_empty_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_health, "opened", lambda: None)
    reading = read(hexadecimal(1))
    assert reading == Health(reading.at_s)
    assert notes(reading, read(hexadecimal(1))) == ()


def test_a_reading_in_our_units(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {
        "GetClockInfo": lambda kind: {1: 1980, 2: 3201}[kind],
        "GetTemperature": lambda sensor: 41,
        "GetPowerUsage": 123456,
        "GetCurrentClocksEventReasons": POWER_CAP | THERMAL_HW | IDLE,
        "GetViolationStatus": lambda policy: SimpleNamespace(violationTime=(policy + 1) * 10**9),
        "GetTotalEccErrors": lambda kind, counter: 5 if kind == 0 else 0,
        "GetUtilizationRates": SimpleNamespace(gpu=37, memory=2),
        "GetComputeRunningProcesses": ["a process", "another"],
    }
    with installed(monkeypatch, Device(as_nvml(1), answers)):
        reading = read(hexadecimal(1))
    assert reading == Health(
        at_s=reading.at_s,
        sm_clock_hz=1.98e9,
        memory_clock_hz=3.201e9,
        temperature_celsius=41,
        power_watt=123456 * 1e-3,
        reasons=("power cap", "thermal (hardware)"),
        held_back_s=1.0 + 2.0,
        ecc_corrected=5,
        ecc_uncorrected=0,
        busy=0.37,
        processes=2,
    )


def test_everything_denied_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, Device(as_nvml(1))):
        reading = read(hexadecimal(1))
    assert reading == Health(reading.at_s)


def test_of_an_instance_the_whole_device_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Device(as_nvml(1), {"GetTemperature": lambda sensor: 55})
    with installed(monkeypatch, whole, Device(as_nvml(2, "MIG"), parent=whole)):
        assert read(hexadecimal(2)).temperature_celsius == 55


@pytest.mark.parametrize("name", ["GetCurrentClocksEventReasons", "GetCurrentClocksThrottleReasons"])
@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [
        (0, False), (IDLE, False), (SETTING, False), (SYNC, False), (DISPLAY, False), (IDLE | SETTING, False),
        (POWER_CAP, True), (SLOWDOWN, True), (THERMAL_SW, True), (THERMAL_HW, True), (BRAKE, True),
        (IDLE | BRAKE, True),
    ],
)  # fmt: skip
def test_what_counts_as_throttling(monkeypatch: pytest.MonkeyPatch, name: str, reasons: int, throttled: bool) -> None:
    calm = Health(0.0)
    with installed(monkeypatch, Device(as_nvml(1), {name: reasons})):
        reading = read(hexadecimal(1))
    expected = ("throttled",) if throttled else ()
    assert notes(calm, reading) == expected
    assert notes(reading, calm) == expected  # it was when the case began


@pytest.mark.parametrize(("held_back_s", "throttled"), [(0.0, False), (0.04, False), (0.06, True)])
def test_held_back_in_between_is_seen_by_the_counter(held_back_s: float, throttled: bool) -> None:
    before, after = Health(100.0, held_back_s=7.0), Health(110.0, held_back_s=7.0 + held_back_s)
    assert notes(before, after) == (("throttled",) if throttled else ())


def test_a_counter_that_appears_says_nothing() -> None:
    assert notes(Health(0.0), Health(1.0, held_back_s=50.0, ecc_corrected=3)) == ()


@pytest.mark.parametrize("name", ["ecc_corrected", "ecc_uncorrected"])
def test_memory_errors_count_where_they_rose(name: str) -> None:
    three, four = Health(0.0, **{name: 3}), Health(0.0, **{name: 4})  # type: ignore[arg-type]
    assert notes(three, four) == ("ecc_errors",)
    assert notes(four, four) == ()
    assert notes(Health(0.0, reasons=("power cap",), ecc_corrected=1), Health(1.0, ecc_corrected=2)) == (
        "throttled", "ecc_errors",
    )  # fmt: skip
