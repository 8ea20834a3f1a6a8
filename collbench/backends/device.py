"""Our own kernels and the driver's copies on CUDA devices: what memory, the host's link and the peers' can carry."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from collbench.backends import peer_devices
from collbench.backends.base import Call
from collbench.backends.cuda import (
    DeviceMemory,
    PinnedMemory,
    alone_problem,
    driver_problem,
    driver_version,
    room_problem,
    sharing_problem,
    visible_devices,
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
        self._links: dict[str, str | None] = {}
        self._sides: dict[int, peer_devices.Side] = {}

    @property
    def library(self) -> str:
        return driver_version()

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
        """Why what is to be written to cannot be reached; tried once for each set of pairs."""
        if case.collective != PeerCopy.name:
            return None
        collective = self._peer_copy(case)
        if collective.between not in self._links:
            if self.group.size > 1:
                refused = sharing_refused(self.group, collective.pairs(self.group.size))
            else:
                refused = self._refuse_devices(collective)
            self._links[collective.between] = refused
        return self._links[collective.between]

    def _refuse_devices(self, collective: PeerCopy) -> str | None:
        """Why one process cannot copy between the devices that it sees."""
        if self.group.place is not None:
            return "peer_copy of one rank is for a launch of one rank: others may use the devices that it sees"
        count = visible_devices()
        if count < 2:
            return (
                "peer_copy of one rank is between the devices that it sees, and it sees one (of MIG instances CUDA may "
                "show no more); show it several by CUDA_VISIBLE_DEVICES, or start a rank for each"
            )
        return peer_devices.access_refused(collective.pairs(count))

    def _peer_copy(self, case: Case) -> PeerCopy:
        return cast(PeerCopy, collective_of(case.collective, case.pattern, self.group.size))

    def _between_devices(self, case: Case) -> bool:
        """Whether one rank copies between the devices that it sees."""
        return case.collective == PeerCopy.name and self.group.size == 1

    def _device_pairs(self, case: Case) -> list[tuple[int, int]]:
        return self._peer_copy(case).pairs(visible_devices())

    def _side(self, number: int) -> peer_devices.Side:
        if number not in self._sides:
            self._sides[number] = peer_devices.opened(number)
        return self._sides[number]

    def memory_bytes(self, case: Case, layout: Layout) -> int:
        return self._side_bytes(case, layout) if case.collective == HostCopy.name else 0

    def device_bytes(self, case: Case, layout: Layout) -> int:
        if case.collective == HostCopy.name:
            return self._side_bytes(case, layout)
        return super().device_bytes(case, layout)

    def lacks(self, case: Case, layout: Layout) -> str | None:
        if not self._between_devices(case):
            return super().lacks(case, layout)
        one = layout.send * DTYPES[case.dtype].itemsize + 2 * GUARD_BYTES
        ends = [end for pair in self._device_pairs(case) for end in pair]
        problems = (room_problem(case.buffers * ends.count(end) * one, end) for end in dict.fromkeys(ends))
        return next(filter(None, problems), None)

    def _side_bytes(self, case: Case, layout: Layout) -> int:
        """Bytes that host_copy takes of the host's memory, and as many of the device's."""
        copies = case.buffers * len(self._host_copy(case).directions)
        return copies * (layout.send * DTYPES[case.dtype].itemsize + 2 * GUARD_BYTES)

    def _host_copy(self, case: Case) -> HostCopy:
        return cast(HostCopy, collective_of(case.collective, case.pattern, self.group.size))

    def allocate(self, case: Case, layout: Layout) -> list[Buffers]:
        if self._between_devices(case):
            return self._allocate_on_devices(case, layout)
        if case.collective != HostCopy.name:
            return super().allocate(case, layout)
        dtype, made = DTYPES[case.dtype], []
        for direction in self._host_copy(case).directions:
            host, device = self._host_memory(case, dtype, layout.send), self.memory(case, dtype, layout.send)
            sent, received = (host, device) if direction == "h2d" else (device, host)
            made.append(Buffers(Region(sent, 0, layout.send), Region(received, 0, layout.recv)))
        return made

    def _allocate_on_devices(self, case: Case, layout: Layout) -> list[Buffers]:
        """A set for each pair, with data of its own: one device's would else be taken for another's."""
        dtype, made = DTYPES[case.dtype], []
        for k, (one, other) in enumerate(self._device_pairs(case)):
            sent = peer_devices.MemoryOn(dtype, layout.send, self._side(one))
            received = peer_devices.MemoryOn(dtype, layout.recv, self._side(other))
            regions = Region(sent, 0, layout.send), Region(received, 0, layout.recv)
            made.append(Buffers(*regions, index=k * layout.send))
        return made

    def _host_memory(self, case: Case, dtype: Dtype, length: int) -> Memory:
        pinned = self._host_copy(case).pinned
        return PinnedMemory(dtype, length) if pinned else HostMemory(dtype, length, case.pages)

    def exchanges(self, case: Case) -> bool:
        return case.collective == PeerCopy.name and self.group.size > 1

    def exchange(self, case: Case, layout: Layout, buffers: list[Buffers]) -> Shared:
        target = self._target(case)
        received = [cast(DeviceMemory, one.recv.memory).allocation for one in buffers]
        return Shared(self.group, received, [] if target is None else [target])

    def _target(self, case: Case) -> int | None:
        return self._peer_copy(case).target(self.group.rank, self.group.size)

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
        moves = [self._move(collective.way, one.recv.address, one) for one in buffers]
        return Made(moves, library_call=_MOVERS[collective.way], algorithm=collective.way)

    def _make_peer_copy(self, case: Case, buffers: list[Buffers], shared: Shared | None) -> Made:
        if self._between_devices(case):
            return self._make_between_devices(case, buffers)
        by, target = self._peer_copy(case).by, self._target(case)
        if target is None or shared is None:
            return Made([Operation(()) for _ in buffers], library_call=by)
        places = [allocation + GUARD_BYTES for allocation in shared.addresses[target]]
        moves = [self._move(by, to, one) for to, one in zip(places, buffers, strict=True)]
        return Made(moves, library_call=_MOVERS[by], algorithm=by)

    def _make_between_devices(self, case: Case, buffers: list[Buffers]) -> Made:
        by, pairs, operations = self._peer_copy(case).by, self._device_pairs(case), []
        for first in range(0, len(buffers), len(pairs)):
            sets = buffers[first : first + len(pairs)]
            others = []
            for (source, _), one in list(zip(pairs, sets, strict=True))[1:]:
                side = self._side(source)
                with side.current():
                    others.append((side, self._move(by, one.recv.address, one, side.stream)))
            operations.append(self._at_once(self._move(by, sets[0].recv.address, sets[0]), others))
        return Made(
            operations,
            library_call=_MOVERS[by],
            algorithm=by,
            peer_device=peer_devices.named(pairs),
            # A call that failed may have left another device current.
            close=self._cupy.cuda.Device(self._device).use,
        )

    def _move(self, by: str, to: int, one: Buffers, stream: Any = None) -> Operation:
        """What is sent goes to a place that the stream's device reaches, by the driver's copy or by our kernel."""
        source, size_bytes = one.send.address, _size_bytes(one.send)
        if by == "engine":
            return self._copied(_MOVERS[by], _WITHIN_DEVICES, to, source, size_bytes, stream)
        from collbench.kernels import copy_cuda

        return self._launched(copy_cuda.kernel(), *copy_cuda.arguments(to, source, size_bytes), stream)

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
        second = self._side(self._device)
        copies = self._host_copied("h2d", there), self._host_copied("d2h", back, second.stream)
        return self._at_once(copies[0], [(second, copies[1])])

    def _at_once(self, own: Operation, others: Sequence[tuple[peer_devices.Side, Operation]]) -> Operation:
        """One operation on the stream that is timed, each other one on a stream that forks off it and joins it."""
        if not others:
            return own
        main, address = self._stream, self._driver.address
        record, wait, change = address("cuEventRecord"), address("cuStreamWaitEvent"), address("cuCtxSetCurrent")
        home, use = self._side(self._device).context, self._cupy.cuda.runtime.setDevice
        event = partial(self._cupy.cuda.Event, disable_timing=True)
        fork, joins = event(), []
        calls = [Call(record, (fork.ptr, main.ptr)), *own.calls]
        python: list[Callable[[], object]] = [partial(fork.record, main), *own.python]
        for side, operation in others:
            stream = side.stream
            with side.current():
                join = event()
            there = [Call(wait, (stream.ptr, fork.ptr, 0)), *operation.calls, Call(record, (join.ptr, stream.ptr))]
            steps: list[Callable[[], object]] = [partial(stream.wait_event, fork), *operation.python]
            steps.append(partial(join.record, stream))
            if side.number != self._device:
                there = [Call(change, (side.context,)), *there, Call(change, (home,))]
                steps = [partial(use, side.number), *steps, partial(use, self._device)]
            calls, python = [*calls, *there], [*python, *steps]
            joins.append(join)
        calls += [Call(wait, (main.ptr, join.ptr, 0)) for join in joins]
        python += [partial(main.wait_event, join) for join in joins]
        return Operation(calls, python, keep=(fork, joins, own.keep, [operation.keep for _, operation in others]))

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


_MOVERS = {"engine": "cuMemcpyAsync", "kernel": "copy.cu"}
_CALLS = {"h2d": ("cuMemcpyHtoDAsync_v2", _TO_DEVICE), "d2h": ("cuMemcpyDtoHAsync_v2", _TO_HOST)}


def _size_bytes(region: Region) -> int:
    return region.length * region.memory.dtype.itemsize
