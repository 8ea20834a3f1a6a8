"""RDMA ports of this machine, as the kernel shows them under /sys/class/infiniband. Reads files and nothing else.

Source: Documentation/ABI/stable/sysfs-class-infiniband of the Linux kernel. A port that is here and active says that it
could be used, never that anything uses it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collbench.files import entries, link, text

ROCE_V2 = "RoCE v2"
"""What the kernel calls the second version; the first is `IB/RoCE v1`, also on InfiniBand, where it means neither."""

_RATE = re.compile(r"([0-9.]+) Gb/sec")
_BITS = 8


@dataclass(frozen=True)
class Gid:
    """One entry of a port's table of addresses that is set."""

    index: int
    gid: str
    type: str | None
    netdev: str | None


@dataclass(frozen=True)
class Port:
    """One port of one device; a word that could not be read is empty, and a number None.

    `rate_bytes_per_s` is the kernel's figure; emulated devices make theirs up. `gids` holds the entries that are set.
    `path` is the port's folder, where its counters are.
    """

    device: str
    number: int
    state: str
    phys_state: str
    rate_bytes_per_s: float | None
    link_layer: str
    netdev: str | None
    driver: str | None
    gids: tuple[Gid, ...]
    path: str

    @property
    def name(self) -> str:
        """The port as the libraries' settings name it."""
        return f"{self.device}:{self.number}"

    @property
    def active(self) -> bool:
        """Whether it could carry data."""
        return self.state == "ACTIVE"

    @property
    def on_ethernet(self) -> bool:
        """Whether it is RDMA over Ethernet: RoCE, where it is no iWARP."""
        return self.link_layer == "Ethernet"


def ports(root: str = "") -> tuple[Port, ...]:
    """All ports of all devices, by device and number; none where the kernel has no RDMA. `root` is put before /sys."""
    return tuple(
        _port(device, folder)
        for device in entries(Path(f"{root}/sys/class/infiniband"))
        for folder in entries(device / "ports")
        if folder.name.isdecimal()
    )


def _port(device: Path, folder: Path) -> Port:
    gids = tuple(_gids(folder))
    number = int(folder.name)
    return Port(
        device=device.name,
        number=number,
        state=_word(folder / "state"),
        phys_state=_word(folder / "phys_state"),
        rate_bytes_per_s=_rate(text(folder / "rate")),
        link_layer=text(folder / "link_layer") or "",
        netdev=next((one.netdev for one in gids if one.netdev), None) or _netdev(device, number),
        driver=_driver(device),
        gids=gids,
        path=str(folder),
    )


def _gids(folder: Path) -> Iterator[Gid]:
    for entry in entries(folder / "gids"):
        gid = text(entry)
        if entry.name.isdecimal() and gid and gid.strip("0:"):
            attributes = folder / "gid_attrs"
            yield Gid(
                int(entry.name),
                gid,
                text(attributes / "types" / entry.name) or None,
                text(attributes / "ndevs" / entry.name) or None,
            )


def _netdev(device: Path, number: int) -> str | None:
    """The port's network interface where no address names it: rxe's parent, or the one of the same PCI function."""
    if parent := text(device / "parent"):
        return parent
    interfaces = entries(device / "device" / "net")
    if len(interfaces) > 1:
        interfaces = [one for one in interfaces if text(one / "dev_port") == str(number - 1)]
    return interfaces[0].name if len(interfaces) == 1 else None


def _driver(device: Path) -> str | None:
    if driver := link(device / "device" / "driver"):
        return driver
    for line in (text(device / "device" / "uevent") or "").splitlines():
        if line.startswith("DRIVER="):
            return line.removeprefix("DRIVER=")
    return "rdma_rxe" if text(device / "parent") else None  # Soft-RoCE has no device; only it has this file


def _rate(said: str | None) -> float | None:
    """Bytes per second of a text such as `100 Gb/sec (4X EDR)`."""
    found = _RATE.match(said or "")
    try:
        return float(found[1]) * 1e9 / _BITS if found else None
    except ValueError:
        return None


def _word(path: Path) -> str:
    """The word of a file such as `4: ACTIVE`."""
    return (text(path) or "").partition(":")[2].strip()
