"""Our own all_reduce over peer memory: what the devices of one host can do without a library."""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from collbench.backends.base import Call
from collbench.backends.cuda import DeviceMemory, alone_problem, driver_problem, driver_version
from collbench.backends.memory import GUARD_BYTES, Buffers
from collbench.backends.on_stream import Made, OnStream
from collbench.backends.sharing import Shared, shareable, sharing_refused
from collbench.collectives import Layout
from collbench.dtypes import DTYPES
from collbench.plan import Case
from collbench.world import World

_MOST_RANKS = 64
"""Of one host. The missing one's number is told in two digits."""
_MOST_BLOCKS = 64
"""64 blocks of 512 threads have half a megabyte of loads under way, which is what a link of 450 GB/s carries in a
microsecond; more would only make more flags, and take more of the device from others."""
_PACK_BYTES = 16
_ALIGNMENT = 256
_CAPABILITY = 70
"""The first with acquire and release at system scope."""


class Peer(OnStream):
    """all_reduce for ranks of one host with access to each other's memory; one process a device."""

    name = "peer"
    summary = "our own all_reduce over peer memory, for CUDA devices of one host (through CuPy)"

    one_shot_bytes: ClassVar[int] = 1 << 20
    """What a link of 350 GB/s carries in three microseconds, the cost of one more meeting: see _algorithm."""
    deadline_s: ClassVar[float] = 10.0
    """A rank that has not come then will not: short against a case's timeout, long against any pause of a process."""

    @classmethod
    def unavailable(cls) -> str | None:
        return driver_problem()

    @classmethod
    def misfit(cls, world: World) -> str | None:
        return alone_problem(world)

    def __init__(self, group: World) -> None:
        super().__init__(group)
        self._problem = self._find_problem()

    def _find_problem(self) -> str | None:
        """Why these ranks cannot reach each other's memory; collective."""
        size = self.group.size
        if size > _MOST_RANKS:
            return f"peer: got {size} ranks, expected at most {_MOST_RANKS}"
        capability = int(self._cupy.cuda.Device(self._device).compute_capability)
        found = f"{capability // 10}.{capability % 10}"
        old = f"peer needs compute capability 7.0; {self.device} has {found}" if capability < _CAPABILITY else None
        first = self.group.first_problem(old)
        if first is not None:
            return first[1]
        refused = sharing_refused(self.group, [(one, other) for one in range(size) for other in range(size)])
        return f"peer: {refused}" if refused else None

    def _take_device(self) -> None:
        super()._take_device()
        self._atoi = ctypes.cast(ctypes.CDLL(None).atoi, ctypes.c_void_p).value or 0

    @property
    def library(self) -> str:
        return driver_version()

    def refuse(self, case: Case) -> str | None:
        from collbench.kernels import reduce_cuda

        if case.collective != "all_reduce":
            return f"peer has all_reduce only, not {case.collective}"
        if case.buffer != "plain":
            return f"buffer {case.buffer}: peer has plain only"
        return self._problem or self.refuse_mode(case) or reduce_cuda.problem(case.dtype, case.operation)

    def device_bytes(self, case: Case, layout: Layout) -> int:
        return super().device_bytes(case, layout) + _Own.size_bytes(self._scratch_bytes(case, layout), self.group.size)

    def _algorithm(self, case: Case, layout: Layout) -> str:
        """Which of the two takes less time for a vector of S bytes over n ranks.

        one_shot reads (n - 1)S from others, two_shot 2(n - 1)S/n, but meets once more: it pays where the difference,
        S(n - 1)(n - 2)/n, is more than a link carries in that time. A vector that is itself longer than that goes
        two_shot too, whose ranks do not copy their input first.
        """
        size, size_bytes = self.group.size, layout.recv * DTYPES[case.dtype].itemsize
        saved = size_bytes * max(1.0, (size - 1) * (size - 2) / size)
        return "one_shot" if saved <= self.one_shot_bytes else "two_shot"

    def _work(self, case: Case, layout: Layout) -> int:
        """Packs of 16 bytes that a rank's threads go through at a time: the vector's, or those of its part."""
        packs = -(-layout.recv * DTYPES[case.dtype].itemsize // _PACK_BYTES)
        return packs if self._algorithm(case, layout) == "one_shot" else -(-packs // self.group.size)

    def _scratch_bytes(self, case: Case, layout: Layout) -> int:
        halves = 2 if self._algorithm(case, layout) == "one_shot" else 1
        return halves * self._work(case, layout) * _PACK_BYTES

    def exchanges(self, case: Case) -> bool:
        return True

    def exchange(self, case: Case, layout: Layout, buffers: list[Buffers]) -> Shared:
        algorithm, group = self._algorithm(case, layout), self.group

        def prepare() -> tuple[Any, _Own]:
            from collbench.kernels import peer_cuda

            kernel = peer_cuda.kernel(algorithm, case.dtype, case.operation, group.size)
            return kernel, _Own(self._scratch_bytes(case, layout), group.size, self._stream)

        kernel, own = group.all_or_none(prepare)
        # Blocks wait for blocks of the others: the same grid everywhere, that fits on each device at once.
        most = min(group.all_gather(min(kernel.blocks_at_once, _MOST_BLOCKS)))
        inputs = [cast(DeviceMemory, one.send.memory).allocation for one in buffers]
        return _Peers(group, own, inputs if algorithm == "two_shot" else [], replace(kernel, blocks_at_once=most))

    def make(
        self, case: Case, count: int, layout: Layout, buffers: list[Buffers], shared: Shared | None = None
    ) -> Made:
        assert isinstance(shared, _Peers)
        algorithm = self._algorithm(case, layout)
        blocks = shared.kernel.blocks(self._work(case, layout))
        operations = [
            self._launched(shared.kernel, blocks, [self._argument(k, count, one, shared)])
            for k, one in enumerate(buffers)
        ]
        return Made(
            operations,
            library_call="peer.cu",
            algorithm=algorithm,
            verdict=Call(self._atoi, (shared.own.error_address,)),
            failure=self._missing,
        )

    def _missing(self, status: int) -> str:
        """Whom the kernel waited for in vain, by its verdict; empty for a status of the driver's."""
        if status > self.group.size:
            return ""
        return f"{self.group.named(status - 1)} did not come within {self.deadline_s:g} s"

    def _argument(self, k: int, count: int, one: Buffers, shared: "_Peers") -> Any:
        from collbench.kernels import peer_cuda

        ranks, own = range(self.group.size), shared.own
        start = GUARD_BYTES + one.send.start * one.send.memory.dtype.itemsize
        mapped = [shared.addresses[rank] for rank in ranks]
        return peer_cuda.arguments(
            len(ranks),
            {
                "input": [places[1 + k] + start if len(places) > 1 else one.send.address for places in mapped],
                "scratch": [places[0] + own.scratch_offset for places in mapped],
                "flags": [places[0] for places in mapped],
                "output": one.recv.address,
                "state": own.address + own.state_offset,
                "error": own.error_address,
                "count": count,
                "rank": self.group.rank,
                "deadline_ns": round(1e9 * self.deadline_s),
            },
        )


class _Own:
    """What a rank needs for one case beside its buffers: flags, state and scratch memory, and the word of an error."""

    def __init__(self, scratch_bytes: int, ranks: int, stream: Any) -> None:
        import cupy

        self.state_offset, self.scratch_offset = self._offsets(ranks)
        self._memory = cupy.cuda.Memory(self.size_bytes(scratch_bytes, ranks))
        self.address = int(self._memory.ptr)
        cupy.cuda.runtime.memsetAsync(self.address, 0, self.scratch_offset, stream.ptr)
        stream.synchronize()
        self._error_memory = cupy.cuda.alloc_pinned_memory(64)
        self._error: NDArray[np.uint32] = np.frombuffer(self._error_memory, np.uint32, 1)
        self._error[0] = 0
        # Pinned memory has one address for host and device (unified addressing).
        self.error_address = int(self._error.ctypes.data)

    @classmethod
    def size_bytes(cls, scratch_bytes: int, ranks: int) -> int:
        """Bytes of device memory that it takes; others map it."""
        return shareable(cls._offsets(ranks)[1] + scratch_bytes)

    @staticmethod
    def _offsets(ranks: int) -> tuple[int, int]:
        """Where the state and the scratch memory begin."""
        from collbench.kernels import peer_cuda

        state = _aligned(8 * peer_cuda.flag_words(_MOST_BLOCKS, ranks))
        return state, state + _aligned(8 * peer_cuda.state_words(_MOST_BLOCKS))


class _Peers(Shared):
    """The ranks' own memories, and for two_shot their inputs; and the kernel with the blocks that all can launch."""

    def __init__(self, group: World, own: _Own, inputs: Sequence[int], kernel: Any) -> None:
        super().__init__(group, [own.address, *inputs], range(group.size))
        self.own, self.kernel = own, kernel


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNMENT) * _ALIGNMENT
