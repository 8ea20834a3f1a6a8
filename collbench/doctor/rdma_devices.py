"""RDMA devices: ports and their tables of addresses (GIDs), the same on every host, and whether programs may use them.

Sources: Documentation/ABI/stable/sysfs-class-infiniband of the Linux kernel; NCCL user guide, "Environment variables".
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from collbench import rdma
from collbench.doctor import settings
from collbench.doctor.finding import Finding, Seen, by_host, difference, named, on_hosts
from collbench.doctor.settings import Setting
from collbench.files import entries, number, text

CHECK = "RDMA"

_KERNEL = "Linux kernel, Documentation/ABI/stable/sysfs-class-infiniband"
_POD = "in a pod ask for the resource (rdma/..., nvidia.com/mlnxnics); in a container --device=/dev/infiniband"
_POD_SOURCE = "sriov-network-device-plugin#271"
_HEADERS_BYTES = 96
"""What the kernel takes off an interface's MTU before it looks for the RoCE MTU that fits (iboe_get_mtu)."""
_ROCE_MTUS = (4096, 2048, 1024, 512, 256)
_INDICES = ("NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "OMPI_MCA_btl_openib_gid_index")
_MADE_UP = ("rdma_rxe", "siw")
"""Drivers whose rate is no link's."""
_NAMED = {"mlx5_core": "mlx5", "vmw_pvrdma": "PVRDMA", "rdma_rxe": "Soft-RoCE"}


@dataclass(frozen=True)
class Facts:
    """What one host has. `mtus` are those of the ports' interfaces; `usable` are devices with a file in /dev."""

    ports: tuple[rdma.Port, ...] = ()
    mtus: tuple[tuple[str, int], ...] = ()
    usable: tuple[str, ...] = ()
    in_container: bool = False
    indices: tuple[Setting, ...] = ()


def measure(root: str = "", environ: Mapping[str, str] | None = None) -> Facts:
    """Read them."""
    environ = os.environ if environ is None else environ
    ports = rdma.ports(root)
    netdevs = dict.fromkeys(port.netdev for port in ports if port.netdev)
    mtus = ((name, number(f"{root}/sys/class/net/{name}/mtu")) for name in netdevs)
    known = settings.measure(root, environ).effective if ports else ()
    return Facts(
        ports,
        tuple((name, mtu) for name, mtu in mtus if mtu is not None),
        tuple(sorted(_usable(root))),
        "KUBERNETES_SERVICE_HOST" in environ or os.path.exists(f"{root}/.dockerenv"),  # noqa: PTH110  root is a text
        tuple(one for one in known if one.name in _INDICES),
    )


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Judge them."""
    hosts = by_host(ranks)
    without = [host for host, facts in hosts.items() if not facts.ports]
    if len(without) == len(hosts):
        why = "what goes between hosts goes by TCP"
        if not any(facts.in_container for facts in hosts.values()):
            return [Finding(CHECK, "note", "no RDMA device is here", why)]
        return [Finding(CHECK, "note", "no RDMA device reached this container", why, _POD, _POD_SOURCE)]
    found = []
    if without:
        others = named(host for host in hosts if host not in without)
        seen = f"no RDMA device on {named(without)}, but on {others}"
        why = "what runs over RDMA on one host and TCP on another hangs or fails when they connect"
        remedy = "give every host one, or keep all from it: NCCL_IB_DISABLE=1, UCX_TLS=tcp,sm,self"
        found.append(Finding(CHECK, "warning", seen, why, remedy, "nccl#234", differs=True))
    having = {host: facts for host, facts in hosts.items() if facts.ports}
    found += _unlike(having)
    return found + on_hosts({host: list(_of_host(facts)) for host, facts in having.items()})


def path_mtu(interface_mtu: int) -> int | None:
    """The RoCE MTU of a port by its interface's, as the kernel finds it; None where none fits."""
    return next((mtu for mtu in _ROCE_MTUS if mtu <= interface_mtu - _HEADERS_BYTES), None)


def _usable(root: str) -> Iterator[str]:
    """Devices that have their file in /dev/infiniband, without which no program can use them."""
    present = {one.name for one in entries(f"{root}/dev/infiniband")}
    for verbs in entries(f"{root}/sys/class/infiniband_verbs"):
        device = text(verbs / "ibdev")
        if device and verbs.name in present:
            yield device


@dataclass(frozen=True)
class _Aspect:
    """Something that ports of one name should have alike."""

    name: str
    tell: Callable[[rdma.Port, Facts], str]
    why: str = "hosts then differ in what they can do"


_ASPECTS = (
    _Aspect("the state", lambda port, facts: port.state, "hosts whose port is down take another path, or none"),
    _Aspect("the rate", lambda port, facts: _rate(port), "the slower end sets what both carry"),
    _Aspect("the link layer", lambda port, facts: port.link_layer),
    _Aspect("the driver", lambda port, facts: port.driver or "unknown"),
    _Aspect(
        "the MTU of the interface",
        lambda port, facts: str(dict(facts.mtus).get(port.netdev or "", "unknown")),
        "RoCE takes the MTU that fits: connections between unlike ends fail or are slow",
    ),
)


def _unlike(hosts: Mapping[str, Facts]) -> Iterator[Finding]:
    """What ports of one name have differently, and tables of addresses."""
    sets = {host: ", ".join(port.name for port in facts.ports) for host, facts in hosts.items()}
    yield from difference(CHECK, "the set of ports", sets, why="settings that name one do not fit every host")
    for name in dict.fromkeys(port.name for facts in hosts.values() for port in facts.ports):
        mine = {host: (port, facts) for host, facts in hosts.items() for port in facts.ports if port.name == name}
        for aspect in _ASPECTS:
            values = {host: aspect.tell(port, facts) for host, (port, facts) in mine.items()}
            yield from difference(CHECK, f"{aspect.name} of {name}", values, why=aspect.why, source=_KERNEL)
        active = {host: port for host, (port, _) in mine.items() if port.active and port.on_ethernet}
        tables = {host: "; ".join(f"{gid.index} {_kind(gid)}" for gid in port.gids) for host, port in active.items()}
        yield from difference(
            CHECK,
            f"the table of addresses (GIDs) of {name}",
            tables,
            why="an index then means another address on another host: connections time out",
            remedy="let the libraries choose (NCCL_IB_GID_INDEX=-1, no UCX_IB_GID_INDEX), or make the addresses alike",
            source="nccl#426, #769, #890, #1131, #1573",
        )


def _of_host(facts: Facts) -> Iterator[Finding]:
    """What one host alone shows."""
    closed = [name for name in dict.fromkeys(port.device for port in facts.ports) if name not in facts.usable]
    if closed:
        yield Finding(
            CHECK,
            "warning",
            f"{', '.join(closed)} has no file in /dev/infiniband",
            "no program can open it, and libraries take TCP without a word",
            _POD if facts.in_container else f"modprobe ib_uverbs; {_POD}",
            _POD_SOURCE,
        )
    down = [port for port in facts.ports if not port.active]
    if down:
        told = (f"{one.name} is {one.state or 'unreadable'} (link {one.phys_state or 'unreadable'})" for one in down)
        left = len(down) < len(facts.ports)
        yield Finding(
            CHECK,
            "note" if left else "warning",
            ", ".join(told),
            "" if left else "nothing can go by RDMA, and libraries take TCP without a word",
            "look at the cable, the switch's port and `ip link`; for InfiniBand at the subnet manager",
            _KERNEL,
        )
    for port in facts.ports:
        if port.active and port.on_ethernet:
            yield from _addresses(port, facts)
    yield Finding(CHECK, "ok", "; ".join(_told(port, facts) for port in facts.ports), source=_KERNEL)


def _addresses(port: rdma.Port, facts: Facts) -> Iterator[Finding]:
    """A RoCE port's addresses, and what settings of an index point to."""
    fitting = [str(one.index) for one in port.gids if one.type == rdma.ROCE_V2]
    if not fitting:
        why = "NCCL and UCX look for one, and take TCP or fail"
        remedy = f"give {port.netdev or 'its interface'} an address: ip addr add"
        source = "NCCL user guide, NCCL_IB_ROCE_VERSION_NUM"
        yield Finding(CHECK, "warning", f"{port.name} has no RoCE v2 address", why, remedy, source)
    for setting in facts.indices:
        if not setting.value.isdecimal():
            continue
        gid = next((one for one in port.gids if one.index == int(setting.value)), None)
        at = f"{setting.name}={setting.value} (from {setting.source}) points to {{}} of {port.name}"
        remedy = f"unset it, or take {' or '.join(fitting)}" if fitting else "unset it"
        if gid is None:
            why = "no connection can be made from it"
            yield Finding(CHECK, "problem", at.format("an unset address"), why, remedy, "nccl#426, #769, #890")
        elif gid.type is not None and gid.type != rdma.ROCE_V2:
            why = "RoCE v1 is not routed, and the other side may speak v2"
            yield Finding(CHECK, "warning", at.format("a RoCE v1 address"), why, remedy, "NCCL user guide")


def _kind(gid: rdma.Gid) -> str:
    """What an address is, without the part that differs from host to host by its nature."""
    words = gid.gid.split(":")
    if words[:5] == ["0000"] * 5 and words[5].lower() == "ffff":
        family = "IPv4"
    else:
        family = "IPv6 link-local" if gid.gid.lower().startswith("fe80") else "IPv6"
    return f"{gid.type or 'unknown type'} {family}"


def _rate(port: rdma.Port) -> str:
    return "unknown" if port.rate_bytes_per_s is None else f"{port.rate_bytes_per_s * 8 / 1e9:g} Gbit/s"


def _told(port: rdma.Port, facts: Facts) -> str:
    """A port in words."""
    words = [
        f"{port.name} {port.state or 'unreadable'}",
        _NAMED.get(port.driver or "", port.driver or "driver unknown"),
    ]
    made_up = " (made up by the driver)" if port.driver in _MADE_UP else ""
    words.append(_rate(port) + made_up)
    if port.on_ethernet:
        words += sorted({"RoCE v2" if gid.type == rdma.ROCE_V2 else "RoCE v1" for gid in port.gids if gid.type})
    else:
        words.append(port.link_layer or "link layer unreadable")
    mtu = dict(facts.mtus).get(port.netdev or "")
    if mtu is not None and port.on_ethernet:
        words.append(f"RoCE MTU {path_mtu(mtu)} by {port.netdev}'s {mtu}")
    return ", ".join(words)
