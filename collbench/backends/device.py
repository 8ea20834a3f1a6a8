"""Our own kernels and the driver's copies on CUDA devices: what memory, the host's link and the peers' can carry."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from collbench.backends.base import Call
from collbench.backends.cuda import (
    DeviceMemory,
    PinnedMemory,
    alone_problem,
    driver_problem,
    driver_version,
    owners,
    sharing_problem,
)
from collbench.backends.memory import GUARD_BYTES, Buffers, HostMemory, Memory, Region
from collbench.backends.on_stream import Made, OnStream, Operation
from collbench.backends.sharing import Shared, sharing_refused
from collbench.collectives import Layout, collective_of, entry_named, kernel_names
from collbench.collectives.copy import Copy
from collbench.collectives.host_copy import HostCopy
from collbench.collectives.peer_copy import PeerCopy
from collbench.dtypes import DTYPES, Dtype
from collbench.plan import Case
from collbench.world import World

# cudaMemcpyKind, for the Python caller.
_TO_DEVICE, _TO_HOST, _WITHIN_DEVICES = 1, 2, 3


class Device(OnStream):
    """Kernels as points of a sweep; one process a device."""

    name = "device"
    summary = "our own kernels and the driver's copies on CUDA devices, one rank each (through CuPy)"

    @classmethod
    def unavailable(cls) -> str | None:
        return driver_problem()

    @classmethod
    def misfit(cls, world: World) -> str | None:
        return alone_problem(world) or sharing_problem(world)

    def __init__(self, group: World) -> None:
        super().__init__(group)
        self._sharers = max(map(len, owners(group).values()))
        self._second = self._cupy.cuda.Stream(non_blocking=True)
        self._links: dict[str, str | None] = {}

    @property
    def library(self) -> str:
        return driver_version()

    @property
    def ranks_per_device(self) -> int | None:
        return self._sharers

    def refuse(self, case: Case) -> str | None:
        if entry_named(case.collective).collective.only_backend != self.name:
            only = {name: entry_named(name).collective.only_backend for name in (*kernel_names(), case.collective)}
            own = ", ".join(name for name, backend in only.items() if backend == self.name)
            is_what = f"a kernel of {only[case.collective]}" if only[case.collective] else "a collective"
            return f"device has the kernels {own}; {case.collective} is {is_what}"
        return self.refuse_mode(case) or self._refuse_form(case) or self._refuse_link(case)

    def _refuse_form(self, case: Case) -> str | None:
        if case.placement == "in_place":
            return f"{case.collective} has no in-place form"
        if case.buffer != "plain":
            return f"buffer {case.buffer}: kernels have plain only"
        collective = collective_of(case.collective, case.pattern, self.group.size)
        if isinstance(collective, HostCopy) and not collective.pinned and case.mode == "graph":
            return "mode graph: a copy of pageable memory waits for the device, and cannot be captured"
        if collective.reduces:
            from collbench.kernels import reduce_cuda

            return reduce_cuda.problem(case.dtype, case.operation)
        return None

    def _refuse_link(self, case: Case) -> str | None:
        """Why a rank cannot reach the one that it would write to; tried once for each set of pairs."""
        collective = collective_of(case.collective, case.pattern, self.group.size)
        if not isinstance(collective, PeerCopy) or self.group.size < collective.least_ranks:
            return None
        if collective.between not in self._links:
            targets = ((rank, collective.target(rank, self.group.size)) for rank in range(self.group.size))
            pairs = [(rank, target) for rank, target in targets if target is not None]
            self._links[collective.between] = sharing_refused(self.group, pairs)
        return self._links[collective.between]

    def memory_bytes(self, case: Case, layout: Layout) -> int:
        return self._side_bytes(case, layout) if case.collective == HostCopy.name else 0

    def device_bytes(self, case: Case, layout: Layout) -> int:
        if case.collective == HostCopy.name:
            return self._side_bytes(case, layout)
        return super().device_bytes(case, layout)

    def _side_bytes(self, case: Case, layout: Layout) -> int:
        """Bytes that host_copy takes of the host's memory, and as many of the device's."""
        copies = case.buffers * len(self._host_copy(case).directions)
        return copies * (layout.send * DTYPES[case.dtype].itemsize + 2 * GUARD_BYTES)

    def _host_copy(self, case: Case) -> HostCopy:
        return cast(HostCopy, collective_of(case.collective, case.pattern, self.group.size))

    def allocate(self, case: Case, layout: Layout) -> list[Buffers]:
        if case.collective != HostCopy.name:
            return super().allocate(case, layout)
        dtype, made = DTYPES[case.dtype], []
        for direction in self._host_copy(case).directions:
            host, device = self._host_memory(case, dtype, layout.send), self.memory(case, dtype, layout.send)
            sent, received = (host, device) if direction == "h2d" else (device, host)
            made.append(Buffers(Region(sent, 0, layout.send), Region(received, 0, layout.recv)))
        return made

    def _host_memory(self, case: Case, dtype: Dtype, length: int) -> Memory:
        pinned = self._host_copy(case).pinned
        return PinnedMemory(dtype, length) if pinned else HostMemory(dtype, length, case.pages)

    def exchanges(self, case: Case) -> bool:
        return case.collective == PeerCopy.name

    def exchange(self, case: Case, layout: Layout, buffers: list[Buffers]) -> Shared:
        target = self._target(case)
        received = [cast(DeviceMemory, one.recv.memory).allocation for one in buffers]
        return Shared(self.group, received, [] if target is None else [target])

    def _target(self, case: Case) -> int | None:
        collective = cast(PeerCopy, collective_of(case.collective, case.pattern, self.group.size))
        return collective.target(self.group.rank, self.group.size)

    def make(
        self, case: Case, count: int, layout: Layout, buffers: list[Buffers], shared: Shared | None = None
    ) -> Made:
        make: Callable[[Case, list[Buffers], Shared | None], Made] = {
            "copy": self._make_copy,
            "host_copy": self._make_host_copy,
            "peer_copy": self._make_peer_copy,
            "reduce_local": self._make_reduce_local,
        }[case.collective]
        return make(case, buffers, shared)

    def _make_copy(self, case: Case, buffers: list[Buffers], shared: Shared | None) -> Made:
        collective = cast(Copy, collective_of(case.collective, case.pattern, self.group.size))
        moves = [(one.recv.address, one.send.address, _size_bytes(one.send)) for one in buffers]
        return self._moves(collective.way, moves)

    def _make_peer_copy(self, case: Case, buffers: list[Buffers], shared: Shared | None) -> Made:
        collective = cast(PeerCopy, collective_of(case.collective, case.pattern, self.group.size))
        target = self._target(case)
        if target is None or shared is None:
            return Made([Operation(()) for _ in buffers], library_call=collective.by)
        places = [allocation + GUARD_BYTES for allocation in shared.addresses[target]]
        moves = [(to, one.send.address, _size_bytes(one.send)) for to, one in zip(places, buffers, strict=True)]
        return self._moves(collective.by, moves)

    def _moves(self, by: str, moves: Sequence[tuple[int, int, int]]) -> Made:
        """Copies between places that the device reaches; each is (to, from, bytes)."""
        if by == "engine":
            copies = [self._copied("cuMemcpyAsync", _WITHIN_DEVICES, *move) for move in moves]
            return Made(copies, library_call="cuMemcpyAsync", algorithm="engine")
        from collbench.kernels import copy_cuda

        made = [self._launched(copy_cuda.kernel(), *copy_cuda.arguments(*move)) for move in moves]
        return Made(made, library_call="copy.cu", algorithm="kernel")

    def _make_reduce_local(self, case: Case, buffers: list[Buffers], shared: Shared | None) -> Made:
        from collbench.kernels import reduce_cuda

        kernel, itemsize = reduce_cuda.kernel(case.dtype, case.operation), DTYPES[case.dtype].itemsize
        made = []
        for one in buffers:
            count, first = one.recv.length, one.send.address
            places = one.recv.address, first, first + count * itemsize
            made.append(self._launched(kernel, *reduce_cuda.arguments(kernel, *places, count, itemsize)))
        return Made(made, library_call="reduce.cu", algorithm="kernel")

    def _make_host_copy(self, case: Case, buffers: list[Buffers], shared: Shared | None) -> Made:
        collective = self._host_copy(case)
        each = len(collective.directions)
        rotations = [buffers[k : k + each] for k in range(0, len(buffers), each)]
        if each == 2:
            made = [self._both_ways(*rotation) for rotation in rotations]
        else:
            made = [self._host_copied(collective.way, one) for (one,) in rotations]
        calls = [_CALLS[direction][0] for direction in collective.directions]
        return Made(made, library_call=" and ".join(calls), algorithm="engine", may_hold=collective.pinned)

    def _host_copied(self, direction: str, one: Buffers, stream: Any = None) -> Operation:
        function, kind = _CALLS[direction.split()[0]]
        return self._copied(function, kind, one.recv.address, one.send.address, _size_bytes(one.send), stream)

    def _both_ways(self, there: Buffers, back: Buffers) -> Operation:
        """One copy on the stream that is timed, the other on a second one that forks off it and joins it again."""
        main, second, event = self._stream, self._second, self._cupy.cuda.Event
        fork, join = event(disable_timing=True), event(disable_timing=True)
        copies = self._host_copied("h2d", there), self._host_copied("d2h", back, second)
        record, wait = self._driver.address("cuEventRecord"), self._driver.address("cuStreamWaitEvent")
        return Operation(
            [
                Call(record, (fork.ptr, main.ptr)),
                Call(wait, (second.ptr, fork.ptr, 0)),
                *copies[0].calls,
                *copies[1].calls,
                Call(record, (join.ptr, second.ptr)),
                Call(wait, (main.ptr, join.ptr, 0)),
            ],
            [
                lambda: fork.record(main),
                lambda: second.wait_event(fork),
                *copies[0].python,
                *copies[1].python,
                lambda: join.record(second),
                lambda: main.wait_event(join),
            ],
            keep=(fork, join),
        )

    def _copied(self, function: str, kind: int, to: int, source: int, size_bytes: int, stream: Any = None) -> Operation:
        """One of the driver's copies; none where there is nothing to copy."""
        if not size_bytes:
            return Operation(())
        queue = (stream or self._stream).ptr
        copy = self._cupy.cuda.runtime.memcpyAsync
        words = (to, source, size_bytes, queue)
        return Operation(
            [Call(self._driver.address(function), words)], [lambda: copy(to, source, size_bytes, kind, queue)]
        )


_CALLS = {"h2d": ("cuMemcpyHtoDAsync_v2", _TO_DEVICE), "d2h": ("cuMemcpyDtoHAsync_v2", _TO_HOST)}


def _size_bytes(region: Region) -> int:
    return region.length * region.memory.dtype.itemsize
