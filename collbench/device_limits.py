"""What a device's memory and links could give at most, by their clocks and widths: what a row is held against.

    limit = memory_limit(uuid)      a `Limit`, or None where the device does not tell
    limit.GBps, limit.source        the columns limit_GBps and limit_source

Theory, that nothing reaches: a copy in memory comes to about nine tenths of it, PCIe and NVLink lose a tenth and more
to headers. A vGPU shares all of it with the device's other vGPUs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from collbench.devices import links
from collbench.nvml import opened

# PCI Express Base Specification: transfers per second and lane, and how many of the bits that are sent are data.
_PCIE = {
    1: (2.5e9, 8, 10), 2: (5e9, 8, 10), 3: (8e9, 128, 130), 4: (16e9, 128, 130), 5: (32e9, 128, 130), 6: (64e9, 1, 1),
}  # fmt: skip
_PER_CLOCK = 2
"""Double data rate (CUDA C++ Best Practices Guide, "Theoretical Bandwidth Calculation")."""
_MEMORY_CLOCK = 2  # NVML_CLOCK_MEM
_MEMORY_SLICES = 8
"""A device's memory is cut into eight for its instances, and the way to it as well (MIG User Guide)."""


@dataclass(frozen=True)
class Limit:
    """A rate, and in words where it is from."""

    bytes_per_s: float
    source: str

    @property
    def GBps(self) -> float:  # noqa: N802  the column's unit
        """The rate in GB/s, 10^9 bytes."""
        return self.bytes_per_s / 1e9


def memory_limit(uuid: str, attributes: Mapping[str, int] | None = None) -> Limit | None:
    """Rate of a device's memory: clock x width x 2, reads and writes together.

    Where NVML does not tell, `attributes` may: `cupy.cuda.Device(k).attributes`, with MemoryClockRate (kHz) and
    GlobalMemoryBusWidth.
    """
    library = opened()
    handle = library.handle(uuid) if library else None
    clock_hz, width, share, part = None, None, 1.0, ""
    if library is not None and handle is not None:
        device = library.whole(handle)
        megahertz = library.number("nvmlDeviceGetMaxClockInfo", device, _MEMORY_CLOCK)
        clock_hz, width = (megahertz or 0) * 1e6, library.number("nvmlDeviceGetMemoryBusWidth", device)
        if library.is_part(handle):
            own, whole = (library.ask("nvmlDeviceGetMemoryInfo", one) for one in (handle, device))
            if not hasattr(own, "total") or not getattr(whole, "total", 0):
                return None
            slices = max(1, round(_MEMORY_SLICES * own.total / whole.total))
            share, part = slices / _MEMORY_SLICES, f"{slices} of {_MEMORY_SLICES} memory slices of "
    known = attributes or {}
    clock_hz = clock_hz or known.get("MemoryClockRate", 0) * 1e3
    width = width or known.get("GlobalMemoryBusWidth", 0)
    if not clock_hz or not width:
        return None
    rate = share * clock_hz * _PER_CLOCK * width / 8
    return Limit(rate, f"{part}memory {clock_hz / 1e6:g} MHz x {_PER_CLOCK} x {width} bit")


def pcie_limit(uuid: str) -> Limit | None:
    """Rate of a device's PCIe link, each way: transfers x lanes x coding, as fast as device and slot can go.

    Not as it is now: a link that idles runs slower, and a guest is often not told of either.
    """
    library = opened()
    handle = library.handle(uuid) if library else None
    if library is None or handle is None:
        return None
    device = library.whole(handle)
    generation = library.number("nvmlDeviceGetMaxPcieLinkGeneration", device)
    lanes = library.number("nvmlDeviceGetMaxPcieLinkWidth", device)
    if generation not in _PCIE or not lanes:
        return None
    transfers, data, sent = _PCIE[generation]
    rate = transfers * lanes * data / sent / 8
    coding = f" x {data}/{sent}" if data != sent else ""
    return Limit(rate, f"PCIe {generation} x{lanes} each way: {transfers / 1e9:g} GT/s x {lanes} lanes{coding}")


def nvlink_limit(uuid_a: str, uuid_b: str) -> Limit | None:
    """Rate of the NVLinks between two devices, one way: the sum of the speeds that NVML tells."""
    link = links([uuid_a, uuid_b])[0][1]
    if not link.nvlink_bytes_per_s:
        return None
    each = link.nvlink_bytes_per_s / link.nvlinks / 1e9
    return Limit(link.nvlink_bytes_per_s, f"{link.nvlinks} NVLinks x {each:g} GB/s one way")
