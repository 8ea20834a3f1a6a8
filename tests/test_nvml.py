"""NVML asked without errors: on this machine, and of devices that a test describes."""

from types import SimpleNamespace

import pytest

from collbench.nvml import NOT_AVAILABLE, nvml, opened, pair, text
from fake_nvml import Device, NVMLError, as_nvml, hexadecimal, installed


def test_a_machine_without_nvml_says_why() -> None:
    library = nvml()
    if not isinstance(library, str):
        pytest.skip("there is an NVML here")
    assert opened() is None
    assert "NVML" in library or "nvidia-ml-py" in library


def test_a_device_and_an_instance_are_found_by_the_same_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Device(as_nvml(1))
    part = Device(as_nvml(2, "MIG"), parent=whole)
    with installed(monkeypatch, whole, part) as library:
        assert library.handle(hexadecimal(1)) is whole
        assert library.handle(hexadecimal(2)) is part
        assert library.handle(hexadecimal(3)) is None
        assert library.handle("nonsense") is None
        assert (library.whole(part), library.whole(whole)) == (whole, whole)
        assert (library.is_part(part), library.is_part(whole)) == (True, False)


def test_a_denied_query_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(as_nvml(1), {"GetFanSpeed": 30, "GetMaxPcieLinkWidth": 2**32 - 1})
    with installed(monkeypatch, device) as library:
        assert library.ask("nvmlDeviceGetFanSpeed", device) == 30
        assert library.ask("nvmlDeviceGetName", device) == NOT_AVAILABLE
        assert library.ask("nobodyKnowsThis") == NOT_AVAILABLE
        assert library.ask("nvmlDeviceGetFanSpeed") == NOT_AVAILABLE
        assert library.number("nvmlDeviceGetFanSpeed", device) == 30
        assert library.number("nvmlDeviceGetName", device) is None
        assert library.number("nvmlDeviceGetMaxPcieLinkWidth", device) is None  # NVML's word for "no value"


def test_field_values_are_denied_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def values(fields: list[tuple[int, int]]) -> list[object]:
        return [SimpleNamespace(nvmlReturn=3 * (scope > 0), value=SimpleNamespace(uiVal=7)) for _, scope in fields]

    device = Device(as_nvml(1), {"GetFieldValues": values})
    with installed(monkeypatch, device) as library:
        assert library.fields(device, (164, 0), (164, 1)) == [7, None]
        device.answers.clear()
        assert library.fields(device, (164, 0), (164, 1)) == [None, None]


def test_answers_in_bytes_and_in_pairs() -> None:
    assert text(b"H200\0rest") == text("H200") == "H200"
    assert pair([1, 0]) == (1, 0)
    assert pair(NOT_AVAILABLE) == (NOT_AVAILABLE, NOT_AVAILABLE)
    assert pair(7) == (NOT_AVAILABLE, NOT_AVAILABLE)
    assert issubclass(NVMLError, Exception)
