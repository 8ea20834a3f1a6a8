"""The ranks of the launch: who they are, and the control messages between them (never timed)."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from collbench.errors import Agreed, CollbenchError

if TYPE_CHECKING:  # a rank initialises MPI before it has numpy
    import numpy as np
    from numpy.typing import NDArray

    Int64s: TypeAlias = NDArray[np.int64]

T = TypeVar("T")

_QUIET_S = 0.0002


@dataclass(frozen=True)
class World:
    """A set of ranks that can talk: all of the launch, or the ones of a group.

    `comm` is an mpi4py communicator, or None where one process is all there is. `ranks` are the members' numbers in
    the launch, `hosts` their host names.
    """

    rank: int = 0
    size: int = 1
    comm: Any = None
    ranks: tuple[int, ...] = (0,)
    hosts: tuple[str, ...] = ("localhost",)
    library: str = ""
    thread_level: str = ""
    crowded: bool = False
    """More ranks on a host than cores: a rank that waits must not spin, since those it waits for need its core."""
    ranks_per_device: int = 1
    """How many ranks may share a device: what the scenario allows."""
    clocks: tuple[int, ...] = ()
    """Which clock each member reads, as a number of the launch's; empty where all read one."""
    place: int | None = None
    """A part of the world keeps the number that its rank has on the host."""
    alone_because: str = field(default="", compare=False)

    @property
    def local_rank(self) -> int:
        """This rank's number among the launch's ranks on its host."""
        return self.hosts[: self.rank].count(self.hosts[self.rank]) if self.place is None else self.place

    @property
    def ranks_per_host(self) -> int:
        """The largest number of ranks on one host."""
        return max(self.hosts.count(host) for host in set(self.hosts))

    def named(self, rank: int) -> str:
        """Name a member by its number in the launch, and its host: `rank 2 on vm`."""
        return f"rank {self.ranks[rank]} on {self.hosts[rank]}"

    def part(self, ranks: tuple[int, ...], number: int) -> "World | None":
        """The World of some of its ranks, on those; None elsewhere. Collective; `number` is each part's own.

        What it holds is freed with `comm.Free()`.
        """
        if self.comm is None:
            return self if ranks else None
        from mpi4py import MPI

        comm = self.comm.Split(number if ranks else MPI.UNDEFINED, self.rank)
        if not ranks:
            return None
        return replace(
            self,
            rank=ranks.index(self.rank),
            size=len(ranks),
            comm=comm,
            ranks=tuple(self.ranks[rank] for rank in ranks),
            hosts=tuple(self.hosts[rank] for rank in ranks),
            clocks=tuple(self.clocks[rank] for rank in ranks) if self.clocks else (),
            place=self.local_rank,
        )

    def broadcast(self, value: T, root: int = 0) -> T:
        """Give every rank the root's value."""
        self._meet_if_crowded()
        return value if self.comm is None else cast(T, self.comm.bcast(value, root=root))

    def gather(self, value: T) -> list[T] | None:
        """Give rank 0 every rank's value, in rank order; None elsewhere."""
        self._meet_if_crowded()
        return [value] if self.comm is None else cast("list[T] | None", self.comm.gather(value, root=0))

    def all_gather(self, value: T) -> list[T]:
        """Give every rank every rank's value, in rank order."""
        self._meet_if_crowded()
        return [value] if self.comm is None else cast("list[T]", self.comm.allgather(value))

    def gather_array(self, local: "Int64s") -> "Int64s | None":
        """Give rank 0 an array (size x local.size, int64); None elsewhere. `local` is as long on every rank."""
        import numpy as np

        if self.comm is None:
            return local[np.newaxis]
        self._meet_if_crowded()
        whole = np.empty((self.size, local.size), np.int64) if self.rank == 0 else None
        self.comm.Gather(local, whole, root=0)
        return whole

    def broadcast_array(self, values: "Int64s") -> "Int64s":
        """Give every rank the root's array (int64, as long on every rank), in place."""
        self._meet_if_crowded()
        if self.comm is not None:
            self.comm.Bcast(values, root=0)
        return values

    def from_root(self, make: Callable[[], T]) -> T:
        """Call `make` on rank 0; every rank gets its result or raises its error."""
        outcome: tuple[bool, Any] = (True, None)
        if self.rank == 0:
            try:
                outcome = (True, make())
            except CollbenchError as error:
                outcome = (False, error)
            except Exception as error:  # the others must hear of it, whatever it is
                outcome = (False, CollbenchError(f"{self.named(0)}: {type(error).__name__}: {error}"))
        self.meet_quietly()
        ok, payload = self.broadcast(outcome)
        if not ok:
            raise payload
        return cast(T, payload)

    def meet_quietly(self) -> None:
        """Wait until all ranks are here without spinning: the work of the last one is long, or needs this core."""
        if self.comm is None or self.size == 1:
            return
        request = self.comm.Ibarrier()
        while not request.Test():
            time.sleep(_QUIET_S)

    def _meet_if_crowded(self) -> None:
        if self.crowded:
            self.meet_quietly()

    def all_or_none(self, work: Callable[[], T]) -> T:
        """Do what may fail on some ranks; where it does on any, all raise Agreed. Collective."""
        result: list[T] = []
        try:
            result.append(work())
            problem = None
        except Exception as error:  # a library's own exception types are not known here
            problem = str(error) if isinstance(error, CollbenchError) else f"{type(error).__name__}: {error}"
        first = self.first_problem(problem)
        if first is not None:
            raise Agreed(f"{self.named(first[0])}: {first[1]}")
        return result[0]

    def first_problem(self, problem: str | None) -> tuple[int, str] | None:
        """Agree on whether any rank has a problem: the lowest such rank and its text, the same on every rank."""
        problems = self.all_gather(problem)
        return next(((rank, text) for rank, text in enumerate(problems) if text), None)
