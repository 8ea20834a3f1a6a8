"""Which RDMA port a program of this rank uses, by which of its addresses: what NCCL's and UCX's settings name, else the
first active port, and there the RoCE v2 address of an IPv4 one, as NCCL and UCX choose it themselves."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from collbench.rdma import ROCE_V2, Gid, Port, ports

SETTINGS = ("NCCL_IB_HCA", "UCX_NET_DEVICES")


@dataclass(frozen=True)
class Endpoint:
    """A port, the index of its address (None on InfiniBand, which needs none), and that as IPv4 where it is one."""

    device: str
    port: int
    gid_index: int | None = None
    address: str = ""


def endpoint(environment: Mapping[str, str], found: tuple[Port, ...] | None = None) -> Endpoint | str:
    """Choose the port, or say in a sentence why there is none; `found` is what this machine has."""
    here = ports() if found is None else found
    active = [port for port in here if port.active]
    if not active:
        states = ", ".join(f"{port.name} is {port.state or 'in a state that cannot be read'}" for port in here)
        return f"no RDMA port is ACTIVE here ({states})" if states else "there is no RDMA device here"
    for name in SETTINGS:
        setting = environment.get(name, "")
        if _names_one(name, setting, here):
            chosen = [port for port in active if _named(name, setting, port)]
            if not chosen:
                names = ", ".join(port.name for port in active)
                return f"{name} is {setting!r}, expected one that names an ACTIVE RDMA port ({names}); correct it"
            return _endpoint(chosen[0])
    return _endpoint(active[0])


def _names_one(name: str, setting: str, here: tuple[Port, ...]) -> bool:
    """Whether a setting is about RDMA ports: UCX's may name network interfaces alone, or all that there is."""
    if name == "NCCL_IB_HCA":
        return bool(setting)
    return any(_named(name, setting, port) for port in here) or any(":" in word for word in _words(setting))


def _named(name: str, setting: str, port: Port) -> bool:
    if name == "UCX_NET_DEVICES":  # exact names, `mlx5_0:1`; the port may be left out
        return any(word in (port.name, port.device) for word in _words(setting))
    # NCCL_IB_HCA: `mlx5` stands for all that begin so, `=mlx5_0:1` for that one, and ^ in front for all others.
    others, setting = setting.startswith("^"), setting.removeprefix("^")
    exact, setting = setting.startswith("="), setting.removeprefix("=")
    hit = False
    for word in _words(setting):
        device, _, number = word.partition(":")
        fits = port.device == device if exact else port.device.startswith(device)
        hit = hit or (fits and number in ("", str(port.number)))
    return hit != others


def _words(setting: str) -> list[str]:
    return [word.strip() for word in setting.split(",") if word.strip()]


def _endpoint(port: Port) -> Endpoint:
    if not port.on_ethernet:
        return Endpoint(port.device, port.number)
    best = max(port.gids, key=lambda gid: (gid.type == ROCE_V2, bool(_ipv4(gid)), -gid.index), default=None)
    if best is None:
        return Endpoint(port.device, port.number)
    return Endpoint(port.device, port.number, best.index, _ipv4(best))


def _ipv4(gid: Gid) -> str:
    """The IPv4 address that a port's address stands for (::ffff:a.b.c.d); empty where it is another."""
    try:
        return str(ipaddress.IPv6Address(gid.gid).ipv4_mapped or "")
    except ValueError:
        return ""
