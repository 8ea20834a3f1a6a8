"""What backends share whose operations are queued on a CUDA stream: how they are held, timed, captured and finished."""

import ctypes
import math
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from collbench.backends.base import NO_STATUS, BoundCall, Call, CallList, Steps, call_list
from collbench.backends.cuda import DeviceMemory, Driver, OnDevice, device_index, most_on_a_device, room_problem
from collbench.backends.events import Events, measure_clock, worst_clock
from collbench.backends.meeting import meeting_calls, meeting_step
from collbench.backends.memory import GUARD_BYTES, Buffers, Memory, buffers_of
from collbench.backends.sharing import ShareableMemory, Shared, shareable
from collbench.clock import Clock
from collbench.collectives import Layout
from collbench.dtypes import DTYPES, Dtype
from collbench.errors import LibraryFailed
from collbench.plan import Case
from collbench.world import World

T = TypeVar("T")

_EVENTS = 64
"""Pairs of events that the samples of a block rotate over; each is read once the block has ended."""
_CAPTURED = 16
"""Operations in a graph, where one set of buffers serves; as many as there are sets where there are more."""
_MOST_HELD = 16
"""Most launches on a stream that is held; more could wait for the device before they return, and so for ever.

A stream takes about a thousand entries (documented nowhere), a launch of NCCL takes several; and of NCCL's 2048 places
for its proxy's work (MAX_OPS_PER_PEER), which are free again only as the device goes on, one launch may take 64.
"""
_WAIT_GEQ = 0  # CU_STREAM_WAIT_VALUE_GEQ
_RELEASED = 1  # memset writes bytes, so the word becomes 0x01010101: at least this


@dataclass(frozen=True)
class Operation:
    """One operation on one set of buffers: as C calls, and as a Python program makes it. All of it is queued only."""

    calls: Sequence[Call]
    python: Sequence[Callable[[], object]] = ()
    keep: tuple[object, ...] = ()
    launches: int = 1
    """About how many launches it queues."""


@dataclass(frozen=True)
class Made:
    """What a backend makes of a case: an operation for each set of buffers, and what the row says of it."""

    operations: list[Operation]
    library_call: str
    algorithm: str = ""
    peer_device: str = ""
    verdict: Call | None = None
    """A call that says after each sample whether the device went wrong: not 0 where it did."""
    failure: Callable[[int], str] = field(default=lambda _: "")
    """What the verdict means where it is not 0, in words."""
    may_hold: bool = True
    """Whether the stream may be held: not where a call waits for the device before it returns."""
    close: Callable[[], None] = field(default=lambda: None)


class OnStream(OnDevice):
    """One process a device; each operation is queued on one stream, and ends when the device has finished it.

    latency     Each rank holds its stream, queues the sample, meets the others, and lets the stream go. So the events
                around the operation lie as close as the device puts them, and no device begins before all ranks have
                queued theirs. Where it cannot be held the ranks meet first, and the row says stream_not_held.
    throughput  Operations back to back between two readings of the host's clock.
    graph       Some operations in a row, captured once, launched as one; held and timed as in latency.
    """

    _can_hold: bool
    device_clock: Clock

    def __init__(self, group: World) -> None:
        import cupy

        super().__init__(group)
        self._cupy = cupy
        self._graphs: list[tuple[int, int]] = []
        # What can fail on one rank alone comes first; then all or none go on to what they do together.
        first = group.first_problem(self._open_device())
        if first is not None:
            raise LibraryFailed(f"{group.named(first[0])}: {first[1]}")
        self._sharers = most_on_a_device(group)
        told = group.all_gather((self._can_hold, self.device_clock))
        self._can_hold = all(holds for holds, _ in told)
        self.device_clock = worst_clock([clock for _, clock in told])

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
        self._driver = Driver()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        # Verification has a stream of its own: on the operation's, it would wait for what nobody waited for.
        self._verifying = cupy.cuda.Stream(non_blocking=True)
        self._memset = ctypes.cast(ctypes.CDLL(None).memset, ctypes.c_void_p).value or 0
        self._flag_memory = cupy.cuda.alloc_pinned_memory(64)
        self._flag: NDArray[Any] = np.frombuffer(self._flag_memory, np.int32, 1)
        self._flag[0] = _RELEASED
        # With CUDA_LAUNCH_BLOCKING a launch returns when the device has finished it: on a stream that is held, never.
        self._can_hold = self._wait_for_flag() == 0 and os.environ.get("CUDA_LAUNCH_BLOCKING", "0") in ("", "0")
        self._stream.synchronize()
        self.device_clock = measure_clock(cupy, self._stream, self._hold, self._release)

    @abstractmethod
    def make(
        self, case: Case, count: int, layout: Layout, buffers: list[Buffers], shared: Shared | None = None
    ) -> Made:
        """Make the case's operation for each rotation; `shared` is what `exchange` gave."""

    def exchanges(self, case: Case) -> bool:
        """Whether the ranks tell each other addresses when they bind the case."""
        return False

    def exchange(self, case: Case, layout: Layout, buffers: list[Buffers]) -> Shared | None:
        """Let other ranks map what they need of this rank's memory; collective, and fails on all ranks or none."""
        return None

    def memory_bytes(self, case: Case, layout: Layout) -> int:
        return 0  # its buffers are the device's

    def device_bytes(self, case: Case, layout: Layout) -> int:
        """Bytes of device memory that binding the case takes on this rank."""
        if not self.exchanges(case):
            return super().memory_bytes(case, layout)
        lengths = [layout.in_place_length] if case.placement == "in_place" else [layout.send, layout.recv]
        itemsize = DTYPES[case.dtype].itemsize
        return case.buffers * sum(shareable(length * itemsize + 2 * GUARD_BYTES) for length in lengths)

    def lacks(self, case: Case, layout: Layout) -> str | None:
        return room_problem(self.device_bytes(case, layout) * self._sharers, self._device)

    def refuse_mode(self, case: Case) -> str | None:
        """Why the case's mode, call or meeting is not available on a stream."""
        if case.call != "blocking":
            return f"call {case.call}: what is queued on a stream is always asynchronous; use blocking"
        if case.sync == "clock":
            return "sync clock: the device begins when all is queued, at no instant that the host can set; use library"
        return None

    def bind(self, case: Case, count: int, layout: Layout) -> BoundCall:
        # Ranks that exchange addresses must hear of a rank that failed before they wait for it.
        agree = self.group.all_or_none if self.exchanges(case) else _alone
        buffers: list[Buffers] = []
        shared: Shared | None = None

        def release() -> None:
            if shared is not None:
                shared.close()
            for one in buffers:
                one.close()

        try:
            buffers = agree(lambda: [one for _ in range(case.buffers) for one in self.allocate(case, layout)])
            if self.exchanges(case):
                shared = self.exchange(case, layout, buffers)
            made, bound = agree(lambda: self._bound(case, count, layout, buffers, shared))
        except BaseException:
            release()
            raise

        def close() -> None:
            self.destroy_graphs()
            made.close()
            release()

        def prime() -> None:
            # A first call loads kernels and sets up connections, which may wait for the whole device: on a stream that
            # is held until the call has returned, that would be for ever; and while a stream is captured it may not be.
            for operation in made.operations:
                self._queue(operation, case.caller)
            self._stream.synchronize()
            if case.mode == "graph":
                # Nor is a graph's first launch, which brings it to the device, made on a stream that is held.
                for graph in self._bind_graphs(bound, case, made):
                    self._queue(graph, case.caller)
                self._stream.synchronize()

        bound.prime, bound.close = prime, close
        bound.keep = (*bound.keep, self._flag, [operation.keep for operation in made.operations])
        if shared is not None:
            bound.settle = shared.meet
        return bound

    def _bound(
        self, case: Case, count: int, layout: Layout, buffers: list[Buffers], shared: Shared | None
    ) -> tuple[Made, BoundCall]:
        made = self.make(case, count, layout, buffers, shared)
        bound = BoundCall(
            buffers=buffers,
            library_call=made.library_call,
            algorithm=made.algorithm,
            peer_device=made.peer_device,
            failure=made.failure,
        )
        if case.mode != "graph":
            self._bind_queued(bound, case, made, made.operations)
        return made, bound

    def abort(self) -> None:
        self._release()  # what is held could not be aborted

    def close(self) -> None:
        self._stream.synchronize()

    def allocate(self, case: Case, layout: Layout) -> list[Buffers]:
        """The buffers of one rotation: one set, on the device."""
        return [buffers_of(case.placement, layout, DTYPES[case.dtype], partial(self.memory, case))]

    def memory(self, case: Case, dtype: Dtype, length: int) -> Memory:
        """Memory of the kind that the case asks for."""
        kind = ShareableMemory if self.exchanges(case) else DeviceMemory
        return kind(dtype, length, self._verifying)

    def _launched(self, kernel: Any, blocks: int, arguments: Sequence[Any], stream: Any = None) -> Operation:
        """One launch of a kernel of our own (kernels/launch_cuda.py); the stream's device must be current."""
        words, keep = kernel.words(blocks, arguments, (queue := stream or self._stream).ptr)
        launch = Call(self._driver.address("cuLaunchKernel"), words)
        return Operation([launch], [lambda: kernel.launch(blocks, arguments, queue)], keep=(keep,))

    def _bind_graphs(self, bound: BoundCall, case: Case, made: Made) -> list[Operation]:
        """Capture the operations that one launch makes, and for verification each set's own; all that was captured."""
        times = len(made.operations) * math.ceil(_CAPTURED / len(made.operations))
        order = [made.operations[k % len(made.operations)] for k in range(times)]
        bound.operations = times
        bound.single = BoundCall(buffers=bound.buffers)
        alone = [self._captured([operation], case.caller) for operation in made.operations]
        self._bind_queued(bound.single, case, made, alone)
        whole = self._captured(order, case.caller)
        self._bind_queued(bound, case, made, [whole])
        return [*alone, whole]

    def _bind_queued(self, bound: BoundCall, case: Case, made: Made, operations: list[Operation]) -> None:
        timer, held = None, False
        if case.mode != "throughput":
            timer = Events(self._cupy, math.ceil(_EVENTS / len(operations)) * len(operations))
            bound.device_times, bound.device_clock, bound.most_samples = timer.read, self.device_clock, timer.pairs
            held = self._can_hold and made.may_hold and max(one.launches for one in operations) <= _MOST_HELD
            if held:
                bound.entry_times = timer.read_released
            else:
                bound.notes = ("stream_not_held",)
        if case.caller == "compiled":
            bound.meet, bound.run, bound.finish = self._lists(case, made, operations, timer, held)
        else:
            bound.steps = self._steps(case, made, operations, timer, held)
        bound.keep = (*bound.keep, timer, [operation.keep for operation in operations])

    def _lists(
        self, case: Case, made: Made, operations: list[Operation], timer: Events | None, held: bool
    ) -> tuple[CallList, CallList, CallList]:
        run = []
        for k in range(timer.pairs if timer else len(operations)):
            calls = list(operations[k % len(operations)].calls)
            if timer:
                record = self._driver.address("cuEventRecord")
                calls.insert(0, Call(record, (timer.start[k], self._stream.ptr)))
                calls.append(Call(record, (timer.stop[k], self._stream.ptr)))
            run.append(calls)
        together = meeting_calls(self.group, case.sync)
        finish = [Call(self._driver.address("cuStreamSynchronize"), (self._stream.ptr,))]
        if made.verdict:
            finish.append(made.verdict)
        if timer is None or not held:
            return call_list(together), call_list(*run), call_list(finish)
        hold = [
            Call(self._memset, (self._flag_address, 0, 4), NO_STATUS),
            Call(self._driver.address("cuStreamWaitValue32_v2"), self._wait_words()),
        ]
        release = Call(self._memset, (self._flag_address, _RELEASED, 4), NO_STATUS)
        ends = [[*together, timer.stamp(k), release, *finish] for k in range(timer.pairs)]
        return call_list(hold), call_list(*run), call_list(*ends)

    def _steps(self, case: Case, made: Made, operations: list[Operation], timer: Events | None, held: bool) -> Steps:
        """The same through CuPy."""
        rotations, stream = len(operations), self._stream
        together, verdict = meeting_step(self.group, case.sync), made.verdict

        def operate(k: int) -> None:
            for call in operations[k % rotations].python:
                call()

        def finish(k: int) -> None:
            stream.synchronize()
            if verdict and (status := invoke(verdict)):
                raise LibraryFailed(f"{made.library_call}: the device says {status}", status)

        if timer is None:
            return Steps(together, operate, finish)
        events = timer

        def run(k: int) -> None:
            events.start_events[k % events.pairs].record(stream)
            operate(k)
            events.stop_events[k % events.pairs].record(stream)

        if not held:
            return Steps(together, run, finish)

        def run_held(k: int) -> None:
            try:
                run(k)
            except BaseException:
                self._release()  # or whoever waits for the stream would do so for ever
                raise

        def finish_held(k: int) -> None:
            try:
                together(k)
            finally:
                events.released[k % events.pairs] = 0, time.monotonic_ns()
                self._release()
            finish(k)

        return Steps(lambda k: self._hold(), run_held, finish_held)

    def _captured(self, operations: list[Operation], caller: str) -> Operation:
        """Several operations in a row as a graph; none of them runs here."""
        runtime, stream = self._cupy.cuda.runtime, self._stream.ptr
        with self._stream:
            runtime.streamBeginCapture(stream, runtime.streamCaptureModeRelaxed)
            try:
                for operation in operations:
                    self._queue(operation, caller)
            finally:
                graph = runtime.streamEndCapture(stream)
        executable = runtime.graphInstantiate(graph)
        self._graphs.append((executable, graph))
        launch = Call(self._driver.address("cuGraphLaunch"), (int(executable), stream))
        return Operation([launch], [lambda: runtime.graphLaunch(executable, stream)])

    def destroy_graphs(self) -> None:
        """Destroy what was captured: before its memory goes, and before a communicator, which would wait for that."""
        runtime = self._cupy.cuda.runtime
        self._stream.synchronize()
        for executable, graph in self._graphs:
            runtime.graphExecDestroy(executable)
            runtime.graphDestroy(graph)
        self._graphs.clear()

    def _queue(self, operation: Operation, caller: str) -> None:
        """Queue an operation once, outside of any measurement."""
        if caller == "python":
            for step in operation.python:
                step()
            return
        for call in operation.calls:
            if status := invoke(call):
                raise LibraryFailed(f"{self.name}: a call that was queued before sampling got status {status}", status)

    @property
    def _flag_address(self) -> int:
        return int(self._flag.ctypes.data)

    def _wait_words(self) -> tuple[int, ...]:
        # Pinned memory has one address for host and device (unified addressing).
        return self._stream.ptr, self._flag_address, _RELEASED, _WAIT_GEQ

    def _wait_for_flag(self) -> int:
        """Queue a wait for the flag; the status, by which a device says that it cannot."""
        return self._driver.call("cuStreamWaitValue32_v2", *self._wait_words())

    def _hold(self) -> None:
        """Let what is queued from here on wait until `_release`; nothing where the stream cannot be held."""
        if self._can_hold:
            self._flag[0] = 0
            self._wait_for_flag()

    def _release(self) -> None:
        self._flag[0] = _RELEASED


def _alone(work: Callable[[], T]) -> T:
    return work()


def invoke(call: Call) -> int:
    """Make a call once, as the compiled loop would; its masked result."""
    prototype = ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * len(call.words))
    return int(prototype(call.address)(*[word & 0xFFFFFFFFFFFFFFFF for word in call.words])) & call.mask
