"""A stand-in for nvidia-ml-py: devices as a test describes them, and every function that it leaves out denied."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from collbench import nvml


class NVMLError(Exception):
    """What nvidia-ml-py raises."""


@dataclass
class Device:
    """One device: what each function answers of it, by its name without nvmlDevice. An answer may be a function."""

    uuid: str
    answers: dict[str, Any] = field(default_factory=dict)
    parent: "Device | None" = None


class Library:
    """The module pynvml, as far as it is used."""

    NVMLError = NVMLError

    def __init__(self, devices: list[Device], system: dict[str, Any]) -> None:
        self._devices = devices
        self._system = system

    def nvmlInit(self) -> None:  # noqa: N802
        """Do nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name == "nvmlDeviceGetHandleByUUID":
            return self._find
        if name == "nvmlDeviceGetDeviceHandleFromMigDeviceHandle":
            return lambda device: device.parent
        if name == "nvmlDeviceIsMigDeviceHandle":
            return lambda device: SimpleNamespace(value=int(device.parent is not None))
        if name.startswith("nvmlSystem"):
            return lambda: self._answer(self._system, name.removeprefix("nvmlSystem"))
        if name.startswith("nvmlDevice"):
            return lambda device, *rest: self._answer(device.answers, name.removeprefix("nvmlDevice"), *rest)
        raise AttributeError(name)

    def _find(self, uuid: str) -> Device:
        for device in self._devices:
            if device.uuid == uuid:
                return device
        raise NVMLError("Not Found")

    def _answer(self, answers: dict[str, Any], name: str, *rest: Any) -> Any:
        if name not in answers:
            raise NVMLError("Not Supported")
        answer = answers[name]
        return answer(*rest) if callable(answer) else answer


def hexadecimal(number: int) -> str:
    """Return a UUID as CuPy's bytes come to us."""
    return f"{number:032x}"


def as_nvml(number: int, kind: str = "GPU") -> str:
    """Return the same as NVML writes it."""
    digits = hexadecimal(number)
    return f"{kind}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@contextmanager
def installed(
    monkeypatch: pytest.MonkeyPatch, *devices: Device, system: dict[str, Any] | None = None
) -> Iterator[nvml.Nvml]:
    """Let collbench find these devices."""
    library = nvml.Nvml(Library(list(devices), system or {}))
    with monkeypatch.context() as patch:
        for module in ("collbench.nvml", "collbench.devices", "collbench.device_health", "collbench.device_limits"):
            patch.setattr(f"{module}.nvml", lambda: library, raising=False)
            patch.setattr(f"{module}.opened", lambda: library, raising=False)
        yield library


def links_to(*ends: tuple[int, str, int], version: int = 6) -> dict[str, Any]:
    """Return the answers of a device whose NVLinks lead to these: (kind of the far end, its address, MB/s)."""

    def state(number: int) -> int:
        if number >= len(ends):
            raise NVMLError("Invalid Argument")
        return 1

    def values(fields: list[tuple[int, int]]) -> list[Any]:
        answers = {164: [end[2] for end in ends], 166: [version] * len(ends)}
        return [
            SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=answers[number][scope]))
            for number, scope in fields
        ]

    return {
        "GetNvLinkState": state,
        "GetNvLinkRemotePciInfo": lambda number: SimpleNamespace(busId=ends[number][1].encode()),
        "GetNvLinkRemoteDeviceType": lambda number: ends[number][0],
        "GetFieldValues": values,
    }
