"""The table of collectives: each one's class, and how each library calls it.

A signature names a C function and its arguments in words that the library's backend turns into 64-bit words.
`mpi` gives the blocking MPI function without its `MPI_` (the nonblocking and persistent ones follow from it), `python`
the method of mpi4py's communicator, `nccl` NCCL's function without its `nccl`. An empty text means that the library has
no such function; its backend then either builds the collective itself or says that it cannot.
"""

from dataclasses import dataclass

from collbench.collectives.all_reduce import AllReduce
from collbench.collectives.barrier import Barrier
from collbench.collectives.base import Collective, Layout, Piece, Shape
from collbench.collectives.send_recv import SendRecv
from collbench.errors import UsageError


@dataclass(frozen=True)
class Entry:
    """A row of the table."""

    collective: Collective
    mpi: str = ""
    python: str = ""
    nccl: str = ""


TABLE = {
    entry.collective.name: entry
    for entry in (
        Entry(
            AllReduce(),
            mpi="Allreduce send recv count dtype op comm",
            python="Allreduce send recv op",
            nccl="AllReduce send recv count dtype op comm stream",
        ),
        Entry(Barrier(), mpi="Barrier comm", python="Barrier"),
        Entry(
            SendRecv(),
            mpi="Sendrecv send count dtype next tag recv count dtype previous tag comm status",
            python="Sendrecv send next tag recv previous tag",
            nccl="GroupStart; Send send count dtype next comm stream; Recv recv count dtype previous comm stream; GroupEnd",
        ),
    )
}


def names() -> tuple[str, ...]:
    """The names of all collectives."""
    return tuple(TABLE)


def entry_named(name: str) -> Entry:
    """Look a collective's row up; an unknown name is a UsageError that lists the known ones."""
    try:
        return TABLE[name]
    except KeyError:
        raise UsageError(f"collective: got {name!r}, expected one of {', '.join(TABLE)}") from None


__all__ = ["TABLE", "Collective", "Entry", "Layout", "Piece", "Shape", "entry_named", "names"]
