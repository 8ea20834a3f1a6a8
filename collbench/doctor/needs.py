"""What a scenario needs and this machine, or one of the ranks' hosts, does not have."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collbench.doctor import rdma_devices, system
from collbench.doctor.finding import Finding, Seen, by_host, on_hosts
from collbench.scenario import Scenario
from collbench.world import World

CHECK = "scenario"

_ON_VERBS = ("rdma", "ib", "gdr", "collnet")
"""Words of `[expect] transport` that only an RDMA port can fulfil; so do names that begin as below."""
_VERBS_NAMES = ("rdma:", "net/ib", "net/gib", "collnet")
_PINNED_LEAST_BYTES = 64 << 20
"""What RDMA libraries pin besides the buffers of a case, roughly: rings and queues."""


@dataclass(frozen=True)
class Facts:
    """What one rank can say. `refused` has each backend that cannot run, and why."""

    scenario: str
    backends: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    transport: str = ""
    active: tuple[str, ...] = ()
    usable: bool = False
    devices: tuple[str, ...] = ()
    memlock_problem: str = ""


def measure(root: str = "", *, world: World, scenario: Scenario, environ: Mapping[str, str] | None = None) -> Facts:
    """Ask the backends that the scenario names, and look for what its expectation needs. Collective."""
    backends, refused = _backends(scenario, world)
    transport = scenario.expect.transport or ""
    if not needs_rdma(transport):
        return Facts(scenario.name, backends, refused, transport)
    found = rdma_devices.measure(root, os.environ if environ is None else environ)
    active = [port for port in found.ports if port.active]
    largest = max((size for sweep in scenario.sweeps for size in sweep.sizes), default=0)
    around = system.measure(root)
    return Facts(
        scenario.name,
        backends,
        refused,
        transport,
        tuple(port.name for port in active),
        any(port.device in found.usable for port in active),
        tuple(dict.fromkeys(port.device for port in found.ports)),
        system.memlock_problem(around, _PINNED_LEAST_BYTES + 2 * largest) or "",
    )


def needs_rdma(transport: str) -> bool:
    """Whether an expected transport can only be had with an RDMA port."""
    words = [word.strip().lower() for word in transport.split("+")]
    return any(word in _ON_VERBS or word.startswith(_VERBS_NAMES) for word in words)


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Tell what is missing; each is a problem."""
    first = ranks[0].facts
    found = []
    for name, reason in dict.fromkeys(one for seen in ranks for one in seen.facts.refused):
        seen = f"{first.scenario} names backend {name}, which cannot run: {reason}"
        why = "its cases would be skipped, each with this reason"
        found.append(Finding(CHECK, "problem", seen, why, "collbench list tells what can run here"))
    found += on_hosts({host: list(_rdma(facts)) for host, facts in by_host(ranks).items()})
    if not found:
        told = f"backends {', '.join(first.backends)}" + (f", transport {first.transport}" if first.transport else "")
        return [Finding(CHECK, "ok", f"what {first.scenario} needs is here: {told}")]
    return found


def _rdma(facts: Facts) -> Iterator[Finding]:
    if not needs_rdma(facts.transport):
        return
    expected = f'{facts.scenario} expects transport = "{facts.transport}"'
    why = "the run would end with exit code 5: what goes between hosts would go by TCP"
    if not facts.active:
        there = f"of {', '.join(facts.devices)} no port is active" if facts.devices else "no RDMA device is here"
        remedy = "give every host an active RDMA port, or take the expectation out"
        yield Finding(CHECK, "problem", f"{expected}, and {there}", why, remedy)
        return
    if not facts.usable:
        seen = f"{expected}, and {', '.join(facts.active)} has no file in /dev/infiniband"
        yield Finding(CHECK, "problem", seen, why, "ask for the RDMA resource in the pod, or modprobe ib_uverbs")
    if facts.memlock_problem:
        seen = f"{expected}, and {facts.memlock_problem}"
        yield Finding(CHECK, "problem", seen, why, "ulimit -l unlimited, or IPC_LOCK for user 0")


def _backends(scenario: Scenario, world: World) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The backends that the scenario means, and those that cannot run with these ranks."""
    from collbench.backends import DEFAULT, backend_named
    from collbench.rank import default_backend

    world = replace(world, ranks_per_device=scenario.measure.ranks_per_device)
    # A step of a ladder that cannot run keeps its row: only what all of it stands on is needed.
    sweeps = [(sweep.kind, sweep.backends) for sweep in scenario.sweeps]
    names = dict.fromkeys(name for kind, its in sweeps for name in (("mpi",) if kind == "ladder" else its))
    if DEFAULT in names:
        names = dict.fromkeys(default_backend(world) if name == DEFAULT else name for name in names)
    refused = []
    for name in names:
        kind = backend_named(name)
        first = world.first_problem(kind.unavailable()) or world.first_problem(kind.misfit(world))
        if first is not None:
            rank, reason = first
            refused.append((name, f"{reason} (rank {rank} on {world.hosts[rank]})" if world.size > 1 else reason))
    return tuple(names), tuple(refused)
