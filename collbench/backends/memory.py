"""Memory that collectives work on, with guard words around it, and the regions of it that one call uses."""

import contextlib
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.collectives.base import Layout
from collbench.dtypes import Dtype
from collbench.memory import page_bytes

GUARD_BYTES = 4096
"""Before and after the data: a page each, so that the data start on a page as a library's own allocator would place
them, and an overrun of up to a page is seen."""

Words = tuple[int, ...]
"""A pattern in the kernels' words (collbench.pattern)."""

Wrong = tuple[int, int]
"""How many elements are wrong, and the index of the first one (-1 for none)."""


class Memory(ABC):
    """`length` elements between two guards. Indices are elements; those of the guards lie outside 0..length."""

    def __init__(self, dtype: Dtype, length: int) -> None:
        self.dtype = dtype
        self.length = length

    @property
    def guard(self) -> int:
        """Elements of one guard."""
        return GUARD_BYTES // self.dtype.itemsize

    @property
    @abstractmethod
    def address(self) -> int:
        """Where element 0 stands."""

    @abstractmethod
    def fill(self, start: int, length: int, words: Words, index: int, *, inverted: bool = False) -> None:
        """Write the pattern `words` from its element `index` on to elements start..start + length."""

    @abstractmethod
    def compare(self, start: int, length: int, words: Words, index: int, tolerance: int = 0) -> Wrong:
        """Compare the same way; `tolerance` in units of the last place."""

    @abstractmethod
    def bits(self, start: int) -> int:
        """Return the bits of one element."""

    def page_bytes(self) -> int | None:
        """The largest page that backs it, once it has been touched; None where that is not known."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Free the memory."""


class HostMemory(Memory):
    """Private anonymous pages of the host, as malloc would take them for a large block."""

    def __init__(self, dtype: Dtype, length: int, pages: str = "default") -> None:
        super().__init__(dtype, length)
        elements = length + 2 * self.guard
        self._taken: Any = self._take(elements * dtype.itemsize, pages)
        self._all: NDArray[Any] = np.frombuffer(self._taken, np.dtype(dtype.view), elements)

    def _take(self, size_bytes: int, pages: str) -> Any:
        """Allocate; anything that numpy takes for a buffer."""
        # MAP_PRIVATE: Python's default is a shared mapping, which the kernel never backs with huge pages.
        taken = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if pages == "huge":
            taken.madvise(mmap.MADV_HUGEPAGE)
        elif pages == "small":
            taken.madvise(mmap.MADV_NOHUGEPAGE)
        return taken

    @property
    def array(self) -> NDArray[Any]:
        """The data without the guards, as unsigned words."""
        return self._all[self.guard : self.guard + self.length]

    @property
    def address(self) -> int:
        return int(self._all.ctypes.data) + GUARD_BYTES

    def fill(self, start: int, length: int, words: Words, index: int, *, inverted: bool = False) -> None:
        from collbench.kernels import pattern

        pattern.fill(self._part(start, length), words, index, inverted)

    def compare(self, start: int, length: int, words: Words, index: int, tolerance: int = 0) -> Wrong:
        from collbench.kernels import pattern

        wrong, first = pattern.compare(self._part(start, length), words, index, tolerance)
        return int(wrong), int(first)

    def bits(self, start: int) -> int:
        return int(self._all[self.guard + start])

    def page_bytes(self) -> int | None:
        return page_bytes(self.address, self.length * self.dtype.itemsize)

    def close(self) -> None:
        self._all = np.empty(0, self._all.dtype)
        taken, self._taken = self._taken, None
        if isinstance(taken, mmap.mmap):
            # A binding that still has an array over the mapping keeps it; it goes with the last of them.
            with contextlib.suppress(BufferError):
                taken.close()

    def _part(self, start: int, length: int) -> NDArray[Any]:
        return self._all[self.guard + start : self.guard + start + length]


@dataclass(frozen=True)
class Region:
    """Elements start..start + length of a memory."""

    memory: Memory
    start: int
    length: int

    @property
    def address(self) -> int:
        """Where its first element stands."""
        return self.memory.address + self.start * self.memory.dtype.itemsize


@dataclass(frozen=True)
class Buffers:
    """The regions of one call: what is sent and what is received; in place both lie in one memory."""

    send: Region
    recv: Region
    index: int = 0
    """Where in the rank's data what it sends begins: a rank with several sets can send something else from each."""

    @property
    def in_place(self) -> bool:
        """Whether both regions share a memory."""
        return self.send.memory is self.recv.memory

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The one or two memories."""
        return (self.recv.memory,) if self.in_place else (self.send.memory, self.recv.memory)

    def close(self) -> None:
        """Free them."""
        for memory in self.memories:
            memory.close()


def buffers_of(placement: str, layout: Layout, dtype: Dtype, take: Callable[[Dtype, int], Memory]) -> Buffers:
    """Make one set of buffers for a placement: two memories, or one with both regions in it."""
    if placement == "in_place":
        memory = take(dtype, layout.in_place_length)
        return Buffers(
            Region(memory, layout.in_place_send, layout.send), Region(memory, layout.in_place_recv, layout.recv)
        )
    send, recv = take(dtype, layout.send), take(dtype, layout.recv)
    return Buffers(Region(send, 0, layout.send), Region(recv, 0, layout.recv))
