"""What stands beside a measurement on a device: its health before and after, the neighbour that shares it, its limit.

The runner asks once for each case; what the group's rank 0 gets from it are columns of the row.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from collbench import device_health, device_limits
from collbench.backends.base import Backend
from collbench.collectives import Collective
from collbench.device_health import Health
from collbench.errors import CannotRun
from collbench.neighbour import Neighbour, start
from collbench.plan import Case
from collbench.world import World

ALONE = "alone"
_KIND_OF_LINK = "peer_copy"
"""The kernel whose rate limits what NCCL can do within a host."""


@dataclass
class Neighbours:
    """The neighbour of this rank's device, kept from case to case as long as the next one wants the same."""

    _key: tuple[str, tuple[int, ...]] = (ALONE, ())
    _running: Neighbour | None = None

    def want(self, case: Case, group: World, backend: Backend) -> None:
        """Have the neighbour that the case is measured beside; collective over the group."""
        key = (case.neighbour, () if case.neighbour == ALONE else group.ranks)
        if key == self._key and (self._running is None or self._running.alive()):
            return
        self.stop()
        if case.neighbour == ALONE:
            return
        if backend.device_number is None:
            raise CannotRun(f"neighbour {case.neighbour}: backend {backend.name} has no device to share")
        self._running = start(case.neighbour, group, backend.device_number)
        self._key = key

    def problem(self) -> str | None:
        """Why the neighbour did not keep the device busy to the end; None where it did, or there is none."""
        if self._running is None or self._running.alive():
            return None
        return f"the neighbour ended while the case was measured ({self._running.problem()})"

    def stop(self) -> None:
        """End it."""
        if self._running is not None:
            self._running.stop()
        self._running, self._key = None, (ALONE, ())


def health_of(group: World, before: Health, after: Health) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Columns and flags of a row from all ranks' readings; whole on the group's rank 0. Collective."""
    pairs = group.gather((before, after)) or []
    last = [one for _, one in pairs]
    clocks = [one.sm_clock_hz for one in last if one.sm_clock_hz is not None]
    temperatures = [float(one.temperature_celsius) for one in last if one.temperature_celsius is not None]
    powers = [one.power_watt for one in last if one.power_watt is not None]
    reasons = sorted({reason for pair in pairs for one in pair for reason in one.reasons})
    flags = dict.fromkeys(flag for first, second in pairs for flag in device_health.notes(first, second))
    return {
        "sm_clock_MHz": min(clocks) / 1e6 if clocks else None,
        "temperature_C": max(temperatures, default=None),
        "power_W": max(powers, default=None),
        "throttle": "; ".join(reasons) or None,
    }, tuple(flags)


def limit_of(collective: Collective, group: World, backend: Backend) -> device_limits.Limit | None:
    """What the hardware could give at most, by clocks and widths; collective over the group, whole on its rank 0."""
    uuids = group.all_gather(backend.uuid)
    if not all(uuids) or group.rank != 0:
        return None
    if collective.name == "host_copy":
        return device_limits.pcie_limit(uuids[0])
    if collective.is_kernel and collective.name != _KIND_OF_LINK:
        return _memory_limit(uuids[0])
    if group.size == 1 or len(set(group.hosts)) > 1 or not collective.bus_factor(group.size):
        return None
    ends = [(uuids[0], uuids[-1])] if collective.name == _KIND_OF_LINK else list(pairwise(uuids))
    links = [device_limits.nvlink_limit(*pair) or device_limits.pcie_limit(pair[0]) for pair in ends]
    known = [limit for limit in links if limit is not None]
    return min(known, key=lambda limit: limit.bytes_per_s) if len(known) == len(links) else None


def _memory_limit(uuid: str) -> device_limits.Limit | None:
    import cupy

    attributes = {name: int(value) for name, value in cupy.cuda.Device().attributes.items()}
    return device_limits.memory_limit(uuid, attributes)


@dataclass
class Reached:
    """What earlier rows of this launch reached, on rank 0: what later ones are held against."""

    alone_s: dict[tuple[str, str], float] = field(default_factory=dict)
    link: float | None = None

    def columns(self, case: Case, group: str, values: dict[str, Any]) -> dict[str, Any]:
        """Columns of a row that follow from earlier rows, or from its own limit."""
        found: dict[str, Any] = {}
        seconds, busbw = values.get("time_p50_s"), values.get("busbw_GBps")
        key = replace(case, neighbour=ALONE).case_id, group
        if case.neighbour == ALONE and seconds:
            self.alone_s[key] = seconds
        elif seconds and key in self.alone_s:
            found["slowdown"] = seconds / self.alone_s[key]
        if case.collective == _KIND_OF_LINK and busbw:
            self.link = max(self.link or 0.0, busbw)
        limit = values.get("limit_GBps")
        if self.link and case.backend in ("nccl", "peer") and limit is not None:
            limit = self.link
            found |= {"limit_GBps": limit, "limit_source": "the fastest peer_copy of this launch"}
        if limit and busbw:
            found["limit_fraction"] = busbw / limit
        return found
