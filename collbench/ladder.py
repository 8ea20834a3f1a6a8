"""The ladder: the same two hosts measured at each layer between the wire and NCCL, each a step of a sweep.

A step is held against the one that it stands on: the nearest below it that differs in one thing (the program, the kind
of memory, the library, the operation, the number of ranks). Where that one has no value, the one below it stands in.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from collbench.scenario import Sweep

PAIR, ALL = "two_hosts", "world"
BYTES = "uint8"
"""The type of what has no elements: a program's message."""


@dataclass(frozen=True)
class Step:
    """One layer: what runs there, between whom, and the name of the step that it stands on.

    `instead_of` names the step whose fallback it is: where that one ran, this one is beside the ladder.
    """

    name: str
    backend: str
    collective: str
    on: str = ""
    pattern: str = ""
    topology: str = PAIR
    instead_of: str = ""


STEPS = (
    Step("ib_write_bw, host memory", "perftest", "rdma_write", pattern="host"),
    Step("ib_write_bw, GPU memory", "perftest", "rdma_write", "ib_write_bw, host memory", pattern="device"),
    Step("MPI ping_pong", "mpi", "ping_pong", "ib_write_bw, host memory"),
    Step("MPI send_recv", "mpi", "send_recv", "MPI ping_pong"),
    Step("MPI ping_pong, GPU memory", "mpi_cuda", "ping_pong", "MPI ping_pong"),
    Step("MPI send_recv, GPU memory", "mpi_cuda", "send_recv", "MPI send_recv"),
    Step("MPI ping_pong, staged", "staged", "ping_pong", "MPI ping_pong", instead_of="MPI ping_pong, GPU memory"),
    Step("MPI send_recv, staged", "staged", "send_recv", "MPI send_recv", instead_of="MPI send_recv, GPU memory"),
    Step("NCCL send_recv", "nccl", "send_recv", "MPI send_recv, GPU memory"),
    Step("NCCL all_reduce, 2 ranks", "nccl", "all_reduce", "NCCL send_recv"),
    Step("MPI all_reduce, 2 ranks", "mpi", "all_reduce", "MPI send_recv"),
    Step("NCCL all_reduce, all ranks", "nccl", "all_reduce", "NCCL all_reduce, 2 ranks", topology=ALL),
    Step("MPI all_reduce, all ranks", "mpi", "all_reduce", "MPI all_reduce, 2 ranks", topology=ALL),
)
"""In the order in which they run; who is stood on comes before."""


def ladder(sizes: tuple[int, ...], dtypes: tuple[str, ...]) -> Sweep:
    """Make the sweep of kind "ladder": its axes name all that its steps have."""
    return Sweep(
        kind="ladder",
        backends=tuple(dict.fromkeys(step.backend for step in STEPS)),
        collectives=tuple(dict.fromkeys(step.collective for step in STEPS)),
        topologies=(PAIR, ALL),
        dtypes=dtypes,
        sizes=sizes,
    )


def sweeps(sweep: Sweep) -> Iterator[Sweep]:
    """Take a ladder apart: an ordinary sweep for each step. Any other sweep is what it was."""
    if sweep.kind != "ladder":
        yield sweep
        return
    for step in STEPS:
        kernel = step.collective == "rdma_write"
        yield replace(
            sweep,
            kind="kernel" if kernel else "collective",
            backends=(step.backend,),
            collectives=(step.collective,),
            patterns=(step.pattern,) if kernel else sweep.patterns,
            dtypes=(BYTES,) if kernel else sweep.dtypes,
            topologies=(step.topology,),
        )
