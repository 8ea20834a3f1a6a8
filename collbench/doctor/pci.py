"""PCI Express between GPUs and RDMA devices: ACS, ATS and relaxed ordering, where this user may read them.

Offsets and bits: PCI Express Base Specification, chapter 7 (Device Control; Access Control Services and Address
Translation Services extended capabilities). Without root the kernel shows 64 bytes of the configuration space, which
hold none of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.doctor import hypervisor
from collbench.doctor.finding import Finding, Seen, by_host, on_hosts
from collbench.files import entries, number, raw_bytes

CHECK = "PCI Express"

_SOURCE = "NCCL user guide, Troubleshooting: PCI Access Control Services"
_NVIDIA = 0x10DE
_BRIDGE, _DISPLAY, _ACCELERATOR = 0x0604, 0x03, 0x12
_READABLE_LEAST = 256
_CAPABILITIES, _EXTENDED = 0x34, 0x100
_EXPRESS, _ACS, _ATS = 0x10, 0x000D, 0x000F
_RELAXED, _ATS_ON, _REDIRECT = 1 << 4, 1 << 15, 1 << 2


@dataclass(frozen=True)
class Device:
    """A GPU or an RDMA device; None where a bit cannot be read, `ats` also where it has no such capability."""

    address: str
    gpu: bool
    readable: bool
    relaxed_ordering: bool | None = None
    ats: bool | None = None


@dataclass(frozen=True)
class Facts:
    """The devices between which data may go directly, and the bridges that send it round by the root."""

    devices: tuple[Device, ...] = ()
    redirecting: tuple[str, ...] = ()
    virtual: bool | None = None


def measure(root: str = "") -> Facts:
    """Read the configuration spaces of GPUs, RDMA devices and, where there are any, bridges."""
    every = entries(f"{root}/sys/bus/pci/devices")
    devices = [device for one in every if (device := _device(one)) is not None]
    if not devices:
        return Facts()
    bridges = [one for one in every if (number(one / "class") or 0) >> 8 == _BRIDGE]
    redirecting = [one.name for one in bridges if (_control(raw_bytes(one / "config") or b"", _ACS) or 0) & _REDIRECT]
    return Facts(tuple(devices), tuple(redirecting), hypervisor.measure(root).virtual)


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Judge it; without GPUs and RDMA devices there is nothing to say."""
    hosts = {host: facts for host, facts in by_host(ranks).items() if facts.devices}
    return on_hosts({host: list(_of_host(facts)) for host, facts in hosts.items()})


def _of_host(facts: Facts) -> Iterator[Finding]:
    if not any(one.readable for one in facts.devices):
        seen = "ACS, ATS and relaxed ordering are not readable without root"
        yield Finding(CHECK, "note", seen, "", "sudo collbench doctor, or lspci -vvv as root", _SOURCE)
        return
    gpus = [one for one in facts.devices if one.gpu]
    nics = [one for one in facts.devices if not one.gpu]
    if facts.redirecting and facts.virtual is False and gpus:
        seen = f"ACS sends what goes between devices by the root, at {len(facts.redirecting)} bridges"
        why = "GPUs and RDMA devices then reach each other's memory slowly, or not at all"
        remedy = "switch ACS off in the firmware, or with setpci at each start"
        yield Finding(CHECK, "warning", seen, why, remedy, _SOURCE)
    without = [one.address for one in nics if one.ats is not True and one.readable]
    if facts.virtual and gpus and without:
        seen = f"ATS is not on at {', '.join(without)}"
        why = "ACS must stay on under a hypervisor; without ATS what goes between GPU and network goes by the root"
        remedy = "on the host: mlxconfig -d DEVICE set ATS_ENABLED=true, and start it anew"
        yield Finding(CHECK, "warning", seen, why, remedy, f"{_SOURCE}; nccl#949")
    strict = [one.address for one in nics if one.relaxed_ordering is False]
    if strict:
        seen = f"relaxed ordering is off at {', '.join(strict)}"
        why = "writes to the host's memory wait for each other, which costs bandwidth on some machines"
        remedy = "switch PCI relaxed ordering on in the firmware (NCCL_IB_PCI_RELAXED_ORDERING asks for it)"
        yield Finding(CHECK, "note", seen, why, remedy, "NCCL user guide, NCCL_IB_PCI_RELAXED_ORDERING")
    if not strict and nics:
        yield Finding(CHECK, "ok", f"relaxed ordering is on at {len(nics)} RDMA devices")


def _device(folder: Path) -> Device | None:
    kind = (number(folder / "class") or 0) >> 8
    gpu = number(folder / "vendor") == _NVIDIA and kind >> 8 in (_DISPLAY, _ACCELERATOR)
    if not gpu and not (folder / "infiniband").is_dir():
        return None
    config = raw_bytes(folder / "config") or b""
    readable = len(config) >= _READABLE_LEAST
    control = _device_control(config)
    ats = _control(config, _ATS)
    return Device(
        folder.name,
        gpu,
        readable,
        None if control is None else bool(control & _RELAXED),
        None if ats is None else bool(ats & _ATS_ON),
    )


def _device_control(config: bytes) -> int | None:
    """The Device Control register of the PCI Express capability."""
    if len(config) < _READABLE_LEAST:
        return None
    at, seen = config[_CAPABILITIES] & 0xFC, set[int]()
    while at and at not in seen and at + 10 <= _READABLE_LEAST:
        seen.add(at)
        if config[at] == _EXPRESS:
            return int.from_bytes(config[at + 8 : at + 10], "little")
        at = config[at + 1] & 0xFC
    return None


def _control(config: bytes, capability: int) -> int | None:
    """The control register of an extended capability; of ACS and ATS it lies at the same place."""
    at, seen = _EXTENDED, set[int]()
    while at and at not in seen and at + 8 <= len(config):
        seen.add(at)
        head = int.from_bytes(config[at : at + 4], "little")
        if head & 0xFFFF == capability:
            return int.from_bytes(config[at + 6 : at + 8], "little")
        at = head >> 20 & 0xFFC
    return None
