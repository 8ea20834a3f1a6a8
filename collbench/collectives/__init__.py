"""The table of collectives: each one's class, and how each library calls it.

A signature names a C function and its arguments in words that the library's backend turns into 64-bit words; several
calls are set apart by semicolons, and `0:` or `1:` before one limits it to the ranks of that role. `mpi` gives the
blocking MPI function without its `MPI_` (the nonblocking and persistent ones follow from it), `python` the method of
mpi4py's communicator, `nccl` NCCL's function without its `nccl` (its communicator and stream come last). An empty text
means that the library has no such function; its backend then says so.
"""

from dataclasses import dataclass

from collbench.collectives.all_gather import AllGather
from collbench.collectives.all_reduce import AllReduce
from collbench.collectives.all_to_all import AllToAll
from collbench.collectives.all_to_all_v import AllToAllV
from collbench.collectives.barrier import Barrier
from collbench.collectives.base import Collective, Layout, Message, Piece, Shape
from collbench.collectives.broadcast import Broadcast
from collbench.collectives.copy import Copy
from collbench.collectives.gather import Gather
from collbench.collectives.host_copy import HostCopy
from collbench.collectives.peer_copy import PeerCopy
from collbench.collectives.ping_pong import PingPong
from collbench.collectives.rdma_write import RdmaWrite
from collbench.collectives.reduce import Reduce
from collbench.collectives.reduce_local import ReduceLocal
from collbench.collectives.reduce_scatter import ReduceScatter
from collbench.collectives.replay import Replay
from collbench.collectives.scan import Scan
from collbench.collectives.scatter import Scatter
from collbench.collectives.send_recv import SendRecv
from collbench.errors import UsageError


@dataclass(frozen=True)
class Entry:
    """A row of the table.

    `in_place` names the argument that MPI replaces by MPI_IN_PLACE, and on which ranks: "send", "send at root",
    "recv at root", or nothing. `in_place_at_start`: MPI puts an in-place result at the start of the buffer, where NCCL
    leaves it at the rank's own block. `one_buffer`: the MPI function has one buffer, and so no out-of-place form.
    `nccl_in_place`: NCCL takes it in place where the collective itself can be. `nccl` may be GROUPED; that is also what
    is done where the loaded NCCL lacks the function.
    """

    collective: Collective
    mpi: str = ""
    python: str = ""
    nccl: str = ""
    in_place: str = "send"
    in_place_at_start: bool = False
    nccl_in_place: bool = True
    one_buffer: bool = False


GROUPED = "GroupStart; GroupEnd"
"""NCCL has no function of its own: a group of sends and receives, as the layouts of the ranks have them."""

_BLOCKS = "send count dtype recv count dtype"

TABLE = {
    entry.collective.name: entry
    for entry in (
        Entry(
            AllReduce(),
            mpi="Allreduce send recv count dtype op comm",
            python="Allreduce send recv op",
            nccl="AllReduce send recv count dtype op comm stream",
        ),
        Entry(
            Reduce(),
            mpi="Reduce send recv count dtype op root comm",
            python="Reduce send recv op root",
            nccl="Reduce send recv count dtype op root comm stream",
            in_place="send at root",
        ),
        Entry(
            ReduceScatter(),
            mpi="Reduce_scatter_block send recv count dtype op comm",
            python="Reduce_scatter_block send recv op",
            nccl="ReduceScatter send recv count dtype op comm stream",
            in_place_at_start=True,
        ),
        Entry(
            AllGather(),
            mpi=f"Allgather {_BLOCKS} comm",
            python="Allgather send recv",
            nccl="AllGather send recv count dtype comm stream",
        ),
        Entry(
            Gather(),
            mpi=f"Gather {_BLOCKS} root comm",
            python="Gather send recv root",
            nccl="Gather send recv count dtype root comm stream",
            in_place="send at root",
        ),
        Entry(
            Scatter(),
            mpi=f"Scatter {_BLOCKS} root comm",
            python="Scatter send recv root",
            nccl="Scatter send recv count dtype root comm stream",
            in_place="recv at root",
        ),
        Entry(
            Broadcast(),
            mpi="Bcast recv count dtype root comm",
            python="Bcast recv root",
            nccl="Broadcast send recv count dtype root comm stream",
            in_place="",
            one_buffer=True,
        ),
        Entry(
            AllToAll(),
            mpi=f"Alltoall {_BLOCKS} comm",
            python="Alltoall send recv",
            nccl="AlltoAll send recv count dtype comm stream",
            nccl_in_place=False,
        ),
        Entry(
            AllToAllV(),
            mpi="Alltoallv send sent sent_from dtype recv received received_from dtype comm",
            python="Alltoallv send recv",
            nccl=GROUPED,
            nccl_in_place=False,
        ),
        Entry(
            SendRecv(),
            mpi="Sendrecv send count dtype next tag recv count dtype previous tag comm status",
            python="Sendrecv send next tag recv previous tag",
            nccl="GroupStart; Send send count dtype next comm stream; "
            "Recv recv count dtype previous comm stream; GroupEnd",
        ),
        Entry(
            PingPong(),
            mpi="0: Send send count dtype last tag comm; 0: Recv recv count dtype last tag comm status; "
            "1: Recv recv count dtype first tag comm status; 1: Send send count dtype first tag comm",
            python="0: Send send last tag; 0: Recv recv last tag; 1: Recv recv first tag; 1: Send send first tag",
            nccl="0: Send send count dtype last comm stream; 0: Recv recv count dtype last comm stream; "
            "1: Recv recv count dtype first comm stream; 1: Send send count dtype first comm stream",
        ),
        Entry(Scan(), mpi="Scan send recv count dtype op comm", python="Scan send recv op"),
        Entry(Barrier(), mpi="Barrier comm", python="Barrier"),
        # What kind replay makes: several calls on parts of the buffers, as its messages have them.
        Entry(
            Replay(),
            mpi="Allreduce send recv count dtype op comm",
            nccl="AllReduce send recv count dtype op comm stream",
        ),
        # Kernels: points of a sweep like collectives, each run by one backend alone.
        Entry(Copy()),
        Entry(HostCopy()),
        Entry(PeerCopy()),
        Entry(ReduceLocal()),
        Entry(RdmaWrite()),
    )
}


def collective_of(name: str, pattern: str, ranks: int) -> Collective:
    """The collective of a case: the table's, spread by the case's pattern over its ranks."""
    return entry_named(name).collective.spread(pattern, ranks)


@dataclass(frozen=True)
class Part:
    """One call of a signature: the function and the words for its arguments."""

    function: str
    arguments: tuple[str, ...]


def parts(signature: str, role: int | None) -> tuple[Part, ...]:
    """Take a signature apart into the calls that a rank of this role makes."""
    found = []
    for text in filter(None, (part.strip() for part in signature.split(";"))):
        limit, colon, call = text.rpartition(": ")
        if not colon or limit == str(role):
            function, *arguments = call.split()
            found.append(Part(function, tuple(arguments)))
    return tuple(found)


def names() -> tuple[str, ...]:
    """The names of all collectives that a sweep may name; not those of the kernels."""
    return tuple(name for name, its in TABLE.items() if its.collective.in_sweeps and not its.collective.is_kernel)


def kernel_names() -> tuple[str, ...]:
    """The names of the kernels that are measured like collectives."""
    return tuple(name for name, entry in TABLE.items() if entry.collective.is_kernel)


def entry_named(name: str) -> Entry:
    """Look a collective's row up; an unknown name is a UsageError that lists the known ones."""
    try:
        return TABLE[name]
    except KeyError:
        raise UsageError(f"collective: got {name!r}, expected one of {', '.join(TABLE)}") from None


__all__ = [
    "GROUPED",
    "TABLE",
    "Collective",
    "Entry",
    "Layout",
    "Message",
    "Part",
    "Piece",
    "Shape",
    "collective_of",
    "entry_named",
    "kernel_names",
    "names",
    "parts",
]
