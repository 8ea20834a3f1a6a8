"""What a child process of `mpi_cuda` tries: `python -m collbench.backends.mpi_cuda_trial CALL DEVICE`.

CALL is a form of call, DEVICE the number of a visible device.

A process alone hands the library memory of the device in that form, first to functions that only move data, then to
those that reduce, and prints each function's name once it has done right: it may die in the next one.
"""

import sys
from typing import Any

from collbench.backends.mpi import method_name

WRONG_DATA = 3

_MESSAGES = ("Sendrecv",)  # in one form: not every library has the others
_MOVES = ("Alltoall", "Allgather", "Gather", "Scatter")
_REDUCTIONS = ("Allreduce", "Reduce", "Reduce_scatter_block", "Scan")


def functions(call: str, *, reduces: bool) -> tuple[str, ...]:
    """What is tried in a form of call, in this order; reductions last."""
    return _MESSAGES * (call == "blocking") + _MOVES + _REDUCTIONS * reduces


def main(call: str, device: int) -> None:
    """Try one form; ends with WRONG_DATA at the first function that gives it."""
    import mpi4py

    mpi4py.rc.thread_level = "serialized"
    import cupy

    cupy.cuda.Device(device).use()  # before MPI looks at it
    from mpi4py import MPI

    sent = cupy.arange(1, 4097, dtype=cupy.float32)
    for function in functions(call, reduces=True):
        got = cupy.zeros_like(sent)
        cupy.cuda.get_current_stream().synchronize()
        given = (sent, 0, 0, got, 0, 0) if function in _MESSAGES else (sent, got)
        do(MPI.COMM_SELF, function, call, *given)
        if not (got.get() == sent.get()).all():
            sys.exit(WRONG_DATA)
        print(function, flush=True)


def do(comm: Any, function: str, call: str, *arguments: Any) -> None:
    """Call one function in a form, and wait for it."""
    request = getattr(comm, method_name(function, call))(*arguments)
    if call == "persistent":
        request.Start()
    if call != "blocking":
        request.Wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
