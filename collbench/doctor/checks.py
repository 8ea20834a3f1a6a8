"""The table of checks: how each is measured on a rank, and what it finds over all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.doctor import (
    congestion,
    containers,
    hypervisor,
    interfaces,
    mpi_library,
    mpi_path,
    nccl_topology,
    pci,
    rdma_devices,
    settings,
    system,
)
from collbench.doctor.finding import Finding, Seen
from collbench.world import World


@dataclass(frozen=True)
class Check:
    """One check; `measure` looks at this rank and its host, `findings` at what all ranks saw."""

    name: str
    measure: Callable[[World], Any]
    findings: Callable[[Sequence[Seen[Any]]], list[Finding]]


# The launcher is looked at by the command itself, which knows how the start went.
CHECKS = (
    Check(mpi_library.CHECK, lambda world: mpi_library.measure(world=world), mpi_library.findings),
    Check(mpi_path.CHECK, lambda world: mpi_path.measure(world=world), mpi_path.findings),
    Check(rdma_devices.CHECK, lambda _: rdma_devices.measure(), rdma_devices.findings),
    Check(congestion.CHECK, lambda _: congestion.measure(), congestion.findings),
    Check(interfaces.CHECK, lambda _: interfaces.measure(), interfaces.findings),
    Check(settings.CHECK, lambda _: settings.measure(), settings.findings),
    Check(system.CHECK, lambda _: system.measure(), system.findings),
    Check(containers.CHECK, lambda _: containers.measure(), containers.findings),
    Check(hypervisor.CHECK, lambda _: hypervisor.measure(), hypervisor.findings),
    Check(pci.CHECK, lambda _: pci.measure(), pci.findings),
    Check(nccl_topology.CHECK, lambda _: nccl_topology.measure(), nccl_topology.findings),
)


def examine(check: Check, world: World) -> tuple[list[Seen[Any]], list[Finding]]:
    """Do one check on all ranks: what each saw, and what follows. Collective; it never raises."""
    problem, facts = "", None
    try:
        facts = check.measure(world)
    except Exception as error:  # a check that cannot look must not keep the others from it
        problem = f"{type(error).__name__}: {error}"
    told = world.all_gather((problem, facts))
    ranks = [Seen(rank, world.hosts[rank], its) for rank, (bad, its) in enumerate(told) if not bad]
    found = []
    broken = [(rank, bad) for rank, (bad, _) in enumerate(told) if bad]
    if broken:
        rank, bad = broken[0]
        seen = f"could not look on {len(broken)} ranks, first on rank {rank} ({bad})"
        found.append(Finding(check.name, "note", seen, "", "report this: a check should not fail"))
    return ranks, found + (check.findings(ranks) if ranks else [])
