"""NCCL on CUDA devices: communicators by CuPy, calls by address on the libnccl that CuPy loaded."""

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.backends.base import NO_STATUS, Backend, BoundCall, Call, Steps, call_list
from collbench.backends.cuda import (
    DeviceMemory,
    Driver,
    device_index,
    device_name,
    driver_problem,
    sharing_problem,
)
from collbench.backends.meeting import meeting_calls, meeting_step
from collbench.backends.memory import Buffers, Region
from collbench.collectives import Layout, entry_named, parts
from collbench.dtypes import DTYPES
from collbench.errors import LibraryFailed
from collbench.plan import Case
from collbench.world import World

# ncclDataType_t and ncclRedOp_t of nccl.h.
_TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7,
    "float64": 8, "bfloat16": 9,
}  # fmt: skip
_OPERATIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3}
_EVENTS = 64
"""Pairs of events that the samples of a block rotate over; each is read once the block has ended."""
_WAIT_GEQ = 0  # CU_STREAM_WAIT_VALUE_GEQ
_RELEASED = 1  # memset writes bytes, so the word becomes 0x01010101: at least this


class Nccl(Backend):
    """NCCL collectives, one process a device."""

    name = "nccl"
    summary = "NCCL on CUDA devices, one rank each (through CuPy)"

    @classmethod
    def unavailable(cls) -> str | None:
        return driver_problem()

    @classmethod
    def misfit(cls, world: World) -> str | None:
        if world.size > 1 and world.comm is None:
            return f"no MPI library could be loaded to bring the ranks together ({world.alone_because})"
        try:
            from cupy.cuda import nccl
        except ImportError as error:
            nccl_problem = f"CuPy cannot load NCCL ({error}); install the NCCL wheel of CuPy's CUDA version"
        else:
            nccl_problem = "" if nccl.available else "CuPy finds no NCCL; install the wheel of CuPy's CUDA version"
        first = world.first_problem(nccl_problem or None)
        return first[1] if first else sharing_problem(world)

    def __init__(self, group: World) -> None:
        import cupy
        from cupy.cuda import nccl

        super().__init__(group)
        self._cupy, self._nccl, self._group = cupy, nccl, group
        # What can fail on one rank alone comes first; then all or none go on to what they do together.
        first = group.first_problem(self._open_device())
        if first is not None:
            raise LibraryFailed(f"rank {first[0]} on {group.hosts[first[0]]}: {first[1]}")
        identity = group.from_root(nccl.get_unique_id)
        self._comm = nccl.NcclCommunicator(group.size, identity, group.rank)

    def _open_device(self) -> str | None:
        """Take this rank's device, streams and functions; what goes wrong, in words."""
        try:
            self._take_device()
        except Exception as error:  # the driver's and CuPy's own types
            return f"{type(error).__name__}: {error}"
        return None

    def _take_device(self) -> None:
        cupy = self._cupy
        self._device = device_index(self.group)
        cupy.cuda.Device(self._device).use()
        self._functions = ctypes.CDLL("libnccl.so.2")  # already loaded: the dynamic loader goes by this name
        self._driver = Driver()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        # Verification has a stream of its own: on the operation's, it would wait for what nobody waited for.
        self._verifying = cupy.cuda.Stream(non_blocking=True)
        self._memset = ctypes.cast(ctypes.CDLL(None).memset, ctypes.c_void_p).value or 0
        self._flag_memory = cupy.cuda.alloc_pinned_memory(64)
        self._flag: NDArray[Any] = np.frombuffer(self._flag_memory, np.int32, 1)
        self._flag[0] = _RELEASED
        self._can_hold = self._wait_for_flag() == 0
        self._stream.synchronize()

    @property
    def library(self) -> str:
        version = int(self._nccl.get_version())
        return f"NCCL {version // 10000}.{version // 100 % 100}.{version % 100}"

    @property
    def device(self) -> str:
        return device_name(self._device)

    def refuse(self, case: Case) -> str | None:
        entry = entry_named(case.collective)
        if not entry.nccl:
            return f"NCCL has no {case.collective}"
        if case.dtype not in _TYPES:
            return f"NCCL has no type for {case.dtype}"
        if case.operation not in ("", *_OPERATIONS):
            return f"operation {case.operation}: not available with NCCL"
        if case.call != "blocking":
            return f"call {case.call}: NCCL's calls are all asynchronous on a stream; use blocking"
        if case.mode not in ("latency", "throughput"):
            return f"mode {case.mode}: nccl has latency and throughput"
        if case.buffer != "plain":
            return f"buffer {case.buffer}: not available; use plain"
        if case.sync == "clock":
            return "sync clock: not available; use library or dissemination"
        if case.placement == "in_place" and not entry.collective.has_in_place:
            return f"{case.collective} has no in-place form"
        return None

    def bind(self, case: Case, count: int, layout: Layout) -> BoundCall:
        buffers = [self._allocate(case, layout) for _ in range(case.buffers)]
        bound = BoundCall(buffers=buffers, library_call=entry_named(case.collective).nccl)
        timer = None
        if case.mode == "latency":
            timer = _Events(self._cupy, self._driver, math.ceil(_EVENTS / len(buffers)) * len(buffers))
            bound.device_times, bound.most_samples = timer.read, timer.pairs
            if not self._can_hold:
                bound.notes = ("stream_not_held",)
        if case.caller == "compiled":
            self._bind_compiled(bound, case, count, timer)
        else:
            self._bind_python(bound, case, count, timer)

        def close() -> None:
            self._stream.synchronize()
            for one in buffers:
                one.close()

        def prime() -> None:
            # A first call loads kernels and sets up connections, which may wait for the whole device: on a stream that
            # is held until the call has returned, that would be for ever.
            for one in buffers:
                for call in self._python_calls(case, self._roles(case, count, one)):
                    call()
            self._stream.synchronize()

        bound.prime, bound.close, bound.keep = prime, close, (timer, self._flag)
        return bound

    def memory_bytes(self, case: Case, layout: Layout) -> int:
        return 0  # its buffers are the device's

    def close(self) -> None:
        self._stream.synchronize()
        self._comm.destroy()

    def _allocate(self, case: Case, layout: Layout) -> Buffers:
        dtype = DTYPES[case.dtype]
        if case.placement == "in_place":
            memory = DeviceMemory(dtype, layout.in_place_length, self._verifying)
            return Buffers(
                Region(memory, layout.in_place_send, layout.send), Region(memory, layout.in_place_recv, layout.recv)
            )
        send = DeviceMemory(dtype, layout.send, self._verifying)
        recv = DeviceMemory(dtype, layout.recv, self._verifying)
        return Buffers(Region(send, 0, layout.send), Region(recv, 0, layout.recv))

    def _roles(self, case: Case, count: int, one: Buffers) -> dict[str, int]:
        """The words for the arguments that a signature may name."""
        rank, size = self._group.rank, self._group.size
        return {
            "send": one.send.address,
            "recv": one.recv.address,
            "count": count,
            "dtype": _TYPES[case.dtype],
            "op": _OPERATIONS.get(case.operation, 0),
            "next": (rank + 1) % size,
            "previous": (rank - 1) % size,
            "root": int(case.root) if case.root else 0,
            "comm": self._comm.comm,
            "stream": self._stream.ptr,
        }

    def _bind_compiled(self, bound: BoundCall, case: Case, count: int, timer: "_Events | None") -> None:
        run = []
        for k in range(timer.pairs if timer else len(bound.buffers)):
            roles = self._roles(case, count, bound.buffers[k % len(bound.buffers)])
            calls = [
                Call(self._address(f"nccl{part.function}"), tuple(roles[word] for word in part.arguments))
                for part in parts(entry_named(case.collective).nccl, 0)
            ]
            if timer:
                record = self._driver.address("cuEventRecord")
                calls.insert(0, Call(record, (timer.start[k], self._stream.ptr)))
                calls.append(Call(record, (timer.stop[k], self._stream.ptr)))
                calls.append(Call(self._memset, (self._flag_address, _RELEASED, 4), NO_STATUS))
            run.append(calls)
        meet = meeting_calls(self._group, case.sync)
        if timer and self._can_hold:
            wait = Call(self._driver.address("cuStreamWaitValue32_v2"), self._wait_words())
            meet = [Call(self._memset, (self._flag_address, 0, 4), NO_STATUS), wait, *meet]
        bound.meet, bound.run = call_list(meet), call_list(*run)
        bound.finish = call_list([Call(self._driver.address("cuStreamSynchronize"), (self._stream.ptr,))])

    def _bind_python(self, bound: BoundCall, case: Case, count: int, timer: "_Events | None") -> None:
        """The same case through CuPy's communicator."""
        operations = [self._python_calls(case, self._roles(case, count, one)) for one in bound.buffers]
        rotations, stream, flag = len(operations), self._stream, self._flag
        together = meeting_step(self._group, case.sync)

        def operate(k: int) -> None:
            for call in operations[k % rotations]:
                call()

        def finish(k: int) -> None:
            stream.synchronize()

        if timer is None:
            bound.steps = Steps(together, operate, finish)
            return
        events = timer

        def meet(k: int) -> None:
            if self._can_hold:
                flag[0] = 0
                self._wait_for_flag()
            together(k)

        def run(k: int) -> None:
            events.start_events[k % events.pairs].record(stream)
            operate(k)
            events.stop_events[k % events.pairs].record(stream)
            flag[0] = _RELEASED

        bound.steps = Steps(meet, run, finish)

    def _python_calls(self, case: Case, roles: dict[str, int]) -> list[Callable[[], Any]]:
        calls = []
        for part in parts(entry_named(case.collective).nccl, 0):
            name = part.function[0].lower() + part.function[1:]
            method = getattr(self._comm, name, None) or getattr(self._nccl, name)
            words = [roles[word] for word in part.arguments if word != "comm"]
            calls.append(_bound(method, words))
        return calls

    @property
    def _flag_address(self) -> int:
        return int(self._flag.ctypes.data)

    def _wait_words(self) -> tuple[int, ...]:
        # Pinned memory has one address for host and device (unified addressing).
        return self._stream.ptr, self._flag_address, _RELEASED, _WAIT_GEQ

    def _wait_for_flag(self) -> int:
        """Queue a wait for the flag; the status, by which a device says that it cannot."""
        return self._driver.call("cuStreamWaitValue32_v2", *self._wait_words())

    def _address(self, name: str) -> int:
        try:
            return ctypes.cast(getattr(self._functions, name), ctypes.c_void_p).value or 0
        except AttributeError:
            raise LibraryFailed(f"{self.library} has no {name}") from None


class _Events:
    """Pairs of events; each pair is of one rotation."""

    def __init__(self, cupy: Any, driver: Driver, pairs: int) -> None:
        self.pairs = pairs
        self.start_events = [cupy.cuda.Event() for _ in range(pairs)]
        self.stop_events = [cupy.cuda.Event() for _ in range(pairs)]
        self.start = [int(event.ptr) for event in self.start_events]
        self.stop = [int(event.ptr) for event in self.stop_events]
        self._elapsed = cupy.cuda.get_elapsed_time

    def read(self, first: int, samples: int) -> NDArray[np.int64]:
        """Nanoseconds of the samples of the block that began with iteration `first`."""
        pairs = ((first + sample) % self.pairs for sample in range(samples))
        elapsed_ms = [self._elapsed(self.start_events[k], self.stop_events[k]) for k in pairs]
        return np.array([round(1e6 * milliseconds) for milliseconds in elapsed_ms], np.int64)


def _bound(method: Callable[..., Any], words: list[int]) -> Callable[[], Any]:
    return lambda: method(*words)
