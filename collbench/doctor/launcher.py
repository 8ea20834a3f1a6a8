"""Launcher and size: whether the processes that the launcher started are the ranks of one world."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.doctor.finding import Finding, Seen
from collbench.world import World

CHECK = "launcher"

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_REMEDY = "start with `collbench launch`, or with the mpirun that belongs to the MPI of this Python"


@dataclass(frozen=True)
class Facts:
    """What the launcher says and what MPI sees.

    `refused` is why the start refused to go on, `unjoined` what MPI said when it could not bring the ranks together.
    """

    size: int
    library: str
    sizes: tuple[tuple[str, int], ...] = ()
    ranks: tuple[tuple[str, int], ...] = ()
    refused: str = ""
    unjoined: str = ""


def measure(
    root: str = "",
    *,
    world: World,
    refused: str = "",
    unjoined: str = "",
    environ: Mapping[str, str] | None = None,
) -> Facts:
    """Read the launcher's variables."""
    environ = os.environ if environ is None else environ

    def numbers(names: Sequence[str]) -> tuple[tuple[str, int], ...]:
        return tuple((name, int(environ[name])) for name in names if environ.get(name, "").isdecimal())

    return Facts(world.size, world.library, numbers(_SIZES), numbers(_RANKS), refused, unjoined)


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Judge it."""
    first = ranks[0].facts
    alone = "each process is then a world of its own, and would print figures that look like a collective's"
    if first.refused:
        return [
            Finding(
                CHECK, "problem", first.refused.removeprefix(f"{CHECK}: "), alone, _REMEDY, "nccl-tests#71, #213, #218"
            )
        ]
    if first.unjoined:
        seen = f"MPI started and could not bring the ranks together: {first.unjoined}"
        why = "no collective can run; what follows is of the first rank's host alone"
        remedy = "look at what is said of interfaces, settings and RDMA, and at the library's own message"
        return [Finding(CHECK, "problem", seen, why, remedy)]
    number = next(((name, rank) for name, rank in first.ranks if first.size == 1 and rank > 0), None)
    if number is not None:
        seen = f"{number[0]} says that this is process {number[1]} of several, and MPI sees it alone"
        return [Finding(CHECK, "problem", seen, alone, _REMEDY, "nccl-tests#71, #213, #218")]
    if first.size == 1 and not first.sizes:
        seen = "one process without a launcher: nothing was compared between hosts"
        return [Finding(CHECK, "note", seen, "", "mpirun -n N collbench doctor")]
    counts: dict[str, int] = {}
    for one in ranks:
        counts[one.host] = counts.get(one.host, 0) + 1
    found = []
    for name, size in first.sizes:
        if size != first.size:
            found.append(Finding(CHECK, "note", f"{name} says {size} processes, and {first.size} ranks are here"))
    if len(set(counts.values())) > 1:
        seen = f"ranks are spread unevenly: {', '.join(f'{count} on {host}' for host, count in counts.items())}"
        why = "topologies host and rail need as many ranks on each host, and hosts with more ranks share their links"
        found.append(Finding(CHECK, "warning", seen, why, "start as many ranks on each host", differs=True))
    told = f"{first.size} ranks on {len(counts)} hosts" if len(counts) > 1 else f"{first.size} ranks on one host"
    return [*found, Finding(CHECK, "ok", told)]
