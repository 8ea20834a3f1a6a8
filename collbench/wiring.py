"""How a host is wired: its network interfaces and RDMA ports, what lies on what, and what each could carry."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench import rdma
from collbench.counters import SOFTWARE
from collbench.rdma import Port

LOOPBACK = "lo"

_TC_S = 5.0
_BITS = 8
_ROCE_MTUS = (4096, 2048, 1024, 512, 256)
_ROCE_HEADERS = 96
"""What the kernel takes off an interface's MTU before it looks for the path MTU that fits (iboe_get_mtu)."""


@dataclass(frozen=True)
class Interface:
    """A network interface. `below` are those that it sends through; `shaped` is the rate that a shaper leaves it."""

    name: str
    mtu: int | None
    bytes_per_s: float | None
    shaped: float | None
    below: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wiring:
    """What a host has that could carry data to another, and what would keep RDMA from it."""

    interfaces: Mapping[str, Interface]
    ports: tuple[Port, ...]
    uverbs: bool
    """Whether programs here can open an RDMA device at all: /dev/infiniband has a node for one."""

    def over(self, port: Port) -> str | None:
        """The network interface that counts what a software RDMA device sends; None for hardware."""
        return port.netdev if port.driver in SOFTWARE else None


def look(root: str = "", *, shapers: bool = True) -> Wiring:
    """Find out how this host is wired; what cannot be read is left out. `shapers` asks `tc` of each interface."""
    ports = rdma.ports(root)
    addressed = _addressed(root)
    named = {port.netdev for port in ports if port.netdev}
    shapers = shapers and not root
    interfaces = {name: _interface(name, root, shapers) for name in sorted(addressed | named | {LOOPBACK})}
    uverbs = any(_names(Path(f"{root}/dev/infiniband"), "uverbs"))
    return Wiring(interfaces, ports, uverbs)


def roce_mtu(interface: Interface | None) -> int:
    """The path MTU of RoCE over an interface, in bytes: sysfs does not tell it, but the kernel derives it so."""
    mtu = interface.mtu if interface is not None and interface.mtu else 1500
    return next((size for size in _ROCE_MTUS if size + _ROCE_HEADERS <= mtu), _ROCE_MTUS[-1])


def _interface(name: str, root: str, shapers: bool) -> Interface:
    folder = Path(f"{root}/sys/class/net/{name}")
    below = tuple(one.removeprefix("lower_") for one in _names(folder, "lower_"))
    # veth, tun and bridges make their speed up: that of a device, or of what lies on some, is taken.
    speed = _number(folder / "speed") if below or (folder / "device").exists() else None
    return Interface(
        name,
        _number(folder / "mtu"),
        speed * 1e6 / _BITS if speed and speed > 0 else None,
        _shaped(name) if shapers and name != LOOPBACK else None,
        below,
    )


def _addressed(root: str) -> set[str]:
    """Interfaces through which this host can send: those with a route or an IPv6 address."""
    found = set()
    for line in _text(Path(f"{root}/proc/self/net/route")).splitlines()[1:]:
        found.update(line.split()[:1])
    for line in _text(Path(f"{root}/proc/self/net/if_inet6")).splitlines():
        found.update(line.split()[-1:])
    return found


def _shaped(name: str) -> float | None:
    """Bytes per second that a token bucket at the interface's root lets through (`tc`); None where there is none."""
    program = shutil.which("tc") or shutil.which("tc", path="/usr/sbin:/sbin")
    if program is None:
        return None
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, TypeError, AttributeError):
        command = [program, "-j", "qdisc", "show", "dev", name]
        said = subprocess.run(command, capture_output=True, text=True, timeout=_TC_S, check=True)
        for discipline in json.loads(said.stdout):
            if discipline.get("kind") == "tbf" and discipline.get("root"):
                return float(discipline["options"]["rate"])
    return None


def _names(folder: Path, beginning: str) -> list[str]:
    try:
        return sorted(one.name for one in folder.iterdir() if one.name.startswith(beginning))
    except OSError:
        return []


def _number(path: Path) -> int | None:
    try:
        return int(_text(path))
    except ValueError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # of a virtual interface even the speed cannot be read
        return ""
