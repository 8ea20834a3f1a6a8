"""Containers and pods: what they keep from the ranks, so that RDMA becomes TCP without a word."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.doctor import system
from collbench.doctor.finding import Finding, Seen, by_host, difference, on_hosts
from collbench.files import entries, text

CHECK = "container"

_POD = "Kubernetes pod"
# Words of a control group's path or of a mount of / that a runtime leaves.
_RUNTIMES = (
    ("kubepods", _POD), ("docker", "Docker"), ("libpod", "Podman"), ("containerd", "containerd"), ("lxc", "LXC"),
)  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """Where a rank is: `kind` is empty outside of containers."""

    kind: str = ""
    devices: bool = False
    """Whether /dev/infiniband has anything."""
    rdma: bool = False
    memlock_problem: str = ""
    uid: int | None = None


def measure(root: str = "", environ: Mapping[str, str] | None = None) -> Facts:
    """Look for the traces that runtimes leave."""
    environ = os.environ if environ is None else environ
    around = system.measure(root)
    return Facts(
        _kind(root, environ),
        bool(entries(f"{root}/dev/infiniband")),
        around.rdma,
        system.memlock_problem(around) or "",
        around.uid,
    )


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Judge them."""
    hosts = by_host(ranks)
    found = difference(
        CHECK,
        "where the ranks are",
        {host: facts.kind or "no container" for host, facts in hosts.items()},
        why="each kind has its own network, limits and devices: figures of unlike hosts are not one figure",
        remedy="start all ranks in the same kind of place",
    )
    return found + on_hosts({host: list(_of_host(facts)) for host, facts in hosts.items()})


def _of_host(facts: Facts) -> Iterator[Finding]:
    if not facts.kind:
        yield Finding(CHECK, "ok", "no container")
        return
    yield Finding(CHECK, "note", f"in a container ({facts.kind}): its limits and devices are what counts")
    if (facts.rdma or facts.devices) and facts.memlock_problem and facts.uid:
        seen = f"the ranks run as user {facts.uid}, and {facts.memlock_problem}"
        why = "a pod's IPC_LOCK is in effect for user 0 alone: RDMA cannot pin memory, and becomes TCP without a word"
        remedy = "raise the runtime's limit (LimitMEMLOCK=infinity for containerd), or run as user 0 with IPC_LOCK"
        yield Finding(CHECK, "warning", seen, why, remedy, "nvidia-container-toolkit#2037")


def _kind(root: str, environ: Mapping[str, str]) -> str:
    if "KUBERNETES_SERVICE_HOST" in environ or Path(f"{root}/var/run/secrets/kubernetes.io").exists():
        return _POD
    groups = text(f"{root}/proc/self/cgroup") or ""
    root_mount = next(
        (line for line in (text(f"{root}/proc/self/mounts") or "").splitlines() if line.split()[1:2] == ["/"]), ""
    )
    for trace, kind in _RUNTIMES:
        if trace in groups or trace in root_mount:
            return kind
    if Path(f"{root}/run/.containerenv").exists():
        return "Podman"
    if Path(f"{root}/.dockerenv").exists():
        return "Docker"
    return environ.get("container", "")
