"""Which path a case's data took, from what the hosts' counters moved while it was measured.

What a benchmark asked for is no evidence: a library may take TCP silently beside an active RDMA device. Here the bytes
that the case must move between hosts (collbench.crossing) are looked for on every interface and port, less the rate at
which they move when nothing runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collbench.counters import Reading
from collbench.wiring import LOOPBACK, Wiring, roce_mtu

UNDECIDED = "undecided"

FLOOR_BYTES = 1 << 20
"""Less than this that must cross is not told from what else moves: control messages, other programs."""
_LEAST_SEEN = 0.5
"""Of what must cross; if the counters saw less, it took a path that they do not see."""
_LEAST_SHARE = 0.05
"""Acknowledgements, control messages and what else goes on make up to this share of a path that did not carry data."""
_ABOVE_IDLE = 2.0
"""A path counts from so many times its idle bytes."""
_ROCE_HEADER_BYTES = 82


@dataclass(frozen=True)
class Moved:
    """Bytes that one host sent by each path, such as tcp:eth0 or rdma:mlx5_0, less what it sends anyway."""

    host: str
    paths: Mapping[str, float]
    events: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What the counters say: the transport, and what left the hosts by RDMA and by TCP, in bytes."""

    transport: str
    rdma_bytes: float
    tcp_bytes: float
    paths: tuple[str, ...] = ()
    """The paths that carried it, most first."""
    why: str = ""
    """Why it is undecided."""


def idle_rates(moved: Reading) -> dict[str, float]:
    """Bytes per second that each interface and port sends when nothing is measured."""
    if moved.at_s <= 0:
        return {}
    counted = {**moved.interfaces, **moved.ports}
    return {name: (one.bytes or 0) / moved.at_s for name, one in counted.items()}


def moved(host: str, wiring: Wiring, counted: Reading, idle: Mapping[str, float]) -> Moved:
    """Bytes by path of one host, from what its counters moved; what lies on something else is counted once."""
    sent: dict[str, float] = {}
    for name, one in counted.interfaces.items():
        less = idle.get(name, 0.0) * counted.at_s
        sent[name] = one.bytes - less if one.bytes is not None and one.bytes > _ABOVE_IDLE * less else 0.0
    for name, interface in wiring.interfaces.items():
        for below in interface.below:
            if below in sent and name in sent:
                sent[below] = max(0.0, sent[below] - sent[name])
    paths: dict[str, float] = {}
    events = dict(counted.tcp)
    for port in wiring.ports:
        port_counts = counted.ports.get(port.name)
        if port_counts is None:
            continue
        for event, count in port_counts.events.items():
            events[event] = events.get(event, 0) + count
        by_rdma = float(port_counts.bytes or 0)
        below_it = wiring.over(port)
        if port_counts.bytes is None and port_counts.packets is not None:
            mtu = roce_mtu(wiring.interfaces.get(port.netdev or ""))
            by_rdma = float(port_counts.packets * (mtu + _ROCE_HEADER_BYTES))
        if below_it in sent:
            by_rdma = min(by_rdma, sent[below_it])
            sent[below_it] -= by_rdma
        less = idle.get(port.name, 0.0) * counted.at_s
        key = f"rdma:{port.device}"
        paths[key] = paths.get(key, 0.0) + (by_rdma - less if by_rdma > _ABOVE_IDLE * less else 0.0)
    for interface_counts in counted.interfaces.values():
        for event, count in interface_counts.events.items():
            events[event] = events.get(event, 0) + count
    paths |= {f"tcp:{name}": count for name, count in sent.items()}
    return Moved(host, paths, events)


def judge(hosts: Sequence[Moved], must_cross: float) -> Verdict:
    """Say how `must_cross` bytes got from host to host, or between the ranks of one host where there is one only."""
    total: dict[str, float] = {}
    inside = len(hosts) == 1
    for host in hosts:
        for path, count in host.paths.items():
            if inside or path != f"tcp:{LOOPBACK}":
                total[path] = total.get(path, 0.0) + count
    rdma = sum(count for path, count in total.items() if path.startswith("rdma:"))
    tcp = sum(count for path, count in total.items() if path.startswith("tcp:"))
    if must_cross < FLOOR_BYTES:
        return Verdict(UNDECIDED, rdma, tcp, why=f"only {must_cross:.0f} bytes had to move")
    seen = {path: count for path, count in total.items() if count >= _LEAST_SHARE * must_cross}
    if inside:
        # What goes over an interface meanwhile is not this case's: within a host TCP takes the loopback.
        seen = {path: count for path, count in seen.items() if _within(path, count, must_cross)}
        rest = must_cross - sum(seen.values())
        if rest > (1 - _LEAST_SEEN) * must_cross:
            seen["shm"] = rest
    carried = sum(seen.values())
    if carried < _LEAST_SEEN * must_cross:
        why = f"the counters saw {carried:.0f} of {must_cross:.0f} bytes"
        return Verdict(UNDECIDED, rdma, tcp, why=why)
    seen = {path: count for path, count in seen.items() if count >= _LEAST_SHARE * carried}
    paths = tuple(sorted(seen, key=lambda path: -seen[path]))
    return Verdict(_named(seen, carried), rdma, tcp, paths)


def _within(path: str, count: float, must_cross: float) -> bool:
    """Whether a path could have carried it within the host: the loopback, or RDMA through its own port."""
    return path == f"tcp:{LOOPBACK}" or (path.startswith("rdma:") and count >= must_cross / 2)


def _named(seen: Mapping[str, float], carried: float) -> str:
    """Name what carried it: one kind with its devices, or each with its share."""
    kinds = {path.partition(":")[0] for path in seen}
    if len(kinds) == 1:
        kind = kinds.pop()
        devices = sorted(path.partition(":")[2] for path in seen)
        return kind if devices == [""] else f"{kind}:{','.join(devices)}"
    shares = sorted(seen.items(), key=lambda one: -one[1])
    return f"mixed:{';'.join(f'{path}={count / carried:.2f}' for path, count in shares)}"
