"""What a collective is: how many elements each rank passes, what must come back, and how busbw follows from algbw."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from collbench.errors import CannotRun

WHOLE = -1


@dataclass(frozen=True)
class Piece:
    """A run of elements in a rank's receive region, and what must stand there afterwards.

    The elements are the reduction over the contributions of ranks `first` to `last` (both included) from element
    `index` of their input on. One rank alone (first == last) is plain movement of that rank's input; `untouched`
    means that the call must leave these elements as they were.
    """

    offset: int
    length: int
    first: int = 0
    last: int = 0
    index: int = 0
    untouched: bool = False


@dataclass(frozen=True)
class Layout:
    """The buffers of one rank, in elements.

    Out of place: a send buffer of `send` elements and a receive buffer of `recv` elements. In place: one buffer of
    max(in_place_send + send, in_place_recv + recv) elements with both regions in it. `expected` covers the receive
    region. `inputs` says what the send region holds; where it is empty, that is the rank's own contribution. `sent` are
    the elements sent to each rank and `received` those that come from each (all_to_all_v only).
    """

    send: int
    recv: int
    expected: tuple[Piece, ...]
    inputs: tuple[Piece, ...] = ()
    send_stays: bool = False
    """In place too, the whole send region must be as it was afterwards (out of place it always must)."""
    in_place_send: int = 0
    in_place_recv: int = 0
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()

    @property
    def in_place_length(self) -> int:
        """Elements of the one buffer of an in-place call."""
        return max(self.in_place_send + self.send, self.in_place_recv + self.recv)


@dataclass(frozen=True)
class Message:
    """A part of the buffers that a call of its own takes, in elements, and how long is computed before it."""

    offset: int
    length: int
    pause_ns: int = 0


@dataclass(frozen=True)
class Shape:
    """One case's size: `count` is the library call's own count argument, `size_bytes` the S of the documentation."""

    count: int
    size_bytes: int


class Collective(ABC):
    """One collective. The facts that a library's binding needs are in the table in `collectives/__init__.py`."""

    name: ClassVar[str]
    reduces: ClassVar[bool] = False
    rooted: ClassVar[bool] = False
    has_data: ClassVar[bool] = True
    has_patterns: ClassVar[bool] = False
    is_kernel: ClassVar[bool] = False
    """One of our own device kernels: a point of a sweep like any other, that no library has."""
    in_sweeps: ClassVar[bool] = True
    """Whether a sweep may name it; else a kind of sweep makes its cases."""
    ways: ClassVar[tuple[str, ...]] = ()
    """How the work may be done: what a case's pattern may be; the first is the default."""
    only_backend: ClassVar[str] = ""
    """The one backend that has it; empty where libraries have it."""
    only_mode: ClassVar[str] = ""
    """The one way in which it can be measured; empty where there are several."""
    least_ranks: ClassVar[int] = 1
    timed_ranks: int = WHOLE
    """How many of the group's first ranks give the sample; WHOLE for all of them."""
    operations_per_iteration: ClassVar[int] = 1
    """By how many the measured duration is divided (2 for a round trip)."""
    has_in_place: bool = True

    def spread(self, pattern: str, ranks: int) -> "Collective":
        """The collective for one pattern of who sends how much to whom; only those with patterns differ from self."""
        return self

    def messages(self, itemsize: int) -> tuple[Message, ...]:
        """What one operation is made of, in its order; empty where it is one call on the whole buffers."""
        return ()

    def contributors(self, ranks: int) -> int:
        """How many contributions a reduction is over."""
        return ranks

    def role(self, rank: int, ranks: int) -> int | None:
        """Which calls of a signature with several roles this rank makes; None for none of them."""
        return 0

    @abstractmethod
    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        """Round the requested size to what is sent; `size_bytes` never exceeds it."""

    @abstractmethod
    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        """The buffers of `rank`."""

    @abstractmethod
    def bus_factor(self, ranks: int, count: int) -> float | None:
        """busbw / algbw, derived in the class's docstring; None where the collective has no bus bandwidth.

        `count` is the shape's: where blocks differ, rounding to whole elements moves the factor.
        """


class Kernel(Collective):
    """What one backend alone runs: each rank works alone on its own device, or one writes to another's."""

    is_kernel = True
    only_backend = "device"
    has_in_place = False

    def __init__(self, way: str = "") -> None:
        self.way = way or next(iter(self.ways), "")

    def spread(self, pattern: str, ranks: int) -> "Kernel":
        if not pattern or pattern == self.way:
            return self
        if pattern not in self.ways:
            expected = f"one of {', '.join(self.ways)}" if self.ways else "none"
            raise CannotRun(f"way: got {pattern!r} for {self.name}, expected {expected}")
        return type(self)(pattern)

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return vector_shape(requested_bytes, itemsize)


def vector_shape(requested_bytes: int, itemsize: int) -> Shape:
    """A vector of as many whole elements as fit into the requested size."""
    count = requested_bytes // itemsize
    return Shape(count, count * itemsize)


def blocks_shape(requested_bytes: int, itemsize: int, ranks: int) -> Shape:
    """One equal block a rank, as many whole elements each as fit into the requested size together."""
    count = requested_bytes // (itemsize * ranks)
    return Shape(count, count * itemsize * ranks)
