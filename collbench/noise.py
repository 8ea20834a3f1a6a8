"""How much of its core a rank was denied while it was measured: by other processes here, or by the hypervisor."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

HEAVY = 0.05
"""Above this share of the time a row says `noisy`: a twentieth of the samples then met a neighbour."""
_LEAST_S = 0.02
"""The scheduler's own counters move in steps of a tick; shorter intervals say nothing."""


@dataclass(frozen=True)
class Reading:
    """Counters of this thread and of the cores that it may use, in seconds."""

    at_s: float
    waited_s: float
    stolen_s: float


def read() -> Reading:
    """Read the time that this thread waited for a core while it could have run, and what the hypervisor took."""
    return Reading(time.monotonic(), _waited(), _stolen())


def denied(before: Reading, after: Reading) -> float:
    """Return the share of the interval in which the rank was denied its core; 0 where the interval is too short."""
    elapsed = after.at_s - before.at_s
    if elapsed < _LEAST_S:
        return 0.0
    lost = max(0.0, after.waited_s - before.waited_s) + max(0.0, after.stolen_s - before.stolen_s)
    return min(1.0, lost / elapsed)


def _waited() -> float:
    """Second field of schedstat: nanoseconds on a run queue (Documentation/scheduler/sched-stats of the kernel)."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


def _stolen() -> float:
    """Steal time of /proc/stat, averaged over the cores that this process may use, in seconds."""
    cores = os.sched_getaffinity(0)
    total = 0
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cores and len(fields) > 7:
                total += int(fields[7])
    except (OSError, ValueError):
        return 0.0
    return total / os.sysconf("SC_CLK_TCK") / max(1, len(cores))
