"""Verification: inputs and expected results are functions of (seed, rank, index), compared on raw bits.

Poison is the complement of what is expected, element by element, so that a lost write is seen wherever it happens.
Guards stand before and after each buffer. The send buffer must be unchanged after an out-of-place call.
"""

from dataclasses import dataclass, replace

import numpy as np

from collbench.backends.base import BoundCall
from collbench.backends.memory import Buffers, Memory, Region, Words
from collbench.collectives import Layout, Piece
from collbench.dtypes import Dtype
from collbench.pattern import Pattern
from collbench.timing import loop_of

_GUARD_BEFORE, _GUARD_AFTER = 1 << 40, 1 << 41
"""Where in the pattern of untouched elements the guards begin: nothing else uses these indices."""


@dataclass(frozen=True)
class Damage:
    """Wrong elements on one rank: how many, and the first one's place, got and expected value."""

    wrong: int
    where: str
    index: int
    got: str
    expected: str

    def on(self, rank: int) -> str:
        """The sentence for the row."""
        return f"rank {rank}: {self.where}[{self.index}]: got {self.got}, expected {self.expected}"


@dataclass(frozen=True)
class Check:
    """What a rank verifies with: its number in the group, its layout, the pattern of the case."""

    rank: int
    layout: Layout
    pattern: Pattern

    @property
    def untouched(self) -> Words:
        """The pattern of what no call may change."""
        return replace(self.pattern, operation="untouched").words(0, 0)

    def prepare(self, buffers: Buffers) -> None:
        """Poison what will be received, fill what is sent, and set the guards."""
        untouched = self.untouched
        for memory in buffers.memories:
            memory.fill(-memory.guard, memory.guard, untouched, _GUARD_BEFORE)
            memory.fill(memory.length, memory.guard, untouched, _GUARD_AFTER)
        if buffers.in_place:
            buffers.recv.memory.fill(0, buffers.recv.memory.length, untouched, 0)
        self.poison(buffers)

    def prepare_all(self, sets: list[Buffers]) -> None:
        """Prepare the sets of all rotations."""
        for one in sets:
            self.prepare(one)

    def poison(self, buffers: Buffers) -> None:
        """Poison what will be received and fill what is sent (in place the one covers part of the other)."""
        recv = buffers.recv
        for piece in self.layout.expected:
            recv.memory.fill(
                recv.start + piece.offset,
                piece.length,
                self._words(piece),
                buffers.index + piece.index,
                inverted=not piece.untouched,
            )
        send = buffers.send
        for piece in self._inputs(send):
            index = buffers.index + piece.index
            send.memory.fill(send.start + piece.offset, piece.length, self._words(piece), index)

    def damage(self, buffers: Buffers) -> Damage | None:
        """Compare all that the call must have written or left alone."""
        found = [self._compare(buffers.recv, piece, buffers.index) for piece in self.layout.expected]
        if not buffers.in_place or self.layout.send_stays:
            for piece in self._inputs(buffers.send):
                index = buffers.index + piece.index
                found.append(self._at(buffers.send, piece.offset, piece.length, self._words(piece), index, "sent"))
        for name, memory in zip(("received", "sent"), reversed(buffers.memories), strict=False):
            whole = Region(memory, 0, memory.length)
            untouched = self.untouched
            found.append(self._at(whole, -memory.guard, memory.guard, untouched, _GUARD_BEFORE, f"before {name}"))
            found.append(self._at(whole, memory.length, memory.guard, untouched, _GUARD_AFTER, f"after {name}"))
        damages = [damage for damage in found if damage is not None]
        if not damages:
            return None
        first = damages[0]
        return Damage(sum(one.wrong for one in damages), first.where, first.index, first.got, first.expected)

    def _inputs(self, send: Region) -> tuple[Piece, ...]:
        """What the send region holds."""
        return self.layout.inputs or (Piece(0, send.length, self.rank, self.rank),)

    def _compare(self, recv: Region, piece: Piece, start: int) -> Damage | None:
        tolerance = 0 if piece.untouched else self.pattern.tolerance
        index = start + piece.index
        return self._at(recv, piece.offset, piece.length, self._words(piece), index, "received", tolerance)

    def _words(self, piece: Piece) -> Words:
        return self.untouched if piece.untouched else self.pattern.words(piece.first, piece.last)

    def _at(
        self, region: Region, offset: int, length: int, words: Words, index: int, where: str, tolerance: int = 0
    ) -> Damage | None:
        memory, start = region.memory, region.start + offset
        wrong, first = memory.compare(start, length, words, index, tolerance)
        if not wrong:
            return None
        got = memory.bits(start + first)
        expected = _bits_of(memory, start + first, words, index + first)
        dtype = memory.dtype
        return Damage(wrong, where, offset + first, value_text(got, dtype), value_text(expected, dtype))


def _bits_of(memory: Memory, position: int, words: Words, index: int) -> int:
    """Let the memory's own kernel write the expected element in place of the wrong one, and read it."""
    memory.fill(position, 1, words, index)
    return memory.bits(position)


def value_text(bits: int, dtype: Dtype) -> str:
    """An element's value in words, with its bits where the value alone would not tell two apart."""
    if dtype.kind == "unsigned":
        return str(bits)
    top = 1 << (8 * dtype.itemsize - 1)
    if dtype.kind == "signed":
        return str(bits - 2 * top if bits & top else bits)
    digits = f"0x{bits:0{2 * dtype.itemsize}x}"
    mantissa_bits = dtype.precision - 1
    mantissa = bits & ((1 << mantissa_bits) - 1)
    exponent = (bits >> mantissa_bits) & ((1 << dtype.exponent_bits) - 1)
    if exponent == (1 << dtype.exponent_bits) - 1:
        return f"NaN or infinity ({digits})"
    hidden = 1 << mantissa_bits if exponent else 0
    magnitude = float(mantissa + hidden) * 2.0 ** (max(exponent, 1) - dtype.bias - mantissa_bits)
    return f"{-magnitude if bits & top else magnitude!r} ({digits})"


def check_case(bound: BoundCall, check: Check, *, timed: bool) -> Damage | None:
    """Verify a case after it was timed; collective over the group, since it makes calls.

    First the buffers as the timed iterations left them (out of place only: in place, each iteration fed on the last
    one's result), then the same buffers after fresh poison and one more call through the same loop.
    """
    damages: list[Damage] = []
    if timed:
        damages += [found for one in bound.buffers if not one.in_place and (found := check.damage(one))]
    check.prepare_all(bound.buffers)
    stamps = np.empty((1, 3), np.int64)
    loop = loop_of(bound.single or bound)
    for k in range(len(bound.buffers)):
        if loop(k, 1, stamps):
            damages.append(Damage(1, "the call after timing", k, "a failure status", "success"))
    bound.settle()
    damages += [found for one in bound.buffers if (found := check.damage(one))]
    return damages[0] if damages else None
