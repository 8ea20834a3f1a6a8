"""Noise: a fixed quantum of work on every rank at once, the clock, cores that ranks share, frequency scaling.

The fixed work quantum is the method of Sottile and Minnich, "Analysis of Microbenchmarks for Performance Tuning of
Clusters" (Cluster 2004): equal pieces of work take equal time unless something takes the core away.
"""

import time
from dataclasses import dataclass

import numpy as np

from collbench.clock import measure_clock
from collbench.doctor.finding import Finding
from collbench.noise import HEAVY
from collbench.provenance import collect_rank, expanded
from collbench.units import format_duration
from collbench.world import World

_QUANTUM_S = 100e-6
"""Short against a scheduler's slice (milliseconds), long against the clock's cost (tens of nanoseconds)."""
_LIGHT = 0.01
_LONG_GAP_S = 1e-3
_BLOCK = 4096


@dataclass(frozen=True)
class RankNoise:
    """One rank: the share of the time that was taken away, the longest gap, and who it is."""

    rank: int
    host: str
    binding: str
    governor: str | None
    stolen_share: float
    largest_gap_s: float
    quantum_s: float
    clock_floor_s: float
    clock_step_s: float


def measure(world: World, seconds: float) -> list[RankNoise]:
    """Measure on all ranks at once; every rank gets every rank's result."""
    from collbench.kernels.quantum import work_quanta

    steps = _calibrate()
    world.all_gather(0)
    quanta = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        stamps = np.empty(min(_BLOCK, max(2, int((end - time.monotonic()) / _QUANTUM_S))) + 1, np.int64)
        work_quanta(steps, stamps)
        quanta.append(np.diff(stamps))
    times = np.concatenate(quanta) * 1e-9
    facts, clock = collect_rank(), measure_clock()
    shortest = float(np.percentile(times, 1))  # a single lucky reading must not make all others look slow
    mine = RankNoise(
        rank=world.rank,
        host=world.hosts[world.rank],
        binding=str(facts["binding"]),
        governor=facts["governor"] if isinstance(facts["governor"], str) else None,
        stolen_share=max(0.0, 1.0 - shortest * times.size / float(times.sum())),
        largest_gap_s=float(times.max()) - shortest,
        quantum_s=shortest,
        clock_floor_s=clock.floor_s,
        clock_step_s=clock.step_s,
    )
    return world.all_gather(mine)


def findings(ranks: list[RankNoise]) -> list[Finding]:
    """Judge what was measured."""
    worst = max(ranks, key=lambda one: one.stolen_share)
    gap = max(ranks, key=lambda one: one.largest_gap_s)
    heavy = worst.stolen_share > HEAVY
    lost, middle = worst.stolen_share, float(np.median([one.stolen_share for one in ranks]))
    return [
        Finding(
            "noise",
            "warning" if heavy else "note" if worst.stolen_share > _LIGHT else "ok",
            f"{lost:.1%} of the time was taken from rank {worst.rank} on {worst.host}, {middle:.1%} from the median",
            why="a collective waits for its slowest rank, so each rank's noise reaches every sample" if heavy else "",
            remedy="end what else runs here, leave a core to the system, or measure with more launches"
            if heavy
            else "",
            source="fixed work quantum of 100 us",
        ),
        Finding(
            "largest gap",
            "note" if gap.largest_gap_s > _LONG_GAP_S else "ok",
            f"{format_duration(gap.largest_gap_s)} on rank {gap.rank} on {gap.host}",
            why="p99 and max of short operations show it" if gap.largest_gap_s > _LONG_GAP_S else "",
        ),
        Finding(
            "clock",
            "ok",
            f"an empty sample reads {format_duration(max(one.clock_floor_s for one in ranks))}, in steps of "
            f"{format_duration(max(one.clock_step_s for one in ranks))}",
        ),
        _sharing(ranks),
        _frequency(ranks),
    ]


def _sharing(ranks: list[RankNoise]) -> Finding:
    by_host: dict[str, list[RankNoise]] = {}
    for one in ranks:
        by_host.setdefault(one.host, []).append(one)
    for host, members in by_host.items():
        cores = set().union(*(expanded(one.binding) for one in members))
        if len(members) > len(cores):
            return Finding(
                "cores",
                "warning",
                f"{len(members)} ranks on {host} share {len(cores)} cores",
                why="a rank that waits in a busy loop keeps the one it waits for from its core",
                remedy="start at most as many ranks as cores; rows made so are marked oversubscribed",
            )
        alone = [one.binding for one in members if len(expanded(one.binding)) == 1]
        doubled = next((core for core in alone if alone.count(core) > 1), None)
        if doubled is not None:
            sharing = [str(one.rank) for one in members if one.binding == doubled]
            return Finding(
                "cores",
                "problem",
                f"ranks {', '.join(sharing)} on {host} are bound to the same core {doubled}",
                why="they take turns, and every figure holds the other's time",
                remedy="let the launcher bind each rank to a core (Open MPI: --bind-to core; MPICH: -bind-to core)",
            )
    bound = all(len(expanded(one.binding)) == 1 for one in ranks)
    return Finding("cores", "ok", "each rank has a core of its own" if bound else "ranks may move between cores")


def _frequency(ranks: list[RankNoise]) -> Finding:
    governors = sorted({one.governor for one in ranks if one.governor})
    if not governors:
        return Finding("frequency", "ok", "the kernel shows no frequency scaling (usual in a virtual machine)")
    if governors == ["performance"]:
        return Finding("frequency", "ok", "governor performance on every rank's core")
    return Finding(
        "frequency",
        "warning",
        f"governor {', '.join(governors)}",
        why="cores change their frequency with the load, and a short measurement sees the change",
        remedy="cpupower frequency-set -g performance",
        source="Documentation/admin-guide/pm/cpufreq of the Linux kernel",
    )


def _calibrate() -> int:
    """Find how many steps a quantum has."""
    from collbench.kernels.quantum import work_quanta

    steps, stamps = 1000, np.empty(200, np.int64)
    work_quanta(steps, stamps)
    work_quanta(steps, stamps)
    return max(1, int(steps * _QUANTUM_S / (float(np.min(np.diff(stamps))) * 1e-9)))


def table(ranks: list[RankNoise]) -> list[str]:
    """The ranks in lines."""
    lines = ["  rank  host              cores     taken away   largest gap"]
    for one in ranks:
        gap = format_duration(one.largest_gap_s)
        lines.append(f"  {one.rank:4}  {one.host:16}  {one.binding:8}  {one.stolen_share:10.2%}   {gap}")
    return lines
