"""What a link of a known rate can carry: payload bytes a second, and a sentence that says how that was reckoned.

Formulas: RoCE v2 M / (M + 82), M the path MTU (preamble 8, gap 12, Ethernet 14, FCS 4, IPv4 20, UDP 8, BTH 12, ICRC 4);
InfiniBand M / (M + 26) (LRH 8, BTH 12, ICRC 4, VCRC 2) of the data rate after coding; TCP over IPv4 with timestamps
(M - 52) / (M + 38) on the wire, M the interface's MTU, and (M - 52) / (M + 14) through a shaper, which counts the
Ethernet header alone.
"""

from dataclasses import dataclass

from collbench.rdma import Port
from collbench.wiring import Interface, Wiring, roce_mtu

_ROCE, _IB = 82, 26
_TCP_HEADERS, _ON_WIRE, _SHAPED = 52, 38, 14
_IB_MTU = 4096


@dataclass(frozen=True)
class Payload:
    """Bytes a second of payload, and where that is from."""

    bytes_per_s: float
    source: str


def payload(wiring: Wiring, paths: tuple[str, ...], link_bytes_per_s: float | None = None) -> Payload | None:
    """What a host's paths carry together; None where a rate is not known. `link_bytes_per_s` is what the user says."""
    found = [_one(wiring, path, link_bytes_per_s) for path in paths]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    return Payload(sum(one.bytes_per_s for one in known), " + ".join(dict.fromkeys(one.source for one in known)))


def _one(wiring: Wiring, path: str, link: float | None) -> Payload | None:
    kind, _, name = path.partition(":")
    if kind == "tcp":
        interface = wiring.interfaces.get(name)
        return None if interface is None else tcp(interface, link)
    ports = [port for port in wiring.ports if port.device == name and port.active]
    return rdma(ports[0], wiring, link) if kind == "rdma" and ports else None


def tcp(interface: Interface, link: float | None = None) -> Payload | None:
    """What TCP over IPv4 carries over an interface."""
    mtu = interface.mtu or 1500
    rate, said = (link, "link_rate") if link else (interface.bytes_per_s, f"{interface.name}'s speed")
    header = _ON_WIRE
    if not link and interface.shaped and (rate is None or interface.shaped < rate):
        rate, said, header = interface.shaped, f"the shaper of {interface.name}", _SHAPED
    if rate is None:
        return None
    share = f"{mtu - _TCP_HEADERS}/{mtu + header}"
    text = f"{_bits(rate)} ({said}) x {share} (TCP over IPv4 with timestamps, MTU {mtu})"
    return Payload(rate * (mtu - _TCP_HEADERS) / (mtu + header), text)


def rdma(port: Port, wiring: Wiring, link: float | None = None) -> Payload | None:
    """What RDMA carries through a port."""
    interface = wiring.interfaces.get(port.netdev or "")
    mtu, header, name = roce_mtu(interface), _ROCE, "RoCE v2"
    if port.link_layer == "InfiniBand":
        mtu, header, name = _IB_MTU, _IB, "InfiniBand"
    rate, said = (link, "link_rate") if link else (port.rate_bytes_per_s, f"{port.name}'s rate")
    if not link and wiring.over(port) is not None:  # a software device makes its rate up
        below = tcp(interface) if interface is not None else None
        rate, said = (
            (interface.shaped or interface.bytes_per_s, f"{interface.name}'s") if below and interface else (None, "")
        )
    if rate is None:
        return None
    text = f"{_bits(rate)} ({said}) x {mtu}/{mtu + header} ({name}, path MTU {mtu})"
    return Payload(rate * mtu / (mtu + header), text)


def _bits(bytes_per_s: float) -> str:
    bits = bytes_per_s * 8
    scale, unit = (1e9, "Gbit/s") if bits >= 1e9 else (1e6, "Mbit/s")
    return f"{bits / scale:g} {unit}"
