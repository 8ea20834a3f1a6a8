"""The topology file that tells NCCL how a virtual machine's devices are linked."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.doctor import hypervisor, pci, settings
from collbench.doctor.finding import Finding, Seen, by_host, difference, on_hosts

CHECK = "NCCL topology"

VIRTUAL = "/var/run/nvidia-topologyd/virtualTopology.xml"
_SOURCE = "NCCL user guide, NCCL_TOPO_FILE; nccl#949, #1464"


@dataclass(frozen=True)
class Facts:
    """`asked` is NCCL_TOPO_FILE; the other two say whether that file and the one that NCCL looks for are there."""

    gpus: int = 0
    virtual: bool | None = None
    asked: str = ""
    asked_is_there: bool = False
    default_is_there: bool = False


def measure(root: str = "", environ: Mapping[str, str] | None = None) -> Facts:
    """Look for the files."""
    setting = settings.value_of(settings.measure(root, os.environ if environ is None else environ), "NCCL_TOPO_FILE")
    asked = setting.value if setting else ""
    return Facts(
        sum(device.gpu for device in pci.measure(root).devices),
        hypervisor.measure(root).virtual,
        asked,
        bool(asked) and Path(f"{root}{asked}").is_file(),
        Path(f"{root}{VIRTUAL}").is_file(),
    )


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Judge it; where NCCL has nothing to run on there is nothing to say."""
    hosts = {host: facts for host, facts in by_host(ranks).items() if facts.gpus or facts.asked}
    told = {host: facts.asked or (VIRTUAL if facts.default_is_there else "none") for host, facts in hosts.items()}
    why = "NCCL then takes the hosts for unlike machines, and may find no common paths"
    found = difference(CHECK, "the topology file", told, why=why, source=_SOURCE)
    return found + on_hosts({host: _of_host(facts) for host, facts in hosts.items()})


def _of_host(facts: Facts) -> list[Finding]:
    if facts.asked and not facts.asked_is_there:
        seen = f"NCCL_TOPO_FILE={facts.asked} is not there"
        why = "NCCL goes by what it finds itself, or ends with an error"
        return [Finding(CHECK, "warning", seen, why, "give the file's path, or unset it", _SOURCE)]
    if facts.asked or facts.default_is_there:
        return [Finding(CHECK, "ok", f"NCCL takes its topology from {facts.asked or VIRTUAL}", source=_SOURCE)]
    if facts.virtual and facts.gpus > 1:
        seen = f"{facts.gpus} GPUs in a virtual machine, and no topology file"
        why = "NCCL sees the virtual PCI tree, where GPU and network look far apart, and leaves out GPUDirect RDMA"
        remedy = f"write one and name it in NCCL_TOPO_FILE, or put it at {VIRTUAL}"
        return [Finding(CHECK, "note", seen, why, remedy, _SOURCE)]
    return []
