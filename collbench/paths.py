"""The path that each case took: counters of all hosts of a group before and after, and the columns that follow.

The first of the group's ranks on each host reads them; what the group's rank 0 gets are columns of the row.
"""

import os
import resource
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collbench.counters import Reading, difference, read
from collbench.crossing import Crossing, crossing
from collbench.dtypes import DTYPES
from collbench.evidence import UNDECIDED, Moved, Verdict, idle_rates, judge, moved
from collbench.figures import Point
from collbench.payload import Payload, payload
from collbench.timing import Sampled
from collbench.topology import rounds
from collbench.transports import on_network
from collbench.wiring import LOOPBACK, Wiring, look
from collbench.world import World

DISAGREES = "transport_disagrees"
"""The note of a row where the counters and the library's own log do not say the same."""

EVENTS = ("retransmissions", "out_of_sequence", "ecn_marked", "cnps", "pauses", "drops")
"""What can go wrong on the way, as the row's columns name it."""

_WORDS = ("undecided", "no_rdma", "local", "unread")
"""What is no column, but what an expectation asks for."""
_IDLE_S = 0.25
_LEAST_MEMLOCK = 64 << 20
"""Registering buffers fails below some tens of MiB; libraries then go on over TCP (nvidia-container-toolkit#2037)."""


@dataclass(frozen=True)
class _Told:
    """What one host's reader tells the group's rank 0."""

    moved: Moved
    carries: Mapping[str, Payload]
    no_rdma: str


@dataclass
class Paths:
    """This rank's view of the paths. `link_bytes_per_s` is the rate that the scenario says the links have."""

    world: World
    link_bytes_per_s: float | None = None
    _wiring: Wiring | None = None
    _idle: dict[str, float] = field(default_factory=dict)
    _carries: dict[str, Payload] = field(default_factory=dict)

    def open(self) -> None:
        """See what moves when nothing is measured; collective over the world, and nothing where it has one host."""
        if len(set(self.world.hosts)) == 1:
            return
        self.world.meet_quietly()
        if self.world.local_rank == 0:
            wiring = self._look()
            before = self._read(wiring)
            time.sleep(_IDLE_S)
            self._idle = idle_rates(difference(before, self._read(wiring)))
        self.world.meet_quietly()

    def before(self, point: Point) -> Reading | None:
        """Read the counters, on the rank that does so for its host."""
        return self._read(self._look()) if _concerns(point) and _reads(point.group) else None

    def columns(self, point: Point, sampled: Sampled, before: Reading | None) -> dict[str, Any]:
        """Columns of the row, whole on the group's rank 0; collective over the group."""
        group = point.group
        if not _concerns(point):
            return unseen(point)
        mine = None
        if before is not None:
            wiring = self._look()
            counted = difference(before, self._read(wiring))
            host = group.hosts[group.rank]
            mine = _Told(moved(host, wiring, counted, self._idle), self._carries, why_not(wiring, host, group.library))
        told = [one for one in group.gather(mine) or [] if one is not None]
        return _columns(point, sampled, told, self.world.hosts) if told else {}

    def _look(self) -> Wiring:
        if self._wiring is None:
            self._wiring = wiring = look(shapers=len(set(self.world.hosts)) > 1)
            names = [f"tcp:{name}" for name in wiring.interfaces]
            names += dict.fromkeys(f"rdma:{port.device}" for port in wiring.ports)
            for name in names:
                found = payload(wiring, (name,), self.link_bytes_per_s)
                if found is not None:
                    self._carries[name] = found
        return self._wiring

    def _read(self, wiring: Wiring) -> Reading:
        return read(wiring.ports, wiring.interfaces)


def _concerns(point: Point) -> bool:
    """Whether anything goes where the hosts' counters see it: within a host what devices send does not.

    What staged sends lies in the host's memory.
    """
    group, backend = point.group, point.backend
    hidden = backend.on_device and backend.name != "staged" and len(set(group.hosts)) == 1
    return group.size > 1 and not hidden and not _local(point)


def _local(point: Point) -> bool:
    """Whether counters see nothing of it: a kernel that one rank can run."""
    return point.collective.is_kernel and point.collective.least_ranks == 1


def unseen(point: Point) -> dict[str, Any]:
    """What is known of a path that the counters do not see: where there is none, and what has only one to go."""
    if point.case.collective == "peer_copy" or (point.group.size > 1 and point.backend.name == "peer"):
        return {"transport": "p2p", "transport_source": "backend"}
    if _local(point):
        return {"local": True}
    if point.backend.name == "nccl":
        from collbench import nccl_log  # two dozen patterns, of use to NCCL alone

        return {"unread": nccl_log.unread(os.environ)}
    return {}


def _reads(group: World) -> bool:
    return group.hosts.index(group.hosts[group.rank]) == group.rank


def _columns(point: Point, sampled: Sampled, told: Sequence[_Told], world_hosts: Sequence[str]) -> dict[str, Any]:
    case, group = point.case, point.group
    across = len(told) > 1
    itemsize = DTYPES[case.dtype].itemsize if case.dtype else 1
    parts: Sequence[object] = group.hosts if across else group.ranks
    root = int(case.root) if case.root else 0
    least = crossing(case.collective, case.pattern, point.shape.count, itemsize, parts, root)
    # Starts that were late are discarded, but what they moved was counted.
    taken = sampled.durations_s.shape[1] + (sampled.late_starts or 0)
    iterations = sampled.warmup_iterations + taken * sampled.batch
    must_cross = least.total * iterations if least is not None else 0.0
    verdict = judge([one.moved for one in told], must_cross)
    found: dict[str, Any] = {"transport": verdict.transport, "transport_source": "counters"}
    if across:
        found |= {
            "crossing_bytes": int(must_cross),
            "rdma_bytes": int(verdict.rdma_bytes),
            "tcp_bytes": int(verdict.tcp_bytes),
        }
        for event in EVENTS:
            counts = [one.moved.events[event] for one in told if event in one.moved.events]
            found[event] = sum(counts) if counts else None
        if least is not None:
            found |= limit(point, least, told, verdict, at_once(case.topology, point.name, world_hosts))
    found["undecided"] = verdict.why
    found["no_rdma"] = next((one.no_rdma for one in told if not one.moved.paths.get("rdma")), "")
    return found


def limit(
    point: Point, least: Crossing, told: Sequence[_Told], verdict: Verdict, shared: Mapping[str, int]
) -> dict[str, Any]:
    """The bus bandwidth at which the links would be full; nothing where their rate is not known.

    It is the operation's size over the least time that what must cross takes at the links' payload rates, so several
    ranks on a host share its links, and an algorithm that sends more cannot reach it. `shared` is how many groups at
    once have to do with each host's links: each is held against its part.
    """
    factor = point.collective.bus_factor(point.group.size, point.shape.count)
    if factor is None or not verdict.paths:
        return {}
    rates, sources = [], []
    hosts = list(dict.fromkeys(point.group.hosts))
    by_host = {one.moved.host: one for one in told}
    for host in hosts:
        ways = [by_host[host].carries.get(path) for path in _paths_of(by_host[host].moved, verdict)]
        if not ways or None in ways:
            return {}
        rates.append(sum(way.bytes_per_s for way in ways if way is not None) / shared[host])
        source = " + ".join(dict.fromkeys(way.source for way in ways if way is not None))
        sources.append(f"{source}, shared by {shared[host]} groups" if shared[host] > 1 else source)
    seconds, fullest = least.least_time_s(rates)
    if not seconds:
        return {}
    gigabytes = point.shape.size_bytes * factor / seconds / 1e9
    return {"limit_GBps": gigabytes, "limit_source": f"{hosts[fullest]}: {sources[fullest]}"}


def at_once(topology: str, name: str, world_hosts: Sequence[str]) -> Counter[str]:
    """How many groups that are measured with this one use the links of each host."""
    played = next((one for one in rounds(topology, world_hosts) if any(group.name == name for group in one)), ())
    across = [{world_hosts[rank] for rank in group.ranks} for group in played]
    found = Counter(host for hosts in across if len(hosts) > 1 for host in hosts)
    return found or Counter(set(world_hosts))  # one that is measured again is alone


def _paths_of(one: Moved, verdict: Verdict) -> list[str]:
    """The paths of a host that carried it: those of the verdict, else, where interfaces have other names and this one
    received only, that of the same kind which its acknowledgements went by."""
    own = [path for path in verdict.paths if path in one.paths]
    if own:
        return own
    kind = verdict.paths[0].partition(":")[0]
    alike = {
        path: count for path, count in one.paths.items() if path.startswith(f"{kind}:") and path != f"tcp:{LOOPBACK}"
    }
    return [max(alike, key=alike.__getitem__)] if alike and max(alike.values()) > 0 else []


def merged(known: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Put what the counters say beside what the row knows: the library's own word on its transport goes first."""
    said, counted = str(known.get("transport") or ""), str(found.get("transport") or "")
    columns = {name: value for name, value in found.items() if name not in _WORDS}
    if not said:
        return columns, ()
    columns.pop("transport", None)
    columns["transport_source"] = "library log"
    if not counted or counted == UNDECIDED:
        return columns, ()
    columns["transport_source"] = "library log and counters"
    network = on_network(said.split("+"))
    by_tcp = bool(network) and all("socket" in one or "tcp" in one for one in network)
    agree = not network or counted.startswith("tcp:" if by_tcp else "rdma:")
    return columns, () if agree else (DISAGREES,)


def why_not(wiring: Wiring, host: str, library: str) -> str:
    """Say what would keep this host's ranks from RDMA, the likeliest first."""
    if not wiring.ports:
        return f"{host} has no RDMA device (in a pod: no RDMA resource was asked for)"
    active = [port for port in wiring.ports if port.active]
    if not active:
        port = wiring.ports[0]
        return f"{port.name} on {host} is {port.state or 'in a state that cannot be read'}, not ACTIVE"
    name = active[0].name
    if not wiring.uverbs:
        return f"{name} on {host} is active, but /dev/infiniband has no uverbs device here (a pod without the resource)"
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != resource.RLIM_INFINITY and soft < _LEAST_MEMLOCK:
        return f"{name} on {host} is active, but only {soft >> 10} KiB may be locked (ulimit -l)"
    if library.startswith("Open MPI"):
        return f"{name} on {host} is active, but Open MPI takes TCP beside it unless told: mpirun --mca pml ucx"
    return f"{name} on {host} is active and was not used; see `collbench doctor`"
