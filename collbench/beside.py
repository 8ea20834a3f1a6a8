"""What stands beside a measurement on a device: its health before and after, the neighbour that shares it, its limit.

The runner asks once for each case; what the group's rank 0 gets from it are columns of the row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from collbench.backends.base import Backend
from collbench.collectives import Collective
from collbench.collectives.peer_copy import PeerCopy
from collbench.errors import CannotRun
from collbench.plan import Case
from collbench.record import Record
from collbench.world import World

if TYPE_CHECKING:  # what only devices need is imported where there are some
    from collbench.device_health import Health
    from collbench.device_limits import Limit
    from collbench.neighbour import Neighbour

ALONE = "alone"
NO_SLOWDOWN = "no_slowdown"
"""The note of a row beside a neighbour that there is nothing to hold against."""
_KIND_OF_LINK = "peer_copy"
"""The kernel whose rate limits what NCCL can do within a host."""


@dataclass
class Neighbours:
    """The neighbour of this rank's device, kept from case to case as long as the next one wants the same."""

    _key: tuple[str, tuple[int, ...]] = (ALONE, ())
    _running: "Neighbour | None" = None
    _rounds: int = 0

    def want(self, case: Case, group: World, backend: Backend) -> None:
        """Have the neighbour that the case is measured beside; collective over the group."""
        if case.neighbour == ALONE:
            self.stop()
            return
        key = (case.neighbour, group.ranks)
        fits = key == self._key and self._running is not None and self._running.alive()
        # Starting is collective: one rank whose neighbour has died must not begin it alone.
        if all(group.all_gather(fits)):
            self._rounds = self._running.rounds() if self._running else 0
            return
        self.stop()
        if backend.device_number is None:
            raise CannotRun(f"neighbour {case.neighbour}: backend {backend.name} has no device to share")
        from collbench.neighbour import start

        self._running = start(case.neighbour, group, backend.device_number)
        self._key, self._rounds = key, self._running.rounds()

    @property
    def flags(self) -> tuple[str, ...]:
        """Notes for the row: a neighbour that ended no round of its work meanwhile may have been stuck."""
        idle = self._running is not None and self._running.rounds() == self._rounds
        return ("idle_neighbour",) if idle else ()

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


def health(backend: Backend) -> "Health | None":
    """Read how this rank's device fares; None for the host."""
    if not backend.uuid:
        return None
    from collbench import device_health

    return device_health.read(backend.uuid)


def health_columns(
    group: World, before: "Health | None", after: "Health | None"
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Columns and flags of a row from all ranks' readings; whole on the group's rank 0. Collective."""
    if before is None or after is None:
        return {}, ()
    from collbench import device_health

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


def limit_columns(collective: Collective, group: World, backend: Backend, known: Mapping[str, Any]) -> dict[str, Any]:
    """What the hardware could give at most, by clocks and widths; collective over the group, whole on its rank 0.

    `known` is what the row says so far: what the library chose.
    """
    if not backend.uuid or (backend.ranks_per_device or 1) > 1:  # ranks that share a device share what it can
        return {}
    limit = _limit(collective, group, backend, known)
    return {} if limit is None else {"limit_GBps": limit.GBps, "limit_source": limit.source}


def _limit(collective: Collective, group: World, backend: Backend, known: Mapping[str, Any]) -> "Limit | None":
    from collbench import device_limits

    uuids = group.all_gather(backend.uuid)
    if not all(uuids) or group.rank != 0:
        return None
    if collective.name == "host_copy":
        return device_limits.pcie_limit(uuids[0])
    if collective.is_kernel and collective.name != _KIND_OF_LINK:
        return _memory_limit(uuids[0])
    if isinstance(collective, PeerCopy) and group.size == 1:
        from collbench.backends.cuda import device_uuid, visible_devices

        uuids = [device_uuid(index) for index in range(visible_devices())]
    if len(uuids) == 1 or len(set(group.hosts)) > 1:
        return None
    if backend.name == "staged":  # all of it goes to the host and back
        return _pcie_limit(uuids)
    # Which way a CUDA-aware MPI goes nobody tells.
    if backend.name == "mpi_cuda" or _multicast(collective, known):
        return None
    ends = list(pairwise(uuids))
    if isinstance(collective, PeerCopy):
        ends = [(uuids[one], uuids[target]) for one, target in collective.pairs(len(uuids))]
    return _least([device_limits.nvlink_limit(*pair) or _pcie_limit(pair) for pair in ends])


def _pcie_limit(uuids: "Iterable[str]") -> "Limit | None":
    from collbench import device_limits

    return _least([device_limits.pcie_limit(uuid) for uuid in uuids])


def _least(limits: "Sequence[Limit | None]") -> "Limit | None":
    """The least of them; None where one is not known."""
    known = [limit for limit in limits if limit is not None]
    return min(known, key=lambda limit: limit.bytes_per_s) if len(known) == len(limits) else None


def _multicast(collective: Collective, known: Mapping[str, Any]) -> bool:
    """Whether the switch adds or copies: what each device sends then crosses its links once, and busbw may be more.

    Where the algorithm is not known, an all_reduce may go that way if multicast was set up.
    """
    algorithm, protocol = str(known.get("algorithm") or ""), str(known.get("protocol") or "")
    if algorithm:
        return algorithm.upper().startswith("NVLS") or "MC" in protocol
    return collective.name == "all_reduce" and "nvls" in str(known.get("transport") or "")


def _memory_limit(uuid: str) -> "Limit | None":
    import cupy

    from collbench import device_limits

    attributes = {name: int(value) for name, value in cupy.cuda.Device().attributes.items()}
    return device_limits.memory_limit(uuid, attributes)


@dataclass
class Reached:
    """What earlier rows of this launch reached, on rank 0: what later ones are held against."""

    alone: dict[tuple[str, str], tuple[str, float | None]] = field(default_factory=dict)
    """Status and seconds of the cases without a neighbour, by case and group."""
    link: float | None = None

    def take(self, rows: Iterable[Record]) -> None:
        """Take what rows say that were there before this process: the launch goes on where it was broken off."""
        for row in rows:
            busbw = None if (row.ranks_per_device or 1) > 1 else row.busbw_GBps
            self._keep((row.case_id, row.group or ""), row, row.status, row.time_p50_s, busbw)

    def columns(self, case: Case, group: str, status: str, values: dict[str, Any]) -> dict[str, Any]:
        """Columns of a row that follow from earlier rows, or from its own limit."""
        seconds, busbw = values.get("time_p50_s"), values.get("busbw_GBps")
        alone = (values.get("ranks_per_device") or 1) == 1
        self._keep((case.case_id, group), case, status, seconds, busbw if alone else None)
        if status != "ok":
            return {}
        found = self._slowdown(case, group, values) if case.neighbour != ALONE and seconds else {}
        limit = values.get("limit_GBps")
        if self.link and case.backend in ("nccl", "peer") and limit is not None:
            limit = self.link
            found |= {"limit_GBps": limit, "limit_source": "the fastest peer_copy of this launch"}
        if limit and busbw:
            found["limit_fraction"] = busbw / limit
        return found

    def _slowdown(self, case: Case, group: str, values: dict[str, Any]) -> dict[str, Any]:
        """What a neighbour costs, or why that cannot be said."""
        alone = replace(case, neighbour=ALONE).case_id
        status, seconds = self.alone.get((alone, group), ("not in this launch", None))
        if status == "ok" and seconds:
            return {"slowdown": values["time_p50_s"] / seconds}
        return {
            "notes": " ".join(filter(None, (values.get("notes"), NO_SLOWDOWN))),
            "reason": "; ".join(filter(None, (values.get("reason"), f"no slowdown: {alone}, this alone, is {status}"))),
        }

    def _keep(
        self, key: tuple[str, str], of: Case | Record, status: str, seconds: float | None, busbw: float | None
    ) -> None:
        if of.neighbour == ALONE:
            self.alone[key] = status, seconds
        if status != "ok":
            return
        if of.collective == _KIND_OF_LINK and busbw:
            self.link = max(self.link or 0.0, busbw)
