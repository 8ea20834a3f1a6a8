"""How the ranks of a group meet before a sample: as calls for the compiled loop, and as a step for Python's."""

import ctypes
from typing import Any

import numpy as np

from collbench.backends.base import Call, Step, no_step
from collbench.errors import LibraryFailed
from collbench.pacing import Int64s, new_schedule, waiting_step
from collbench.world import World

_TAG = 78


def mpi_address(name: str) -> int | None:
    """Where a function of the MPI library is that mpi4py loaded; None where it has no such function."""
    from mpi4py import MPI

    try:
        return ctypes.cast(getattr(ctypes.CDLL(MPI.__file__), name), ctypes.c_void_p).value
    except AttributeError:
        return None


def need_mpi(name: str) -> int:
    """Where a function is that must be there."""
    address = mpi_address(name)
    if address is None:
        raise LibraryFailed(f"the MPI library has no {name}")
    return address


def no_status() -> int:
    """MPI_STATUS_IGNORE: 0 where handles are pointers (Open MPI), 1 where they are ints (MPICH and its kin)."""
    from mpi4py import MPI

    return 0 if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_void_p) else 1


def schedule_of(group: World, sync: str) -> Int64s | None:
    """Return the schedule that a meeting waits by; None where the ranks meet by messages, and for a rank alone."""
    return new_schedule() if sync == "clock" and group.size > 1 else None


def meeting_calls(group: World, sync: str, schedule: Int64s | None = None) -> list[Call]:
    """The calls of one meeting; none for a rank alone."""
    if group.size == 1:
        return []
    if schedule is not None:
        from collbench.kernels.start_at import start_at

        return [Call(int(start_at.address), (int(schedule.ctypes.data),))]
    handle = group.comm.handle
    if sync == "library":
        return [Call(need_mpi("MPI_Barrier"), (handle,))]
    from mpi4py import MPI

    byte, sendrecv, status = MPI.BYTE.handle, need_mpi("MPI_Sendrecv"), no_status()
    return [
        Call(sendrecv, (0, 0, byte, to, _TAG, 0, 0, byte, source, _TAG, handle, status))
        for to, source in dissemination(group.rank, group.size)
    ]


def meeting_step(group: World, sync: str, schedule: Int64s | None = None) -> Step:
    """The same meeting through mpi4py."""
    if group.size == 1:
        return no_step
    if schedule is not None:
        return waiting_step(schedule)
    comm = group.comm
    if sync == "library":
        return lambda k: comm.Barrier()
    from mpi4py import MPI

    rounds = dissemination(group.rank, group.size)
    empty: list[Any] = [np.empty(0, np.uint8), 0, MPI.BYTE]

    def meet(k: int) -> None:
        for to, source in rounds:
            comm.Sendrecv(empty, to, _TAG, empty, source, _TAG)

    return meet


def dissemination(rank: int, size: int) -> list[tuple[int, int]]:
    """Whom to tell and whom to hear in each round of a dissemination barrier.

    Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization" (1988): log2(size) rounds; after the
    last one each rank has heard, at one remove or more, from all others. It is the same for every library.
    """
    rounds, distance = [], 1
    while distance < size:
        rounds.append(((rank + distance) % size, (rank - distance) % size))
        distance *= 2
    return rounds
