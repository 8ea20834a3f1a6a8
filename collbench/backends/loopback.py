"""One process and no library: memcpy stands in for the collective, so every part can run and be tested anywhere."""

import ctypes

from collbench.backends.base import NO_STATUS, Backend, BoundCall, Call, Steps, call_list, no_step
from collbench.backends.memory import Buffers, HostMemory, Region
from collbench.backends.messages import messages_of, part_of, pause, refused_as_messages
from collbench.collectives import Layout, collective_of, entry_named
from collbench.dtypes import DTYPES
from collbench.plan import Case
from collbench.world import World


class Loopback(Backend):
    """What a collective over one rank is: its input copied to its output."""

    name = "loopback"
    summary = "one process, no library: memcpy; the floor under every other figure"

    @classmethod
    def unavailable(cls) -> str | None:
        return None

    @classmethod
    def misfit(cls, world: World) -> str | None:
        return None if world.size == 1 else f"loopback is one process, and this launch has {world.size} ranks"

    def __init__(self, group: World) -> None:
        super().__init__(group)
        self._memmove = ctypes.cast(ctypes.CDLL(None).memmove, ctypes.c_void_p).value or 0

    @property
    def library(self) -> str:
        return "libc memmove"

    def refuse(self, case: Case) -> str | None:
        collective = entry_named(case.collective).collective
        if collective.is_kernel:
            return f"{case.collective} is a kernel of the {collective.only_backend} backend"
        if case.call != "blocking":
            return f"call {case.call}: loopback has blocking only"
        if (why := refused_as_messages(case, ("blocking",))) is not None:
            return why
        if case.mode not in ("latency", "throughput"):
            return f"mode {case.mode}: loopback has latency and throughput"
        if case.buffer != "plain":
            return f"buffer {case.buffer}: loopback has plain only"
        if case.placement == "in_place" and not collective_of(case.collective, case.pattern, 1).has_in_place:
            return f"{case.collective} has no in-place form"
        return None

    def bind(self, case: Case, count: int, layout: Layout) -> BoundCall:
        buffers = [self._allocate(case, layout) for _ in range(case.buffers)] if case.dtype else []
        moves = [
            (one.recv.address, one.send.address, one.recv.length * one.recv.memory.dtype.itemsize) for one in buffers
        ]

        def close() -> None:
            for one in buffers:
                one.close()

        def move(k: int) -> None:
            ctypes.memmove(*moves[k % len(moves)])

        if case.caller == "python":
            steps = Steps(no_step, move if moves else no_step)
            return BoundCall(buffers=buffers, steps=steps, library_call="memmove", close=close)
        run = call_list(*[self._calls(case, move) for move in moves])
        return BoundCall(buffers=buffers, run=run, library_call="memmove", close=close)

    def _calls(self, case: Case, move: tuple[int, int, int]) -> list[Call]:
        messages = messages_of(case)
        if not messages:
            return [Call(self._memmove, move, NO_STATUS)]
        itemsize, words, calls = DTYPES[case.dtype].itemsize, {"recv": move[0], "send": move[1]}, []
        for message in messages:
            own = part_of(words, message, itemsize)
            moved = Call(self._memmove, (own["recv"], own["send"], own["count"] * itemsize), NO_STATUS)
            calls += [*pause(message), moved]
        return calls

    def _allocate(self, case: Case, layout: Layout) -> Buffers:
        dtype = DTYPES[case.dtype]
        send = HostMemory(dtype, layout.send, case.pages)
        if case.placement == "in_place":
            return Buffers(Region(send, 0, layout.send), Region(send, 0, layout.recv))
        return Buffers(Region(send, 0, layout.send), Region(HostMemory(dtype, layout.recv, case.pages), 0, layout.recv))
