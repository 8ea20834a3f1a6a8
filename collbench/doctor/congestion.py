"""Congestion control of RoCE: ECN where the driver shows it; PFC is not in sysfs, and nothing is guessed."""

from collections.abc import Sequence
from dataclasses import dataclass

from collbench import rdma
from collbench.doctor.finding import Finding, Seen, by_host, difference
from collbench.files import entries, text

CHECK = "congestion control"

_SOURCE = "NVIDIA DOCA documentation, Explicit Congestion Notification; nccl#378, #173"
_POINTS = {"roce_np": "notification point", "roce_rp": "reaction point"}
_PFC = "PFC is not readable here: `dcb pfc show dev IFACE` or `mlnx_qos -i IFACE` tells"
_SOFTWARE = ("rdma_rxe", "siw")


@dataclass(frozen=True)
class Facts:
    """RoCE ports that are active, and of those that show ECN the priorities it is on for, each in words."""

    ports: tuple[str, ...] = ()
    ecn: tuple[tuple[str, str], ...] = ()
    traffic_class: tuple[tuple[str, str], ...] = ()
    software: bool = False


def measure(root: str = "") -> Facts:
    """Read /sys/class/net/IFACE/ecn and /sys/class/infiniband/DEVICE/tc, which NVIDIA's drivers have."""
    ports = [port for port in rdma.ports(root) if port.active and port.on_ethernet]
    ecn, traffic = [], []
    for port in ports:
        told = _ecn(f"{root}/sys/class/net/{port.netdev}/ecn") if port.netdev else ""
        if told:
            ecn.append((port.name, told))
        value = text(f"{root}/sys/class/infiniband/{port.device}/tc/{port.number}/traffic_class")
        if value:
            traffic.append((port.name, " ".join(value.split())))
    software = bool(ports) and all(port.driver in _SOFTWARE for port in ports)
    return Facts(tuple(port.name for port in ports), tuple(ecn), tuple(traffic), software)


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Judge it; without a RoCE port there is nothing to say."""
    hosts = {host: facts for host, facts in by_host(ranks).items() if facts.ports}
    if not hosts:
        return []
    if all(facts.software for facts in hosts.values()):
        return [Finding(CHECK, "note", "RoCE in software has neither PFC nor ECN: its rates say nothing of a fabric")]
    why = "without it a congested RoCE fabric drops packets, and a drop costs a timeout"
    remedy = "set the same on every host and switch, and read the columns of retransmissions and pauses"
    ecn = {host: _joined(facts.ecn) or "not readable" for host, facts in hosts.items()}
    classes = {host: _joined(facts.traffic_class) for host, facts in hosts.items()}
    found = difference(CHECK, "ECN", ecn, why=why, remedy=remedy, source=_SOURCE)
    found += difference(CHECK, "the traffic class of RoCE", classes, why=why, remedy=remedy, source=_SOURCE)
    first = next(iter(hosts.values()))
    if len(set(ecn.values())) > 1:
        pass  # said above
    elif not first.ecn:
        found.append(Finding(CHECK, "note", "ECN is not readable here: the driver shows none", source=_SOURCE))
    elif any(" off" in told for _, told in first.ecn):
        found.append(Finding(CHECK, "warning", f"ECN: {_joined(first.ecn)}", why, remedy, _SOURCE))
    else:
        found.append(Finding(CHECK, "ok", f"ECN: {_joined(first.ecn)}", source=_SOURCE))
    return [*found, Finding(CHECK, "note", _PFC, source=_SOURCE)]


def _joined(told: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{port} {words}" for port, words in told)


def _ecn(folder: str) -> str:
    words = []
    for point, told in _POINTS.items():
        states = {one.name: text(one) for one in entries(f"{folder}/{point}/enable")}
        on = [name for name, state in states.items() if state == "1"]
        if states:
            words.append(f"{told} on for priorities {','.join(on)}" if on else f"{told} off")
    return ", ".join(words)
