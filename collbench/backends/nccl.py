"""NCCL on CUDA devices: communicators by CuPy, calls by address on the libnccl that CuPy loaded."""

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from collbench.backends.base import Backend, BoundCall, Call
from collbench.backends.cuda import DeviceMemory, alone_problem, driver_problem, sharing_problem
from collbench.backends.memory import Buffers, Memory
from collbench.backends.messages import messages_of, part_of
from collbench.backends.on_stream import Made, OnStream, Operation
from collbench.backends.sharing import Shared
from collbench.collectives import GROUPED, Entry, Layout, Part, collective_of, entry_named, parts
from collbench.dtypes import DTYPES, Dtype
from collbench.errors import AgreedCannotRun, LibraryFailed
from collbench.nccl_log import Choice, Log, choice_of, merge, read_choices, read_setup
from collbench.plan import Case
from collbench.world import World

# ncclDataType_t and ncclRedOp_t of nccl.h.
_TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7,
    "float64": 8, "bfloat16": 9, "float8_e4m3": 10, "float8_e5m2": 11,
}  # fmt: skip
_OPERATIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
_IN_PROGRESS = 7  # ncclInProgress
_SYMMETRIC = 1  # NCCL_WIN_COLL_SYMMETRIC
_FP8_VERSION = 22400  # the first with float8 types
_FP8_CAPABILITY = 90
_SHARED_DEVICE_VERSION = 23000  # the first that lets ranks share a device
_BLOCKING = "NCCL_COMM_BLOCKING"
"""It has precedence over what a communicator is made with."""
_NO_COLOR = -1  # NCCL_SPLIT_NOCOLOR


class Nccl(OnStream):
    """NCCL collectives, one process a device.

    CuPy makes blocking communicators only (its NcclConfig has no more than split_share), so a peer that never comes is
    waited for inside NCCL, with the interpreter free; the watchdog's deadline ends that, and aborts the communicator.
    """

    name = "nccl"
    tells_choices = True
    summary = "NCCL on CUDA devices, one rank each (through CuPy)"

    @classmethod
    def unavailable(cls) -> str | None:
        return driver_problem()

    @classmethod
    def misfit(cls, world: World) -> str | None:
        if (problem := alone_problem(world)) is not None:
            return problem
        first = world.first_problem(_nccl_problem(world))
        return first[1] if first else sharing_problem(world)

    def __init__(self, group: World, parent: "Nccl | None" = None, number: int = 0) -> None:
        from cupy.cuda import nccl

        self._nccl = nccl
        self._comm: Any
        # A file of settings (nccl.conf) could say otherwise; the environment has precedence over it.
        os.environ.setdefault(_BLOCKING, "1")
        super().__init__(group)
        self._log = Log.of_this_process(os.environ, os.getpid())
        self._log.mark()  # what other communicators said is not about this one
        if parent is None or not _splits(parent._comm):
            identity = group.from_root(nccl.get_unique_id)
            self._comm = nccl.NcclCommunicator(group.size, identity, group.rank)
        else:
            self._comm = parent._comm.commSplit(number, group.rank)
        self._setup = read_setup(self._log.text())

    def _opened_for(self, group: World | None, number: int) -> Backend | None:
        if group is None:
            if _splits(self._comm):
                self._comm.commSplit(_NO_COLOR, 0)
            return None
        return Nccl(group, self, number)

    def _take_device(self) -> None:
        super()._take_device()
        self._functions = ctypes.CDLL("libnccl.so.2")  # already loaded: the dynamic loader goes by this name

    @property
    def library(self) -> str:
        version = int(self._nccl.get_version())
        return f"NCCL {version // 10000}.{version // 100 % 100}.{version % 100}"

    def refuse(self, case: Case) -> str | None:
        entry = entry_named(case.collective)
        if not entry.nccl:
            return f"NCCL has no {case.collective}"
        if any(message.pause_ns for message in messages_of(case)):
            return f"{case.collective}: what computes would run on a stream of its own here; use computes none"
        return self.refuse_mode(case) or self._refuse_type(case) or self._refuse_buffers(case, entry)

    def _refuse_type(self, case: Case) -> str | None:
        if case.dtype not in _TYPES:
            return f"NCCL has no type for {case.dtype}"
        if case.operation not in ("", *_OPERATIONS):
            return f"NCCL has no operation {case.operation}"
        if not case.dtype.startswith("float8"):
            return None
        if int(self._nccl.get_version()) < _FP8_VERSION:
            return f"{self.library} has no type for {case.dtype}; NCCL has it from 2.24 on"
        capability = int(self._cupy.cuda.Device(self._device).compute_capability)
        if case.operation and capability < _FP8_CAPABILITY:
            found = f"{capability // 10}.{capability % 10}"
            return f"{case.operation} of {case.dtype} needs compute capability 9.0; {self.device} has {found}"
        return None

    def _refuse_buffers(self, case: Case, entry: Entry) -> str | None:
        if case.placement == "in_place" and not (entry.nccl_in_place and entry.collective.has_in_place):
            return f"{case.collective} has no in-place form in NCCL"
        needed = {
            "registered": ("ncclMemAlloc", "ncclCommRegister"),
            "symmetric": ("ncclMemAlloc", "ncclCommWindowRegister"),
        }.get(case.buffer, ())
        for name in needed:
            if not hasattr(self._functions, name):
                return f"buffer {case.buffer}: {self.library} has no {name}"
        if case.buffer == "symmetric" and not _alike(case, self.group.size):
            return f"buffer symmetric: {case.collective}'s buffers differ from rank to rank; a window must not"
        return None

    def memory(self, case: Case, dtype: Dtype, length: int) -> Memory:
        if case.buffer == "plain":
            return super().memory(case, dtype, length)
        return NcclMemory(dtype, length, self._verifying, self._functions)

    def make(
        self, case: Case, count: int, layout: Layout, buffers: list[Buffers], shared: Shared | None = None
    ) -> Made:
        entry = entry_named(case.collective)
        role = entry.collective.role(self.group.rank, self.group.size)
        grouped = entry.nccl == GROUPED or not self._has_all(entry, case.caller)
        signature = GROUPED if grouped else entry.nccl
        own = () if role is None or grouped else parts(signature, role)
        operations = [self._operation(case, count, layout, one, own, grouped) for one in buffers]
        return Made(
            operations,
            library_call="ncclSend and ncclRecv in a group" if grouped else signature,
            algorithm="grouped send/recv" if grouped and entry.nccl != GROUPED else "",
        )

    def bind(self, case: Case, count: int, layout: Layout) -> BoundCall:
        bound = super().bind(case, count, layout)
        first_call = bound.prime

        def listening() -> None:
            # Between here and the row nobody but this communicator has anything to say.
            self._log.mark()
            first_call()

        bound.prime = listening
        if case.buffer == "plain":
            return bound
        memories = [memory for one in bound.buffers for memory in one.memories]
        handles: list[tuple[str, int]] = []
        prime, close = bound.prime, bound.close

        def register() -> None:  # collective where the window is symmetric
            handles.extend(self._register(case.buffer, memory) for memory in memories)
            # NCCL succeeds without a handle where it has no use for one: such rows would be those of plain buffers.
            missing = None if all(handle for _, handle in handles) else f"{self.library} registers nothing here"
            first = self.group.first_problem(missing)
            if first is not None:
                needs = "all devices must reach each other's memory" if case.buffer == "symmetric" else "see its log"
                raise AgreedCannotRun(f"buffer {case.buffer}: {first[1]}; {needs}")
            prime()

        def deregister() -> None:
            self.destroy_graphs()
            for name, handle in handles:
                if handle:
                    self._call(name, self._comm.comm, handle)
            close()

        bound.prime, bound.close = register, deregister
        return bound

    def chosen(self, choice: Choice | None) -> dict[str, object]:
        # From 2.22 on more is set up when an algorithm is used for the first time.
        self._setup = merge([self._setup, read_setup(self._log.text())])
        setup = merge(self.group.all_gather(self._setup))
        found: dict[str, object] = {"transport": setup.transport(choice) or None, "channels": setup.channels}
        if choice is not None:
            found |= {"algorithm": choice.algorithm, "protocol": choice.protocol or None}
            found["channels"] = choice.channels or setup.channels
        return found

    def overheard(self, case: Case, size_bytes: int, operate: Callable[[], None]) -> Choice | None:
        self._log.mark()
        operate()
        own = choice_of(read_choices(self._log.text()), case.collective, size_bytes, self.group.size)
        return next((one for one in self.group.all_gather(own) if one is not None), None)

    def poll(self) -> str | None:
        status = ctypes.c_int()
        self._functions.ncclCommGetAsyncError(ctypes.c_void_p(self._comm.comm), ctypes.byref(status))
        return None if status.value in (0, _IN_PROGRESS) else self._explained("NCCL", status.value)

    def abort(self) -> None:
        super().abort()
        self._functions.ncclCommAbort(ctypes.c_void_p(self._comm.comm))

    def close(self) -> None:
        super().close()
        self._comm.destroy()

    def _has_all(self, entry: Entry, caller: str) -> bool:
        """Whether the library, or for the Python caller CuPy's binding of it, has the collective's own functions."""
        names = [part.function for part in parts(entry.nccl, 0)]
        if caller == "python":
            return all(self._method(name) is not None for name in names)
        return all(hasattr(self._functions, f"nccl{name}") for name in names)

    def _operation(
        self, case: Case, count: int, layout: Layout, one: Buffers, own: tuple[Part, ...], grouped: bool
    ) -> Operation:
        words = self._words(case, count, one)
        itemsize = DTYPES[case.dtype].itemsize
        parted = [part_of(words, message, itemsize) for message in messages_of(case)] or [words]
        made = list(self._exchange(case, count, layout, one)) if grouped else [
            (part.function, tuple(its[word] for word in part.arguments)) for its in parted for part in own
        ]  # fmt: skip
        launches = 1 if grouped else len(made)
        if case.caller == "python":
            # The communicator, last but the stream, is CuPy's self.
            steps = [_bound(self._method(name), [*given[:-2], *given[-1:]]) for name, given in made]
            return Operation((), steps, launches=launches)
        return Operation([Call(self._address(f"nccl{name}"), given) for name, given in made], launches=launches)

    def _words(self, case: Case, count: int, one: Buffers) -> dict[str, int]:
        """The words for the arguments that a signature may name."""
        rank, size = self.group.rank, self.group.size
        return {
            "send": one.send.address,
            "recv": one.recv.address,
            "count": count,
            "dtype": _TYPES[case.dtype],
            "op": _OPERATIONS.get(case.operation, 0),
            "next": (rank + 1) % size,
            "previous": (rank - 1) % size,
            "first": 0,
            "last": size - 1,
            "root": int(case.root) if case.root else 0,
            "comm": self._comm.comm,
            "stream": self._stream.ptr,
        }

    def _exchange(self, case: Case, count: int, layout: Layout, one: Buffers) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The collective as a group of sends and receives: who gets what stands in the ranks' layouts."""
        rank, size = self.group.rank, self.group.size
        collective = collective_of(case.collective, case.pattern, size)
        itemsize, dtype = DTYPES[case.dtype].itemsize, _TYPES[case.dtype]
        comm, stream = self._comm.comm, self._stream.ptr
        # In place a rank's own block is where it must come to already.
        root, in_place = int(case.root) if case.root else 0, case.placement == "in_place"
        yield "GroupStart", ()
        for peer in range(size):
            theirs = layout if peer == rank else collective.layout(count, size, peer, root=root, in_place=in_place)
            for piece in theirs.expected:
                if piece.first == rank and piece.length and not (in_place and peer == rank):
                    source = one.send.address + piece.index * itemsize
                    yield "Send", (source, piece.length, dtype, peer, comm, stream)
        for piece in layout.expected:
            if piece.length and not (in_place and piece.first == rank):
                target = one.recv.address + piece.offset * itemsize
                yield "Recv", (target, piece.length, dtype, piece.first, comm, stream)
        yield "GroupEnd", ()

    def _method(self, name: str) -> Callable[..., Any] | None:
        python = name[0].lower() + name[1:]
        method: Callable[..., Any] | None = getattr(self._comm, python, None) or getattr(self._nccl, python, None)
        return method

    def _register(self, buffer: str, memory: Memory) -> tuple[str, int]:
        """Register a memory with the communicator; the function that takes it back, and its handle."""
        assert isinstance(memory, NcclMemory)
        handle = ctypes.c_void_p()
        words = (self._comm.comm, memory.base, memory.size_bytes, ctypes.addressof(handle))
        if buffer == "registered":
            self._call("ncclCommRegister", *words)
            return "ncclCommDeregister", handle.value or 0
        self._call("ncclCommWindowRegister", *words, _SYMMETRIC)
        return "ncclCommWindowDeregister", handle.value or 0

    def _call(self, name: str, *words: int) -> None:
        """Call a function once, outside of any measurement."""
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * len(words))
        status = prototype(self._address(name))(*words)
        if status:
            raise LibraryFailed(self._explained(name, status), status)

    def _explained(self, name: str, status: int) -> str:
        get_error, get_last = self._functions.ncclGetErrorString, getattr(self._functions, "ncclGetLastError", None)
        get_error.restype = ctypes.c_char_p
        text = f"{name}: status {status}, {(get_error(status) or b'').decode(errors='replace')}"
        if get_last is not None:
            get_last.restype = ctypes.c_char_p
            said = (get_last(ctypes.c_void_p(self._comm.comm)) or b"").decode(errors="replace").strip()
            text += f"; NCCL says: {said}" if said else ""
        return text

    def _address(self, name: str) -> int:
        try:
            return ctypes.cast(getattr(self._functions, name), ctypes.c_void_p).value or 0
        except AttributeError:
            raise LibraryFailed(f"{self.library} has no {name}") from None


class NcclMemory(DeviceMemory):
    """Device memory by ncclMemAlloc, which NCCL can register."""

    def __init__(self, dtype: Dtype, length: int, stream: Any, functions: ctypes.CDLL) -> None:
        self._functions = functions
        super().__init__(dtype, length, stream)

    def _taken(self, size_bytes: int) -> Any:
        import cupy

        pointer = ctypes.c_void_p()
        status = self._functions.ncclMemAlloc(ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
        if status or not pointer.value:
            raise LibraryFailed(f"ncclMemAlloc: status {status} for {size_bytes} bytes", status)
        self.base, self.size_bytes = int(pointer.value), size_bytes
        return cupy.cuda.UnownedMemory(self.base, size_bytes, _Owner(self._functions, self.base))


@dataclass(frozen=True)
class _Owner:
    """Gives memory back when the last array over it is gone."""

    functions: ctypes.CDLL
    pointer: int

    def __del__(self) -> None:
        self.functions.ncclMemFree(ctypes.c_void_p(self.pointer))


def _nccl_problem(world: World) -> str | None:
    """Why this rank cannot use NCCL, though it has a device."""
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        return f"CuPy cannot load NCCL ({error}); install the NCCL wheel of CuPy's CUDA version"
    if not nccl.available:
        return "CuPy finds no NCCL; install the wheel of CuPy's CUDA version"
    blocking = os.environ.get(_BLOCKING, "")
    if blocking not in ("", "1"):
        return f"{_BLOCKING}: got {blocking!r}, expected 1 or nothing; CuPy makes blocking ones only: unset it"
    version = int(nccl.get_version())
    if world.ranks_per_device > 1 and version < _SHARED_DEVICE_VERSION:
        found = f"{version // 10000}.{version // 100 % 100}"
        return f"ranks_per_device: NCCL lets ranks share a device from 2.30 on, and this is {found}"
    return None


def _splits(comm: Any) -> bool:
    """Whether CuPy knows ncclCommSplit: from 14.0 on."""
    return hasattr(comm, "commSplit")


def _alike(case: Case, size: int) -> bool:
    """Whether every rank's buffers are as long as any other's."""
    collective = collective_of(case.collective, case.pattern, size)
    return not (collective.rooted or collective.has_patterns or collective.timed_ranks >= 0)


def _bound(method: Callable[..., Any] | None, words: list[int]) -> Callable[[], object]:
    assert method is not None
    return lambda: method(*words)
