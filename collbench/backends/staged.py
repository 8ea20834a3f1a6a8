"""MPI for data on CUDA devices, staged by ourselves: device -> pinned host -> MPI -> device."""

from functools import partial
from typing import Any

from collbench.backends.base import Call
from collbench.backends.cuda import (
    DeviceMemory,
    Driver,
    OnDevice,
    PinnedMemory,
    device_index,
    driver_problem,
    most_on_a_device,
    room_problem,
)
from collbench.backends.memory import Buffers, Region, buffers_of
from collbench.backends.mpi import Mpi, Staging
from collbench.collectives import Layout, entry_named
from collbench.dtypes import DTYPES
from collbench.plan import Case
from collbench.world import World

_TO_HOST, _TO_DEVICE = 2, 1  # cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice


class MpiOnDevice(OnDevice, Mpi):
    """MPI whose buffers lie on this rank's device; times are by the host's clock, as MPI's own are."""

    @classmethod
    def unavailable(cls) -> str | None:
        return Mpi.unavailable() or driver_problem()

    @classmethod
    def misfit(cls, world: World) -> str | None:
        return Mpi.misfit(world)

    def __init__(self, group: World) -> None:
        super().__init__(group)
        group.all_or_none(self._take_device)
        self._sharers = most_on_a_device(group)

    def _take_device(self) -> None:
        import cupy

        self._cupy = cupy
        self._device = device_index(self.group)
        cupy.cuda.Device(self._device).use()
        self._driver = Driver()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._verifying = cupy.cuda.Stream(non_blocking=True)

    def refuse(self, case: Case) -> str | None:
        if self.name == "staged" and not entry_named(case.collective).collective.in_sweeps:
            return f"{case.collective}: staged copies the whole gradient before its first bucket; use backend mpi_cuda"
        if case.pages != "default":
            return f"pages {case.pages}: memory of a device has pages of its own; use default"
        return super().refuse(case)

    def memory_bytes(self, case: Case, layout: Layout) -> int:
        return 0

    def lacks(self, case: Case, layout: Layout) -> str | None:
        return room_problem(Mpi.memory_bytes(self, case, layout) * self._sharers, self._device)

    def _allocate(self, case: Case, layout: Layout) -> Buffers:
        return buffers_of(
            case.placement,
            layout,
            DTYPES[case.dtype],
            lambda dtype, length: DeviceMemory(dtype, length, self._verifying),
        )


class Staged(MpiOnDevice):
    """The honest fallback of every library that knows no devices; the copies are part of the time."""

    name = "staged"
    summary = "MPI for data on CUDA devices: copied to pinned host memory and back"

    def memory_bytes(self, case: Case, layout: Layout) -> int:
        return Mpi.memory_bytes(self, case, layout)

    def _seen(self, case: Case, layout: Layout, buffers: Buffers) -> Buffers:
        return buffers_of(case.placement, layout, DTYPES[case.dtype], PinnedMemory)

    def _staging(self, layout: Layout, buffers: Buffers, seen: Buffers) -> Staging:
        address, stream = self._driver.address, self._stream
        wait = Call(address("cuStreamSynchronize"), (stream.ptr,))
        copy = self._cupy.cuda.runtime.memcpyAsync
        before: list[Call] = []
        after: list[Call] = []
        first: list[Any] = []
        last: list[Any] = []
        if size := _bytes(buffers.send, layout.send):
            before = [
                Call(address("cuMemcpyDtoHAsync_v2"), (seen.send.address, buffers.send.address, size, stream.ptr))
            ]
            first = [partial(copy, seen.send.address, buffers.send.address, size, _TO_HOST, stream.ptr)]
        # Only what MPI has written goes back: the rest of the device's buffer must stay as it is.
        written = [piece for piece in layout.expected if not piece.untouched and piece.length]
        if written:
            start = min(piece.offset for piece in written)
            end = max(piece.offset + piece.length for piece in written)
            itemsize = buffers.recv.memory.dtype.itemsize
            to, source = buffers.recv.address + start * itemsize, seen.recv.address + start * itemsize
            size = (end - start) * itemsize
            after = [Call(address("cuMemcpyHtoDAsync_v2"), (to, source, size, stream.ptr))]
            last = [partial(copy, to, source, size, _TO_DEVICE, stream.ptr)]
        return Staging(
            (*before, wait) if before else (),
            (*after, wait) if after else (),
            partial(_one_by_one, [*first, stream.synchronize]) if first else None,
            partial(_one_by_one, [*last, stream.synchronize]) if last else None,
        )


def _bytes(region: Region, length: int) -> int:
    return length * region.memory.dtype.itemsize


def _one_by_one(steps: list[Any]) -> None:
    for step in steps:
        step()
