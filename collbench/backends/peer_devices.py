"""The devices that one process sees: memory and streams on each, and access from one to another's memory.

CUDA's rules (programming guide, "Multi-Device System"): streams and events belong to the device that is current when
they are made. A kernel is launched only with its stream's device current, and reaches another device's memory only once
access to that was granted, which goes one way. A copy by the driver needs neither, but without access goes through the
host. An event is recorded on streams of its own device alone; streams of all devices may wait for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collbench.backends.cuda import DeviceMemory, device_name
from collbench.backends.memory import Words, Wrong
from collbench.dtypes import Dtype

_ALREADY_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled


@dataclass(frozen=True)
class Side:
    """A device of this process: its number, its context, and a stream each for operations and for verification."""

    number: int
    context: int
    stream: Any
    verifying: Any

    def current(self) -> Any:
        """A context manager that makes the device the current one."""
        import cupy

        return cupy.cuda.Device(self.number)


def opened(number: int) -> Side:
    """Open a visible device."""
    import cupy

    with cupy.cuda.Device(number):
        stream, verifying = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        return Side(number, int(cupy.cuda.driver.ctxGetCurrent()), stream, verifying)


class MemoryOn(DeviceMemory):
    """Memory of any of the devices, whichever is current."""

    def __init__(self, dtype: Dtype, length: int, side: Side) -> None:
        self._side = side
        with side.current():
            super().__init__(dtype, length, side.verifying)

    def fill(self, start: int, length: int, words: Words, index: int, *, inverted: bool = False) -> None:
        with self._side.current():
            super().fill(start, length, words, index, inverted=inverted)

    def compare(self, start: int, length: int, words: Words, index: int, tolerance: int = 0) -> Wrong:
        with self._side.current():
            return super().compare(start, length, words, index, tolerance)

    def bits(self, start: int) -> int:
        with self._side.current():
            return super().bits(start)

    def close(self) -> None:
        with self._side.current():
            super().close()


def access_refused(pairs: Sequence[tuple[int, int]]) -> str | None:
    """Let the devices of each pair reach each other's memory; one sentence that says why two cannot.

    Both ways, as NVIDIA's p2pBandwidthLatencyTest does also for a copy one way: CUDA does not say which of the two lets
    the driver's copy go direct.
    """
    from cupy.cuda import Device, runtime

    for one, other in dict.fromkeys(ends for pair in pairs for ends in (pair, pair[::-1])):
        who = f"devices {one} and {other} ({device_name(one)} and {device_name(other)})"
        if not runtime.deviceCanAccessPeer(one, other):
            return f"{who} have no peer access to each other's memory: cudaDeviceCanAccessPeer says no"
        try:
            with Device(one):
                runtime.deviceEnablePeerAccess(other)
        except runtime.CUDARuntimeError as error:
            if error.status != _ALREADY_ENABLED:
                return f"{who} have no peer access to each other's memory: {error}"
    return None


def named(pairs: Sequence[tuple[int, int]]) -> str:
    """Say which device writes to which."""
    return "; ".join(f"{one} -> {other} ({device_name(other)})" for one, other in pairs)
