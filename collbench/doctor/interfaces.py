"""Interfaces: those that settings name and this host does not have, and those of one name with unlike MTUs."""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from collbench import rdma
from collbench.doctor import settings
from collbench.doctor.finding import Finding, Seen, by_host, difference, on_hosts
from collbench.doctor.settings import Setting
from collbench.files import entries, number, text

CHECK = "interfaces"

Fits = Callable[[str, str], bool]


@dataclass(frozen=True)
class Facts:
    """What the host has: network interfaces that are up and down, addresses, RDMA devices; and what settings name."""

    up: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    rdma: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    mtus: tuple[tuple[str, int], ...] = ()
    """Of interfaces that are up and could join hosts, but for those of RDMA ports, which `rdma_devices` looks at."""


def _exact(name: str, word: str) -> bool:
    return name == word


def _prefix(name: str, word: str) -> bool:
    return name.startswith(word)


@dataclass(frozen=True)
class _Kind:
    """How a setting names interfaces: how a word fits a name, and whether it names RDMA devices, or both."""

    fits: Fits
    network: bool
    rdma: bool
    source: str


_NCCL = "NCCL user guide, Environment variables"
_OPEN_MPI = "Open MPI documentation, TCP"
_UCX = "UCX documentation, UCX_NET_DEVICES"
_LIBFABRIC = "libfabric manual, fi_tcp(7) and fi_verbs(7)"
_NAMES = {
    "NCCL_SOCKET_IFNAME": _Kind(_prefix, True, False, _NCCL),
    "NCCL_IB_HCA": _Kind(_prefix, False, True, _NCCL),
    "NCCL_OOB_NET_IFNAME": _Kind(_prefix, True, False, _NCCL),
    "UCX_NET_DEVICES": _Kind(fnmatchcase, True, True, _UCX),
    "OMPI_MCA_btl_tcp_if_include": _Kind(_exact, True, False, _OPEN_MPI),
    "OMPI_MCA_oob_tcp_if_include": _Kind(_exact, True, False, _OPEN_MPI),
    "OMPI_MCA_btl_openib_if_include": _Kind(_exact, False, True, _OPEN_MPI),
    "PRTE_MCA_oob_tcp_if_include": _Kind(_exact, True, False, _OPEN_MPI),
    "PRTE_MCA_prte_if_include": _Kind(_exact, True, False, _OPEN_MPI),
    "PMIX_MCA_ptl_tcp_if_include": _Kind(_exact, True, False, _OPEN_MPI),
    "GLOO_SOCKET_IFNAME": _Kind(_exact, True, False, "PyTorch documentation, torch.distributed"),
    "HOROVOD_GLOO_IFACE": _Kind(_exact, True, False, "Horovod documentation"),
    "FI_TCP_IFACE": _Kind(_prefix, True, False, _LIBFABRIC),
    "FI_SOCKETS_IFACE": _Kind(_exact, True, False, _LIBFABRIC),
    "FI_VERBS_IFACE": _Kind(_prefix, True, False, _LIBFABRIC),
    "MPIR_CVAR_CH3_NETWORK_IFACE": _Kind(_exact, True, False, "MPICH, README.envvar"),
}  # fmt: skip
_EVERY = ("all", "any")
_WITHIN_A_HOST = ("lo", "docker", "veth", "virbr", "cni", "tunl", "dummy")
_UNLIKE_MTUS = "TCP takes the smaller, and where a switch has it too, large packets are lost and connections hang"
_ALIKE = "ip link set DEV mtu N, the same on all hosts and switches"
_KERNEL = "ip-link(8), tcp(7)"


def measure(root: str = "", environ: Mapping[str, str] | None = None) -> Facts:
    """Read them."""
    up: list[str] = []
    down: list[str] = []
    for interface in entries(f"{root}/sys/class/net"):
        if (interface / "operstate").exists() or (interface / "flags").exists():
            (down if text(interface / "operstate") == "down" else up).append(interface.name)
    known = settings.measure(root, environ)
    ports = {port.netdev for port in rdma.ports(root)}
    joining = [name for name in up if name not in ports and not name.startswith(_WITHIN_A_HOST)]
    mtus = ((name, number(f"{root}/sys/class/net/{name}/mtu")) for name in joining)
    return Facts(
        tuple(up),
        tuple(down),
        tuple(_addresses(root)),
        tuple(device.name for device in entries(f"{root}/sys/class/infiniband")),
        tuple(one for one in known.effective if one.name in _NAMES),
        tuple((name, mtu) for name, mtu in mtus if mtu is not None),
    )


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Tell which names fit nothing."""
    hosts = by_host(ranks)
    found = on_hosts({host: list(_of_host(facts)) for host, facts in hosts.items()})
    named = {setting.name for facts in hosts.values() for setting in facts.settings}
    for name in dict.fromkeys(name for facts in hosts.values() for name, _ in facts.mtus):
        values = {host: str(dict(facts.mtus)[name]) for host, facts in hosts.items() if name in dict(facts.mtus)}
        found += difference(CHECK, f"the MTU of {name}", values, why=_UNLIKE_MTUS, remedy=_ALIKE, source=_KERNEL)
    if named and not found:
        return [Finding(CHECK, "ok", f"what {', '.join(sorted(named))} names is there")]
    return found


def _of_host(facts: Facts) -> Iterator[Finding]:
    for setting in facts.settings:
        kind = _NAMES[setting.name]
        missing, sleeping = [], []
        for word in _words(setting.value):
            fitting = _fitting(word, kind, facts)
            if not fitting:
                missing.append(word)
            elif all(name in facts.down for name in fitting):
                sleeping.append(word)
        there = _there(kind, facts)
        where = f"{setting.name}={setting.value} (from {setting.source})"
        remedy = f"name one of {', '.join(there)}" if there else "remove the setting"
        why = "the library finds no interface, or takes another without a word"
        if missing:
            seen = f"{where} names {', '.join(missing)}, which is not here"
            yield Finding(CHECK, "warning", seen, why, remedy, kind.source)
        if sleeping:
            seen = f"{where} names {', '.join(sleeping)}, which is down"
            yield Finding(CHECK, "warning", seen, why, f"ip link set {sleeping[0]} up, or {remedy}", kind.source)


def _words(value: str) -> list[str]:
    """The names that must exist: none where the value excludes (^) or takes all; port and NCCL's rail are cut off."""
    value = value.strip()
    if value.startswith("^"):
        return []
    words = (word.strip() for word in value.removeprefix("=").split(","))
    return [word for word in words if word and word not in _EVERY]


def _fitting(word: str, kind: _Kind, facts: Facts) -> list[str]:
    if kind.network and (network := _network(word)) is not None:
        return [address for address in facts.addresses if ipaddress.ip_address(address) in network]
    found = [name for name in (*facts.up, *facts.down) if kind.network and kind.fits(name, word)]
    device = word.partition(":")[0]
    return found + [name for name in facts.rdma if kind.rdma and kind.fits(name, device)]


def _there(kind: _Kind, facts: Facts) -> list[str]:
    names = [*(facts.rdma if kind.rdma else ()), *(facts.up if kind.network else ())]
    return [name for name in names if name != "lo"]


def _network(word: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """A network such as 10.0.0.0/24, which Open MPI takes for a name."""
    if "/" not in word:
        return None
    try:
        return ipaddress.ip_network(word, strict=False)
    except ValueError:
        return None


def _addresses(root: str) -> Iterator[str]:
    """This host's IPv4 addresses, from the kernel's table of routes."""
    table = text(f"{root}/proc/net/fib_trie") or ""
    yield from dict.fromkeys(re.findall(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL", table))
