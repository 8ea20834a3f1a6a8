"""Which layer carries MPI's messages where there is RDMA: Open MPI takes TCP beside an active port without a word.

That a port is there never says that it is used. What is said here is what the library chose, and of UCX and libfabric,
which choose for themselves, that the rows tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from collbench import rdma
from collbench.doctor import settings
from collbench.doctor.finding import Finding, Seen, named
from collbench.doctor.mpi_library import selected_pml
from collbench.doctor.settings import Setting
from collbench.unmap_hook import DEAF, deaf_ucx
from collbench.world import World

CHECK = "MPI path"

_UCX_RDMA = ("rc", "ud", "dc")
"""How the names of UCX's transports over RDMA begin; `ib` and `all` hold them."""

_READ = "read the column transport"
_TCP_FIGURES = "the figures are then those of TCP"
_DEAF_SOURCE = "seen with Open MPI 5.0.11, its UCX 1.20.1 and its libfabric; openucx/ucx#3581 is of the same kind"
_SOURCE = "Open MPI's opal/mca/common/ucx/common_ucx.c: by itself it takes UCX for devices of drivers mlx* alone"


@dataclass(frozen=True)
class Facts:
    """What decides: the library, the layer that it chose, the settings that speak of it, the ports that are active.

    `active` has each port's name (rxe0:1) and driver.
    """

    library: str = ""
    pml: str = ""
    active: tuple[tuple[str, str], ...] = ()
    settings: tuple[Setting, ...] = ()
    deaf: str = ""
    """The file that keeps UCX from hearing of memory that is given back."""

    def setting(self, name: str) -> Setting | None:
        """What holds of that name."""
        return next((one for one in self.settings if one.name == name), None)

    def value(self, name: str) -> str | None:
        """Its value."""
        found = self.setting(name)
        return found.value if found else None


_NAMES = (
    "OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl", "UCX_TLS", "UCX_NET_DEVICES", "MPIR_CVAR_CH4_NETMOD",
    "FI_PROVIDER", "OMPI_MCA_opal_common_ucx_devices", "OMPI_MCA_pml_ucx_devices",
)  # fmt: skip


def measure(root: str = "", *, world: World, environ: Mapping[str, str] | None = None, pml: str | None = None) -> Facts:
    """Look at the ports, the library and its settings."""
    known = settings.measure(root, environ)
    active = tuple((port.name, port.driver or "") for port in rdma.ports(root) if port.active)
    mine = tuple(one for one in known.effective if one.name in _NAMES)
    return Facts(world.library, selected_pml() if pml is None else pml, active, mine, deaf_ucx())


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Judge it; without an active port there is nothing to say."""
    hosts: dict[str, Facts] = {}
    for one in ranks:
        if one.facts.active:
            hosts.setdefault(one.host, one.facts)
    if not hosts or not any(one.library for one in hosts.values()):
        return []
    first = next(iter(hosts.values()))
    ports = ", ".join(dict.fromkeys(name for one in hosts.values() for name, _ in one.active))
    where = f"{ports} on {named(hosts, len({one.host for one in ranks}))}"
    if first.library.startswith("Open MPI"):
        return _open_mpi(first, where)
    if first.library.startswith("MPICH"):
        return _mpich(first, where)
    return [Finding(CHECK, "note", f"whether {first.library} uses {where} is not known beforehand", "", _READ)]


def _open_mpi(facts: Facts, where: str) -> list[Finding]:
    asked, layers = facts.setting("OMPI_MCA_pml"), facts.value("OMPI_MCA_btl") or ""
    layer = facts.pml or (asked.value if asked and not asked.value.startswith("^") else "")
    if layer == "ucx":
        return _ucx(facts, "Open MPI carries messages by UCX (pml ucx)", where)
    if layer == "cm":
        seen = "Open MPI carries messages by its layer cm (libfabric or another), which chooses for itself"
        return [Finding(CHECK, "note", seen, f"{where} may or may not be used", _READ)]
    if not layers.startswith("^") and "openib" in layers.split(","):
        return [Finding(CHECK, "note", "Open MPI was told to use its layer openib", "", _READ)]
    remedy = f"mpirun --mca pml ucx -x UCX_NET_DEVICES={facts.active[0][0]}, and {_READ}"
    why = "it takes TCP without a word, and the figures are then those of TCP"
    if asked and asked.value.startswith("^") and "ucx" in asked.value:
        seen = f"pml={asked.value} (from {asked.source}) keeps Open MPI from UCX, although {where} is active"
        return [Finding(CHECK, "warning", seen, why, remedy, _SOURCE)]
    if layer == "ob1" and asked and asked.value == "ob1":
        seen = f"Open MPI was told to use pml ob1 (from {asked.source}): between hosts it takes TCP, and not {where}"
        return [Finding(CHECK, "note", seen, "", remedy, _SOURCE)]
    if layer:
        seen = f"Open MPI chose pml {layer}, which takes TCP between hosts, although {where} is active"
    else:
        seen = f"no setting tells Open MPI to use UCX, and {where} is active"
    return [Finding(CHECK, "warning", seen, why, remedy, _SOURCE)]


def _mpich(facts: Facts, where: str) -> list[Finding]:
    if "ofi" in (facts.value("MPIR_CVAR_CH4_NETMOD") or ""):
        provider = facts.value("FI_PROVIDER")
        told = f"FI_PROVIDER={provider}" if provider else "which chooses its provider"
        seen = f"MPICH was told to use libfabric ({told})"
        return [Finding(CHECK, "note", seen, f"{where} may or may not be used", _READ)]
    return _ucx(facts, "MPICH carries messages by UCX where it was built with it, which takes RDMA by itself", where)


def _ucx(facts: Facts, told: str, where: str) -> list[Finding]:
    if facts.deaf:
        why = "memory that is freed and taken again is received into pages that are gone: data are wrong"
        remedy = "mpirun --mca btl ^ofi where the other is libfabric; or -x UCX_RCACHE_ENABLE=n, which is slower"
        return [Finding(CHECK, "problem", f"{DEAF} ({facts.deaf}; {where})", why, remedy, _DEAF_SOURCE)]
    transports, devices = facts.value("UCX_TLS"), facts.value("UCX_NET_DEVICES")
    if transports and not transports.startswith("^"):
        words = transports.split(",")
        if not any(word in ("all", "ib") or word.startswith(_UCX_RDMA) for word in words):
            seen = f"{told}, but UCX_TLS={transports} leaves RDMA out ({where})"
            return [Finding(CHECK, "warning", seen, _TCP_FIGURES, "UCX_TLS=rc,self,sm, or leave it unset")]
    names = {name for name, _ in facts.active} | {name.partition(":")[0] for name, _ in facts.active}
    if devices and devices != "all" and not devices.startswith("^"):
        patterns = devices.split(",")
        if not any(fnmatchcase(name, pattern) for name in names for pattern in patterns):
            seen = f"{told}, but UCX_NET_DEVICES={devices} names no active port ({where})"
            return [Finding(CHECK, "warning", seen, _TCP_FIGURES, f"UCX_NET_DEVICES={facts.active[0][0]}")]
    return [Finding(CHECK, "ok", f"{told}; it may use {where}: the column transport tells")]
