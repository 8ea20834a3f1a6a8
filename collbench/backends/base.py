"""What a backend is: it allocates, binds an operation to C calls, finishes it, and says why it cannot run here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from collbench.backends.memory import GUARD_BYTES, Buffers
from collbench.collectives import Layout, Shape, collective_of
from collbench.dtypes import DTYPES
from collbench.plan import Case
from collbench.scenario import Measure
from collbench.world import World

if TYPE_CHECKING:
    from collbench.clock import Clock
    from collbench.nccl_log import Choice

CALL_LENGTH = 14  # address, mask, twelve words: the layout of kernels/call_loop.py, which imports numba
STATUS = 0xFFFFFFFF
"""The mask of a call that returns a C int status: 0 is success, and the upper half of the register is not defined."""
NO_STATUS = 0
"""The mask of a call whose result says nothing of success."""

CallList = NDArray[np.uint64]
Step = Callable[[int], None]
Measured = tuple[str, dict[str, Any]]
"""The status of a row and its columns."""


@dataclass(frozen=True)
class Call:
    """One C call: the function's address, the mask of its result that must be zero, and its words."""

    address: int
    words: tuple[int, ...] = ()
    mask: int = STATUS


def call_list(*rotations: Sequence[Call]) -> CallList:
    """Pack calls, a sequence for each rotation (all of one length), into the loop's array (rotations, calls, 14)."""
    if not rotations:
        return np.zeros((1, 0, CALL_LENGTH), np.uint64)
    packed = np.zeros((len(rotations), len(rotations[0]), CALL_LENGTH), np.uint64)
    for row, calls in zip(packed, rotations, strict=True):
        for place, call in zip(row, calls, strict=True):
            words = (call.address, call.mask, *call.words)
            place[: len(words)] = [word & 0xFFFFFFFFFFFFFFFF for word in words]
    return packed


NO_CALLS = call_list()


def no_step(k: int) -> None:
    """Do nothing: the step of a list without calls."""


@dataclass(frozen=True)
class Steps:
    """The same three lists through the Python binding; each takes the number of the iteration."""

    meet: Step
    run: Step
    finish: Step = no_step


class DeviceTimes(Protocol):
    """Reads a time of each sample that was noted meanwhile."""

    def __call__(self, first: int, samples: int) -> NDArray[np.int64]:
        """Nanoseconds of the `samples` samples that just ended; `first` is the iteration that the block began with."""
        ...


@dataclass
class BoundCall:
    """One case, ready to run on this rank: three call lists for the compiled loop, or three steps for Python's.

    `buffers` holds one set for each rotation, or several for each, one rotation's after the other's. `device_times` is
    there where the device's clock tells the time of a sample; at most `most_samples` samples can then be read back at
    once. `close` frees what binding took, and may be called only after the last call. `keep` holds what the calls'
    words point to.
    """

    buffers: list[Buffers]
    meet: CallList = field(default_factory=call_list)
    run: CallList = field(default_factory=call_list)
    finish: CallList = field(default_factory=call_list)
    steps: Steps | None = None
    schedule: NDArray[np.int64] | None = None
    """Where samples start at instants: the instants that `meet` waits for (kernels/start_at.py)."""
    device_times: DeviceTimes | None = None
    device_clock: "Clock | None" = None
    """What the clock of `device_times` costs, and how finely it counts."""
    entry_times: DeviceTimes | None = None
    """Where operations begin later than the host queues them: when they did, by the loop's clock."""
    most_samples: int = 1 << 16
    library_call: str = ""
    algorithm: str = ""
    peer_device: str = ""
    failure: Callable[[int], str] = lambda _: ""
    """What a status that is not 0 means, in words; empty where that is not known."""
    notes: tuple[str, ...] = ()
    prime: Callable[[], None] = lambda: None
    """What must have happened once before the first sample; collective over the group."""
    settle: Callable[[], None] = lambda: None
    """Bring the ranks together after a call that wrote another rank's memory, before that rank looks at it."""
    close: Callable[[], None] = lambda: None
    keep: tuple[object, ...] = ()
    stream_sync_s: float | None = None
    """Median cost of synchronising the stream, idle, before each operation; no part of its time."""
    operations: int = 1
    """How many operations one iteration makes (those of a captured graph)."""
    single: "BoundCall | None" = None
    """The same with one operation an iteration, for verification, where an iteration makes several."""


class Backend(ABC):
    """One library, opened for one group of ranks."""

    name: ClassVar[str]
    on_device: ClassVar[bool] = False
    """Whether its ranks have devices of their own."""
    tells_choices: ClassVar[bool] = False
    """Whether `overheard` may have something to say."""
    by_itself: ClassVar[bool] = False
    """Whether `measured` measures its cases, and not the compiled loop."""
    summary: ClassVar[str]

    @classmethod
    @abstractmethod
    def unavailable(cls) -> str | None:
        """One sentence that says why this machine cannot use the library, found without starting it; None if it can."""

    @classmethod
    def lacking(cls) -> str | None:
        """What `unavailable` says, or what only starting the library tells; for whoever asks what there is."""
        return cls.unavailable()

    @classmethod
    def misfit(cls, world: World) -> str | None:
        """One sentence that says why these ranks cannot use it; None if they can. Asked on every rank."""
        return None

    def __init__(self, group: World) -> None:
        """Open the library for a group; collective over it."""
        self.group = group

    @property
    @abstractmethod
    def library(self) -> str:
        """Name and version of the library that runs."""

    @property
    def device(self) -> str:
        """The device that this rank computes on; empty for the host."""
        return ""

    @property
    def device_number(self) -> int | None:
        """Which of the visible devices this rank has; None for the host."""
        return None

    @property
    def uuid(self) -> str:
        """What tells the device from all others; empty for the host."""
        return ""

    @property
    def ranks_per_device(self) -> int | None:
        """The largest number of ranks measured at once that have one device of the group's; None for the host."""
        return None

    @abstractmethod
    def refuse(self, case: Case) -> str | None:
        """One sentence that says why the case cannot run; None if it can.

        Asked on all ranks of the group for the same case, so that it may ask around; the same answer on every rank.
        """

    def layout(self, case: Case, count: int) -> Layout:
        """This rank's buffers for the case: the collective's, where the library does not ask for others in place."""
        collective = collective_of(case.collective, case.pattern, self.group.size)
        root = int(case.root) if case.root else 0
        return collective.layout(
            count, self.group.size, self.group.rank, root=root, in_place=case.placement == "in_place"
        )

    def memory_bytes(self, case: Case, layout: Layout) -> int:
        """Bytes of host memory that binding the case takes on this rank."""
        if not case.dtype:
            return 0
        in_place = case.placement == "in_place"
        elements = layout.in_place_length if in_place else layout.send + layout.recv
        guards = (2 if in_place else 4) * GUARD_BYTES
        return case.buffers * (elements * DTYPES[case.dtype].itemsize + guards)

    def overflows(self, case: Case, count: int, layout: Layout) -> str | None:
        """One sentence that says why the library cannot count so many elements; None if it can."""
        return None

    def lacks(self, case: Case, layout: Layout) -> str | None:
        """One sentence that says why this rank's device has no room for the case's buffers; None if it has."""
        return None

    def for_group(self, group: World | None, number: int) -> "Backend | None":
        """Open the library anew for a part of this backend's ranks; collective over all of them.

        `number` tells the groups that are made at once apart; ranks of none give None.
        """
        return None if group is None else type(self)(group)

    def chosen(self, choice: "Choice | None") -> dict[str, object]:
        """Columns that say what the library chose, after the case has run; collective over the group.

        `choice` is what it told of the case's algorithm in a launch that nobody timed.
        """
        return {}

    def overheard(self, case: Case, size_bytes: int, operate: Callable[[], None]) -> "Choice | None":
        """What the library says that it chooses for the case while `operate` runs it once; collective."""
        return None

    @abstractmethod
    def bind(self, case: Case, count: int, layout: Layout) -> BoundCall:
        """Allocate and bind; may fail on one rank alone, so the caller asks all ranks before it goes on."""

    def known_fault(self) -> str:
        """What is known of this process's library that can make data wrong, in words; empty for nothing."""
        return ""

    def measured(self, case: Case, shape: Shape, measure: Measure) -> Measured | None:
        """Measure a case with a program of the backend's own, the same on every rank; None where the loop is to.

        Collective over the group; asked only where the class is `by_itself`, and then nothing is bound.
        """
        return None

    def poll(self) -> str | None:
        """What went wrong in the library's own threads, in words; asked by the watchdog while anything runs."""
        return None

    def abort(self) -> None:  # noqa: B027  nothing to abort is a good default
        """End what is under way; called by the watchdog before it ends the process."""

    def close(self) -> None:  # noqa: B027  nothing to close is a good default
        """Close the library; collective over the group."""
