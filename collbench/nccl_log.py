"""What NCCL says in its own log: transports and channels of the set-up, algorithm and protocol of a call.

NCCL writes a log of each process where NCCL_DEBUG is INFO, one file each with `%h` and `%p` in NCCL_DEBUG_FILE:

    os.environ |= settings(folder, os.environ)        before libnccl is loaded
    log = Log.of_this_process(os.environ)
    ...                                               make the communicator, run an operation once
    setup = read_setup(log.text())                    of this rank
    row = merge(setups of all ranks of the group)     row.transport() is the column; one rank alone has none
    log.mark()                                        from here on: the next communicator's lines alone

The subsystems INIT, ENV, GRAPH and NET speak while a communicator is made, and from NCCL 2.22 on also when an algorithm
is used for the first time: read after the first operation, before anything is timed. TUNING speaks at every call, so
it belongs in a launch of its own that nobody times (`settings(..., tuning=True)`, `read_choices`).

The transports' names are those of `collbench.transports`. The formats are those of the INFO lines in NCCL's sources
(transport/*.cc, init.cc, enqueue.cc, plugin/net.cc) from 2.18 to 2.30. A line that nobody knows is passed over.
"""

import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collbench.transports import in_order, on_network

SUBSYSTEMS = "INIT,ENV,GRAPH,NET"
_PATTERN = "nccl-%h-%p.log"
_MOST_BYTES = 32 << 20
"""A set-up of eight devices takes some hundred kilobytes; what is longer is cut at its end."""

_NETWORKS = {"aws libfabric": "libfabric", "socket": "socket"}
_MESSAGE = re.compile(r"NCCL (?:INFO|VERSION) (?:\(emulated\) )?(.*)")
_VERSION = re.compile(r"(?:^|\s)NCCL version (\d+\.\d+\.\d+[\w.+-]*)")
_VIA = re.compile(r"^(?:Channel|Ring|CollNet)\b.* via (\S.*?)(?: comm 0x.*)?$")
_NET = re.compile(r"^(NET|COLLNET)/(.+?)/\d+(?:\(\d+\))?(/GDRDMA(?:\(PCI\))?)?(?:/Shared)?$")
_CHANNELS = re.compile(r"^(\d+) coll channels,.*?(?:(\d+) nvls channels, )?(\d+) p2p channels,")
_NVLS_SET_UP = re.compile(r"^(?:NVLS comm 0x\S+ headRank|Connected NVLS tree)")
_NVLS = re.compile(r"^NVLS multicast support is (not )?available")
_MNNVL = re.compile(r"^(?:comm 0x\S+ rank .*|)\bMNNVL (\d)")
_RANKS = re.compile(r"\bcomm 0x\S+ rank \d+ n[rR]anks (\d+)(?: nNodes (\d+))?")
_NETWORK = re.compile(r"^(?:Using network|Assigned NET plugin) (.+?)(?: to comm)?$")
_PLUGIN = re.compile(r"^NET/Plugin: Loaded net plugin (.+)$")
_EXTERNAL = re.compile(r"^Successfully loaded external network plugin (.+)$")
_PROVIDER = re.compile(r"^NET/OFI Selected [Pp]rovider is ([\w;-]+)")
_USING = re.compile(r"^NET/\S+ : Using (.*)")
_DEVICE = re.compile(r"\[\d+\] ?([\w.-]+(?:(?::\d*)+(?=/))?)")
_HCA = re.compile(r"^NET/.+? : GPU Direct RDMA (Enabled|Disabled) for HCA \d+ '(.*?)'")
_SET = re.compile(r"^(NCCL_\w+) set (?:by environment )?to (.*?)\.?$")

_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")
"""NCCL 2.20 to 2.23 wrote their numbers (nccl_common.h, device.h)."""
_CHOICE = re.compile(r"^(?:(\w+): )?(\d+) Bytes -> Algo (\w+) proto (\w+)(?:.*channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?")
_SYMMETRIC = re.compile(r"^(\w+) \[Symmetric\]: (\d+) Bytes -> Kernel (\w+)(?: nchannels (\d+))?")
_COPIED = re.compile(r"^(\w+) \[(Copy Engine|Hierarchical CE)\]: (\d+) Bytes -> ")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NAMES = {"AlltoAll": "all_to_all"}


def settings(folder: Path, environ: Mapping[str, str], *, tuning: bool = False) -> dict[str, str]:
    """Return the variables that make NCCL write its logs into a folder; empty where the user has set NCCL_DEBUG.

    They count from when libnccl is first asked for anything. TUNING adds a line at every call.
    """
    if "NCCL_DEBUG" in environ:
        return {}
    wanted = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": f"{SUBSYSTEMS},TUNING" if tuning else SUBSYSTEMS,
        "NCCL_DEBUG_FILE": f"{str(folder).replace('%', '%%')}/{_PATTERN}",
    }
    return {name: value for name, value in wanted.items() if name not in environ}


def path_of(environ: Mapping[str, str], host: str, pid: int) -> Path | None:
    """Return where a process writes its log; None where it writes none, or not into a file."""
    pattern = environ.get("NCCL_DEBUG_FILE", "")
    if not pattern or environ.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE"):
        return None
    name = re.sub(r"[%/]", "-", host.partition(".")[0])
    words = {"%h": name, "%p": str(pid), "%%": "%"}
    return Path(re.sub(r"%.", lambda found: words.get(found[0], found[0]), pattern))


def unread(environ: Mapping[str, str]) -> str:
    """Say which setting of the user's keeps a process's log from being read; empty where none does."""
    level = environ.get("NCCL_DEBUG")
    if level is None or path_of(environ, "", 0) is not None:
        return ""
    lacks = "without NCCL_DEBUG_FILE" if level.upper() in ("INFO", "TRACE") else "not INFO"
    return f"NCCL_DEBUG is {level!r} {lacks}, so NCCL's log cannot be read; take it out of the environment"


class Log:
    """The log of one process, read from a mark on."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._from = 0

    @classmethod
    def of_this_process(cls, environ: Mapping[str, str], pid: int) -> "Log":
        """Find this process's log by the environment that NCCL was loaded with."""
        return cls(path_of(environ, socket.gethostname(), pid))

    def mark(self) -> None:
        """Leave out what has been written so far."""
        self._from = self.size()

    def size(self) -> int:
        """Return how many bytes have been written; 0 where there is nothing to read."""
        try:
            return 0 if self.path is None else self.path.stat().st_size
        except OSError:
            return 0

    def text(self) -> str:
        """Return what was written since the mark; empty where there is nothing to read."""
        if self.path is None:
            return ""
        try:
            with self.path.open("rb") as file:
                file.seek(self._from)
                return file.read(_MOST_BYTES).decode(errors="replace")
        except OSError:
            return ""


@dataclass(frozen=True)
class Setup:
    """What one rank, or all of a group (`merge`), set up. None and empty: the log does not say.

    `details` are NCCL's words for the transports ("P2P/CUMEM/read", "NET/IB/GDRDMA"). `gdr` is whether what goes over
    the network goes by GPUDirect RDMA on every connection. `interfaces` are HCAs with port, or network interfaces,
    without addresses; `gdr_devices` those of them that NCCL would use GPUDirect with. `nvls` is whether the devices
    have multicast, `mnnvl` whether NVLink reaches beyond the host. `environment` has the settings that NCCL took, from
    its configuration files too.
    """

    version: str = ""
    ranks: int | None = None
    nodes: int | None = None
    channels: int | None = None
    nvls_channels: int | None = None
    p2p_channels: int | None = None
    transports: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    network: str = ""
    plugin: str = ""
    interfaces: tuple[str, ...] = ()
    gdr_devices: tuple[str, ...] = ()
    gdr: bool | None = None
    nvls: bool | None = None
    mnnvl: bool | None = None
    environment: tuple[tuple[str, str], ...] = field(default=())

    def transport(self, choice: "Choice | None" = None) -> str:
        """Return the column's text; where the choice is known, without the switches' own transports that it spares."""
        spared: tuple[str, ...] = ()
        if choice is not None:
            spared = ("nvls",) * (not choice.multicast) + ("collnet",) * (not choice.algorithm.startswith("CollNet"))
        return "+".join(one for one in self.transports if not one.startswith(spared))


@dataclass(frozen=True)
class Choice:
    """What NCCL chose for a call. `collective` is our name, empty where the version wrote none (before 2.23).

    `size_bytes` is NCCL's own count of the bytes: see `sizes_of`. `algorithm` and `protocol` are NCCL's words, as
    NCCL_ALGO and NCCL_PROTO take them; symmetric kernels have their kernel's name as the protocol.
    """

    collective: str
    size_bytes: int
    algorithm: str
    protocol: str = ""
    channels: int | None = None

    @property
    def multicast(self) -> bool:
        """Whether it uses the NVSwitch's multicast: NVLS, NVLSTree, and symmetric kernels such as ..._AGxSTMC."""
        return self.algorithm.startswith("NVLS") or "MC" in self.protocol


def read_setup(text: str) -> Setup:
    """Read the log of one process; the last word counts where there are several."""
    said: dict[str, str | int | bool] = {}
    details: dict[str, None] = {}
    interfaces: dict[str, None] = {}
    gdr_devices: dict[str, None] = {}
    environment: dict[str, str] = {}
    nvls_set_up, provider = False, ""
    for line in text.splitlines():
        if version := _VERSION.search(line):
            said["version"] = version[1]
        message = _MESSAGE.search(line)
        if message is None:
            continue
        words = message[1].strip()
        if via := _VIA.match(words):
            details[via[1]] = None
        elif channels := _CHANNELS.match(words):
            names = ("channels", "nvls_channels", "p2p_channels")
            said |= {name: _number(value) for name, value in zip(names, channels.groups(), strict=True) if value}
        elif _NVLS_SET_UP.match(words):
            nvls_set_up = True
        elif nvls := _NVLS.match(words):
            said["nvls"] = nvls[1] is None
        elif network := _NETWORK.match(words):
            said["network"] = network[1]
        elif plugin := (_PLUGIN.match(words) or _EXTERNAL.match(words)):
            said.setdefault("plugin", plugin[1])
        elif chosen := _PROVIDER.match(words):
            provider = chosen[1]
        elif using := _USING.match(words):
            interfaces |= dict.fromkeys(_DEVICE.findall(using[1].partition("; OOB")[0]))
        elif (hca := _HCA.match(words)) and hca[1] == "Enabled":
            gdr_devices[hca[2]] = None
        elif setting := _SET.match(words):
            environment[setting[1]] = setting[2]
        elif mnnvl := _MNNVL.match(words):
            said["mnnvl"] = mnnvl[1] != "0"
        if ranks := _RANKS.search(words):
            said |= {
                name: _number(value) for name, value in zip(("ranks", "nodes"), ranks.groups(), strict=True) if value
            }
    found = {_transport(one, provider) for one in details} - {""} | ({"nvls"} if nvls_set_up else set())
    return Setup(
        **said,  # type: ignore[arg-type]
        transports=in_order(found),
        details=tuple(dict.fromkeys(_without_numbers(one) for one in details)),
        interfaces=tuple(interfaces),
        gdr_devices=tuple(gdr_devices),
        gdr=_all_gdr(found),
        environment=tuple(sorted(environment.items())),
    )


def merge(setups: Sequence[Setup]) -> Setup:
    """Say for a group what its ranks say: every transport that any of them uses, and the largest numbers."""
    found = {transport for one in setups for transport in one.transports}
    nvls = [one.nvls for one in setups if one.nvls is not None]
    mnnvl = [one.mnnvl for one in setups if one.mnnvl is not None]
    return Setup(
        version=next((one.version for one in setups if one.version), ""),
        ranks=_largest(one.ranks for one in setups),
        nodes=_largest(one.nodes for one in setups),
        channels=_largest(one.channels for one in setups),
        nvls_channels=_largest(one.nvls_channels for one in setups),
        p2p_channels=_largest(one.p2p_channels for one in setups),
        transports=in_order(found),
        details=_each(one.details for one in setups),
        network="+".join(_each([one.network] for one in setups if one.network)),
        plugin="+".join(_each([one.plugin] for one in setups if one.plugin)),
        interfaces=_each(one.interfaces for one in setups),
        gdr_devices=_each(one.gdr_devices for one in setups),
        gdr=_all_gdr(found),
        nvls=all(nvls) if nvls else None,
        mnnvl=all(mnnvl) if mnnvl else None,
        environment=tuple(sorted({pair for one in setups for pair in one.environment})),
    )


def read_choices(text: str) -> list[Choice]:
    """Read what NCCL chose, call by call, from the log of a launch with TUNING; empty before 2.20.

    Up to 2.23 rank 0 of a communicator alone says it. Sends and receives have no choice, and no line.
    """
    found = []
    for line in text.splitlines():
        message = _MESSAGE.search(line)
        words = message[1].strip() if message else ""
        if usual := _CHOICE.match(words):
            function, size, algorithm, protocol, low, high = usual.groups()
            channels = _number(high) - _number(low) + 1 if low and high else None
            name, protocol = _named(_ALGORITHMS, algorithm), _named(_PROTOCOLS, protocol)
            found.append(Choice(_ours(function or ""), _number(size), name, protocol, channels))
        elif symmetric := _SYMMETRIC.match(words):
            function, size, kernel, count = symmetric.groups()
            found.append(Choice(_ours(function), _number(size), "Symmetric", kernel, _number(count) if count else None))
        elif copied := _COPIED.match(words):
            found.append(Choice(_ours(copied[1]), _number(copied[3]), copied[2].replace(" ", "")))
    return found


def choice_of(choices: Sequence[Choice], collective: str, size_bytes: int, ranks: int) -> Choice | None:
    """Return the last choice for a collective of our size; None where NCCL said nothing of it."""
    sizes = sizes_of(collective, size_bytes, ranks)
    fitting = [one for one in choices if one.collective in (collective, "") and one.size_bytes in sizes]
    return fitting[-1] if fitting else None


def sizes_of(collective: str, size_bytes: int, ranks: int) -> tuple[int, ...]:
    """Return the bytes that NCCL may call our size: the whole vector up to 2.23, a rank's part of it from 2.24 on."""
    parted = collective in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    return (size_bytes, size_bytes // ranks) if parted and ranks > 1 else (size_bytes,)


def _transport(via: str, provider: str) -> str:
    """Name what stands after "via" in NCCL's line; empty where that is nothing we know."""
    if via.startswith(("P2P/", "direct pointer", "CUMEM")):
        return "p2p"
    if via.startswith("SHM"):
        return "shm"
    net = _NET.match(via)
    if net is None:
        return ""
    gdr = "/gdr" if net[3] else ""
    if net[1] == "COLLNET":
        return f"collnet{gdr}"
    name = net[2].lower()
    name = _NETWORKS.get(name, name)
    if name == "ib" or name.startswith("ibext"):
        return f"net/ib{gdr}"
    if name == "libfabric" and provider.startswith(("tcp", "sockets")):
        return "net/libfabric/tcp"
    return f"net/{re.sub(r'[^a-z0-9]+', '_', name)}{gdr}"


def _without_numbers(via: str) -> str:
    """Leave the numbers of devices and ranks out of what stands after "via"."""
    net = _NET.match(via)
    if net is not None:
        return f"{net[1]}/{net[2]}{net[3] or ''}"
    return re.sub(r"^P2P/indirect/\d+\[\w+\]", "P2P/indirect", via)


def _all_gdr(found: set[str]) -> bool | None:
    network = on_network(found)
    return all(one.endswith("/gdr") for one in network) if network else None


def _number(digits: str) -> int:
    """Read digits of a log; what no number of NCCL's can be counts as the largest."""
    return int(digits) if len(digits) < 20 else 2**63 - 1


def _largest(numbers: Iterable[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def _each(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for group in groups for one in group))


def _named(names: Sequence[str], word: str) -> str:
    return names[int(word)] if word.isascii() and word.isdigit() and len(word) < 3 and int(word) < len(names) else word


def _ours(function: str) -> str:
    """AllReduce is all_reduce."""
    return _NAMES.get(function) or _WORD.sub("_", function).lower()
