"""What a host's network interfaces and RDMA ports have counted so far; reads files and nothing else.

Bytes are those that were sent. Traps (kernel ABI documents, NVIDIA's and the drivers' documentation): `port_xmit_data`
counts words of four bytes; Soft-RoCE counts packets only, and what it sends is counted by its network interface too;
some drivers renew `hw_counters` every `lifespan` milliseconds only; a counter that a driver lacks is a file that is not
there, and one that it refuses gives an error.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collbench.ethtool import pauses
from collbench.rdma import Port

SOFTWARE = ("rdma_rxe", "siw")
"""Drivers of RDMA devices that send through a network interface, which counts the same bytes."""

_WORD = 4
_SENT_BYTES = (("counters/port_xmit_data", _WORD), ("hw_counters/tx_bytes", 1))
_SENT_PACKETS = ("counters/port_xmit_packets", "hw_counters/sent_pkts", "hw_counters/tx_pkts")
_EVENTS: Mapping[str, tuple[str, ...]] = {
    "retransmissions": (
        "hw_counters/packet_seq_err", "hw_counters/implied_nak_seq_err", "hw_counters/local_ack_timeout_err",
        "hw_counters/completer_retry_err", "hw_counters/rcvd_seq_err", "hw_counters/RetransSegs",
        "hw_counters/retrans_pkts",
    ),
    "out_of_sequence": ("hw_counters/out_of_sequence", "hw_counters/out_of_seq_request"),
    "ecn_marked": ("hw_counters/np_ecn_marked_roce_packets",),
    "cnps": ("hw_counters/np_cnp_sent", "hw_counters/rp_cnp_handled", "hw_counters/cnpSent", "hw_counters/cnpHandled"),
    "drops": (
        "counters/port_xmit_discards", "counters/port_rcv_errors", "hw_counters/out_of_buffer",
        "hw_counters/rx_icrc_encapsulated", "hw_counters/rx_drops",
    ),
}  # fmt: skip
_LONGEST_LIFESPAN_S = 0.1


@dataclass(frozen=True)
class Counts:
    """What a network interface or an RDMA port has sent, and what went wrong on it; None where it does not tell."""

    bytes: int | None
    packets: int | None
    events: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """All counters of a host at one instant, in seconds of its monotonic clock. Ports go by DEVICE:NUMBER."""

    at_s: float
    interfaces: Mapping[str, Counts]
    ports: Mapping[str, Counts]
    tcp: Mapping[str, int] = field(default_factory=dict)


def read(ports: Sequence[Port], interfaces: Iterable[str] | None = None, root: str = "") -> Reading:
    """Read the counters of these ports and of the interfaces (all of them if None)."""
    time.sleep(max((_lifespan_s(port) for port in ports), default=0.0))
    return Reading(
        at_s=time.monotonic(),
        interfaces=_interfaces(interfaces, root),
        ports={port.name: _port(port) for port in ports},
        tcp=_tcp(root),
    )


def difference(before: Reading, after: Reading) -> Reading:
    """What was counted in between; `at_s` is the time that it took. A counter that was set back says nothing."""
    return Reading(
        after.at_s - before.at_s,
        {
            name: _less(after.interfaces[name], one)
            for name, one in before.interfaces.items()
            if name in after.interfaces
        },
        {name: _less(after.ports[name], one) for name, one in before.ports.items() if name in after.ports},
        {name: max(0, after.tcp[name] - count) for name, count in before.tcp.items() if name in after.tcp},
    )


def _less(after: Counts, before: Counts) -> Counts:
    return Counts(
        _rise(before.bytes, after.bytes),
        _rise(before.packets, after.packets),
        {name: max(0, count - before.events[name]) for name, count in after.events.items() if name in before.events},
    )


def _rise(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before


def _interfaces(wanted: Iterable[str] | None, root: str) -> dict[str, Counts]:
    found = {}
    chosen = None if wanted is None else set(wanted)
    for line in _text(Path(f"{root}/proc/self/net/dev")).splitlines():
        name, colon, numbers = line.partition(":")
        name, cells = name.strip(), numbers.split()
        if not colon or len(cells) < 16 or (chosen is not None and name not in chosen):
            continue
        counts = [int(cell) for cell in cells]
        # Received: bytes packets errors drops ...; sent: the same from the ninth on.
        events = {"drops": counts[3] + counts[11]}
        paused = pauses(name) if not root else None
        found[name] = Counts(counts[8], counts[9], events if paused is None else events | {"pauses": paused})
    return found


def _port(port: Port) -> Counts:
    folder = Path(port.path)
    sent = (_scaled(_number(folder / name), scale) for name, scale in _SENT_BYTES)
    packets = (_number(folder / name) for name in _SENT_PACKETS)
    events = {}
    for event, names in _EVENTS.items():
        counts = [count for name in names if (count := _number(folder / name)) is not None]
        if counts:
            events[event] = sum(counts)
    return Counts(_first(sent), _first(packets), events)


def _tcp(root: str) -> dict[str, int]:
    found = {}
    for file, table, counter, event in (
        ("snmp", "Tcp", "RetransSegs", "retransmissions"),
        ("netstat", "TcpExt", "TCPOFOQueue", "out_of_sequence"),
    ):
        lines = [line.split() for line in _text(Path(f"{root}/proc/self/net/{file}")).splitlines()]
        rows = [cells for cells in lines if cells and cells[0] == f"{table}:"]
        if len(rows) == 2 and counter in rows[0]:
            found[event] = int(rows[1][rows[0].index(counter)])
    return found


def _lifespan_s(port: Port) -> float:
    milliseconds = _number(Path(port.path) / "hw_counters/lifespan")
    return 0.0 if milliseconds is None else min(milliseconds / 1000, _LONGEST_LIFESPAN_S)


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _scaled(count: int | None, scale: int) -> int | None:
    return None if count is None else count * scale


def _first(counts: Iterable[int | None]) -> int | None:
    return next((count for count in counts if count is not None), None)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
