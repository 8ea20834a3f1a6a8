"""What a CUDA device is and how it is linked to the others of its host, as NVML tells.

    facts(uuid)      a dictionary for environment.json: every query that is denied (vGPUs deny many) is "not available"
    links(uuids)     what lies between each two devices of one host
    paths(links), access(links)     the same as rows of words

`uuid` is what `backends.cuda.device_uuid` gives: 32 hexadecimal digits, of a device or of an instance of one (MIG).
Nothing here raises: without NVML, facts are a sentence and links have nothing.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench.nvml import NOT_AVAILABLE, Nvml, nvml, opened, pair, text
from collbench.provenance import compact

_ON_OFF = {0: "off", 1: "on"}
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_VIRTUALIZATION = {0: "none", 1: "pass-through", 2: "vGPU", 3: "host of vGPUs", 4: "host of vSGA"}
_VGPU = "vGPU"

# nvmlGpuTopologyLevel_t, in the words of `nvidia-smi topo -m`.
_LEVELS = {0: "X", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t. (The first index is a tuple in nvidia-ml-py.)
_P2P = {"read": 0, "write": 1, "nvlink": 2}
_P2P_STATUSES = {
    0: "ok", 1: "chipset not supported", 2: "GPU not supported", 3: "topology not supported",
    4: "disabled by registry key", 5: "not supported", 6: "unknown",
}  # fmt: skip

_MOST_LINKS = 36
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
_SPEED, _VERSION = 164, 166  # NVML_FI_DEV_NVLINK_GET_SPEED in MB/s each way, NVML_FI_DEV_NVLINK_GET_VERSION
_NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}


def facts(uuid: str) -> dict[str, object]:
    """Describe a device."""
    library = nvml()
    if isinstance(library, str):
        return {"nvml": library}
    handle = library.handle(uuid)
    if handle is None:
        return {"nvml": f"NVML knows no device with the UUID {uuid}"}
    whole = library.whole(handle)
    found: dict[str, object] = {
        "name": text(library.ask("nvmlDeviceGetName", handle)),
        "uuid": text(library.ask("nvmlDeviceGetUUID", handle)),
        "driver_version": text(library.ask("nvmlSystemGetDriverVersion")),
        "cuda_driver_version": _cuda_version(library),
        "memory_bytes": _memory_bytes(library, handle),
        "compute_mode": _word(_COMPUTE_MODES, library.ask("nvmlDeviceGetComputeMode", whole)),
        "persistence": _word(_ON_OFF, library.ask("nvmlDeviceGetPersistenceMode", whole)),
        "ecc": _word(_ON_OFF, pair(library.ask("nvmlDeviceGetEccMode", whole))[0]),
        "pci": _pci(library, whole) or NOT_AVAILABLE,
        "pcie_generation": library.ask("nvmlDeviceGetCurrPcieLinkGeneration", whole),
        "pcie_generation_most": library.ask("nvmlDeviceGetMaxPcieLinkGeneration", whole),
        "pcie_width": library.ask("nvmlDeviceGetCurrPcieLinkWidth", whole),
        "pcie_width_most": library.ask("nvmlDeviceGetMaxPcieLinkWidth", whole),
        "numa_node": _numa_node(library, whole),
        "cores_near": _cores(library, whole),
        "power_limit_W": _thousandth(library.ask("nvmlDeviceGetEnforcedPowerLimit", whole)),
        "clock_most_MHz": library.ask("nvmlDeviceGetMaxClockInfo", whole, 1),
        "memory_clock_most_MHz": library.ask("nvmlDeviceGetMaxClockInfo", whole, 2),
    }
    return found | _parts(library, handle, whole) | _virtual(library, whole, str(found["name"]))


@dataclass(frozen=True)
class Link:
    """What lies between two devices of a host.

    `path` is the word of `nvidia-smi topo -m`: NV18 for 18 NVLinks; PIX, PXB, PHB, NODE, SYS for ever longer ways over
    PCIe; X for a device and itself. `read`, `write` and `nvlink` are "ok" where the driver allows peer access so, else
    its reason. `nvlink_bytes_per_s` is the sum of the links' speeds, one way.
    """

    path: str = NOT_AVAILABLE
    read: str = NOT_AVAILABLE
    write: str = NOT_AVAILABLE
    nvlink: str = NOT_AVAILABLE
    nvlinks: int = 0
    nvlink_version: str = ""
    nvlink_bytes_per_s: float | None = None


def links(uuids: Sequence[str]) -> list[list[Link]]:
    """Return what lies between each two devices; rows and columns in the order of the UUIDs."""
    library = opened()
    if library is None:
        return [[Link()] * len(uuids) for _ in uuids]
    handles = [library.handle(uuid) for uuid in uuids]
    wholes = [None if handle is None else library.whole(handle) for handle in handles]
    ports = [[] if whole is None else _ports(library, whole) for whole in wholes]
    addresses = ["" if whole is None else _pci(library, whole) for whole in wholes]
    return [
        [
            _link(library, wholes[a], wholes[b], ports[a], ports[b], addresses[b], same=uuids[a] == uuids[b])
            for b in range(len(uuids))
        ]
        for a in range(len(uuids))
    ]


def paths(found: Sequence[Sequence[Link]]) -> list[str]:
    """Return a matrix of links as `nvidia-smi topo -m` has it: rows of words."""
    return [" ".join(link.path.replace(" ", "_") for link in row) for row in found]


def access(found: Sequence[Sequence[Link]]) -> list[str]:
    """Return the peer access of a matrix of links, by the driver's word: nvlink, pcie, no, ? (denied) or X."""
    return [" ".join(_access(link) for link in row) for row in found]


def _access(link: Link) -> str:
    if link.path == "X":
        return "X"
    if link.read == link.write == "ok":
        return "nvlink" if link.nvlink == "ok" else "pcie"
    return "?" if NOT_AVAILABLE in (link.read, link.write) else "no"


@dataclass(frozen=True)
class _Port:
    """An NVLink that is up: who is at its other end, and its speed in MB/s."""

    to_switch: bool
    to_address: str
    speed: int | None
    version: str


def _ports(library: Nvml, handle: Any) -> list[_Port]:
    found = []
    for number in range(_MOST_LINKS):
        if library.ask("nvmlDeviceGetNvLinkState", handle, number) != 1:
            continue
        speed, version = library.fields(handle, (_SPEED, number), (_VERSION, number))
        remote = library.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, number)
        found.append(
            _Port(
                to_switch=library.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, number) == _SWITCH,
                to_address="" if remote is NOT_AVAILABLE else text(remote.busId),
                speed=speed,
                version=_NVLINK_VERSIONS.get(version or 0, ""),
            )
        )
    return found


def _link(
    library: Nvml, one: Any, other: Any, ports: list[_Port], others: list[_Port], address: str, *, same: bool
) -> Link:
    if one is None or other is None:
        return Link()
    if same:
        return Link(path="X", read="ok", write="ok")
    access = {
        name: _word(_P2P_STATUSES, library.ask("nvmlDeviceGetP2PStatus", one, other, index))
        for name, index in _P2P.items()
    }
    between = [port for port in ports if address and port.to_address == address]
    if not between:
        # Through switches every link leads to every device. Where a guest is not told who is at the other end, peer
        # access over NVLink says that they do.
        told = access["nvlink"] == "ok"
        mine = [port for port in ports if port.to_switch or (told and not port.to_address)]
        theirs = [port for port in others if port.to_switch or (told and not port.to_address)]
        between = mine[: min(len(mine), len(theirs))]
    speeds = [port.speed for port in between if port.speed]
    level = library.ask("nvmlDeviceGetTopologyCommonAncestor", one, other)
    return Link(
        path=f"NV{len(between)}" if between else _word(_LEVELS, level),
        nvlinks=len(between),
        nvlink_version=between[0].version if between else "",
        nvlink_bytes_per_s=1e6 * sum(speeds) if between and len(speeds) == len(between) else None,
        **access,
    )


def _parts(library: Nvml, handle: Any, whole: Any) -> dict[str, object]:
    """Describe MIG: whether the device is cut up, and which part of it this is."""
    found: dict[str, object] = {"mig": _word(_ON_OFF, pair(library.ask("nvmlDeviceGetMigMode", whole))[0])}
    if not library.is_part(handle):
        return found
    attributes = library.ask("nvmlDeviceGetAttributes", handle)
    return found | {
        "mig_parent": text(library.ask("nvmlDeviceGetName", whole)),
        "mig_gpu_instance": library.ask("nvmlDeviceGetGpuInstanceId", handle),
        "mig_compute_instance": library.ask("nvmlDeviceGetComputeInstanceId", handle),
        "mig_slices": getattr(attributes, "gpuInstanceSliceCount", NOT_AVAILABLE),
        "multiprocessors": getattr(attributes, "multiprocessorCount", NOT_AVAILABLE),
    }


def _virtual(library: Nvml, whole: Any, name: str) -> dict[str, object]:
    """Describe virtualization; a guest knows its vGPU's type by the device's name, and its licence."""
    mode = _word(_VIRTUALIZATION, library.ask("nvmlDeviceGetVirtualizationMode", whole))
    if mode != _VGPU:
        return {"virtualization": mode}
    return {
        "virtualization": mode,
        "vgpu_type": name.removeprefix("NVIDIA ").removeprefix("GRID "),
        "vgpu_licence": _licence(library.ask("nvmlDeviceGetGridLicensableFeatures", whole)),
    }


def _licence(features: Any) -> str:
    """Say in words what the licence of a vGPU allows: without one its speed is cut."""
    if features is NOT_AVAILABLE:
        return NOT_AVAILABLE
    count = min(int(features.licensableFeaturesCount), len(features.gridLicensableFeatures))
    every = [features.gridLicensableFeatures[k] for k in range(count)]
    said = [f"{text(one.productName)}: {text(one.licenseInfo) or 'licensed'}" for one in every if one.featureState]
    if said:
        return "; ".join(said)
    return "unlicensed: the driver cuts its speed after some time" if features.isGridLicenseSupported else "not needed"


def _memory_bytes(library: Nvml, handle: Any) -> object:
    memory = library.ask("nvmlDeviceGetMemoryInfo", handle)
    return NOT_AVAILABLE if memory is NOT_AVAILABLE else int(memory.total)


def _cuda_version(library: Nvml) -> str:
    version = library.number("nvmlSystemGetCudaDriverVersion")
    return NOT_AVAILABLE if version is None else f"{version // 1000}.{version % 1000 // 10}"


def _pci(library: Nvml, handle: Any) -> str:
    """Return a device's address on the PCI bus as NVML writes it; empty where it does not tell."""
    pci = library.ask("nvmlDeviceGetPciInfo", handle)
    return "" if pci is NOT_AVAILABLE else text(pci.busId)


def _numa_node(library: Nvml, handle: Any) -> object:
    """Return the NUMA node that the device's slot belongs to, by the kernel's word."""
    address = _pci(library, handle).lower()[-12:]  # the kernel's domains have four digits, NVML's eight
    try:
        node = int(Path(f"/sys/bus/pci/devices/{address}/numa_node").read_text())
    except (OSError, ValueError):
        return NOT_AVAILABLE
    return node if node >= 0 else NOT_AVAILABLE


def _cores(library: Nvml, handle: Any) -> str:
    """Return the cores near the device, as ranges."""
    words = ((os.cpu_count() or 1) + 63) // 64
    mask = library.ask("nvmlDeviceGetCpuAffinity", handle, words)
    if mask is NOT_AVAILABLE:
        return NOT_AVAILABLE
    return compact(64 * k + bit for k, word in enumerate(mask) for bit in range(64) if word >> bit & 1)


def _thousandth(answer: Any) -> object:
    return answer / 1000 if isinstance(answer, int) else NOT_AVAILABLE


def _word(words: dict[int, str], answer: Any) -> str:
    """Return the word for a number of NVML's; the number itself where it is a newer one than these."""
    return words.get(answer, str(answer)) if isinstance(answer, int) else NOT_AVAILABLE
