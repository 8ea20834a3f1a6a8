"""The hypervisor: whether the host is a virtual machine, and whose."""

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.doctor.finding import Finding, Seen, by_host, difference, on_hosts
from collbench.files import text

CHECK = "hypervisor"

# The beginnings of what the firmware says (/sys/class/dmi/id/sys_vendor, product_name), and whose that is.
_VENDORS = (
    ("VMware", "VMware"), ("QEMU", "KVM (QEMU)"), ("KVM", "KVM"), ("Red Hat", "KVM (Red Hat)"),
    ("Microsoft Corporation Virtual", "Hyper-V"), ("Amazon EC2", "Amazon EC2"), ("Google", "Google Compute Engine"),
    ("Xen", "Xen"), ("OpenStack", "KVM (OpenStack)"), ("innotek", "VirtualBox"), ("Nutanix", "Nutanix AHV"),
    ("Alibaba", "Alibaba Cloud"), ("Parallels", "Parallels"),
)  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """`virtual` is None where nothing tells. `firmware` is vendor and product by the firmware, empty if it has none."""

    virtual: bool | None = None
    name: str = ""
    firmware: str = ""


def measure(root: str = "") -> Facts:
    """Read what firmware and processor say."""
    words = [text(f"{root}/sys/class/dmi/id/{name}") or "" for name in ("sys_vendor", "product_name")]
    firmware = " ".join(word for word in words if word)
    name = next((ours for theirs, ours in _VENDORS if firmware.startswith(theirs)), "")
    if name.startswith("Amazon EC2") and ".metal" in firmware:
        name = ""
    cpu = text(f"{root}/proc/cpuinfo") or ""
    flags = next((line.split() for line in cpu.splitlines() if line.startswith("flags")), None)
    marked = None if flags is None else "hypervisor" in flags
    kind = text(f"{root}/sys/hypervisor/type") or ""
    virtual = True if name or kind else marked
    return Facts(virtual, name or (kind.capitalize() if virtual else ""), firmware)


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Tell it."""
    hosts = by_host(ranks)
    told = {host: _told(facts) for host, facts in hosts.items()}
    why = "a virtual machine's figures and a bare machine's are two figures: compare them, and do not mix them"
    found = difference(CHECK, "the kind of machine", told, why=why)
    return found or on_hosts({host: [_finding(facts)] for host, facts in hosts.items()})


def _finding(facts: Facts) -> Finding:
    if not facts.virtual:
        return Finding(CHECK, "ok", _told(facts))
    why = "its cores may be taken away at any time: the check of noise and the flag noisy show it"
    return Finding(CHECK, "note", _told(facts), why)


def _told(facts: Facts) -> str:
    firmware = f" ({facts.firmware})" if facts.firmware else ""
    if facts.virtual is None:
        return f"whether this is a virtual machine is not readable here{firmware}"
    if not facts.virtual:
        return f"no virtual machine{firmware}"
    return f"a virtual machine of {facts.name}{firmware}" if facts.name else f"a virtual machine{firmware}"
