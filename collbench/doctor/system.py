"""The system around a rank: shared memory, locked memory, the memory and time of its control group, cores, NUMA."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.doctor.finding import Finding, Seen, by_host, difference, on_hosts
from collbench.files import entries, text
from collbench.memory import available
from collbench.provenance import compact, expanded
from collbench.units import about

CHECK = "system"

NCCL_SEGMENT_BYTES = 9_637_888
"""What NCCL takes of /dev/shm for each connection between two ranks of a host (nccl#525 and others show the number)."""
_DEFAULT_SHM_BYTES = 64 << 20
"""What Docker and containerd give a container."""
_IPC_LOCK = 14  # CAP_IPC_LOCK in include/uapi/linux/capability.h
_EVERY_USER = ["0", "0", "4294967295"]
_PINNED_LEAST_BYTES = 1 << 30
"""Below this RDMA libraries run out of memory that they may pin: buffers, rings and queues of a few connections."""
_SHM_WHY = "libraries put the buffers between ranks of a host there, and die or fail when it is full"
_SHM_REMEDY = (
    "in a pod an emptyDir of medium Memory at /dev/shm; in a container --shm-size=8g; else mount -o remount,size=8g"
)


@dataclass(frozen=True)
class Facts:
    """One rank's surroundings. Sizes are bytes; None is without limit for `memlock`, not known elsewhere."""

    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    memlock: int | None = None
    memlock_known: bool = False
    may_lock: bool = False
    uid: int | None = None
    memory_bytes: int | None = None
    memory_bound: str = ""
    cpu_quota: float | None = None
    cores: str = ""
    nodes: tuple[tuple[int, str], ...] = ()
    rdma: bool = False


def measure(root: str = "") -> Facts:
    """Look at this process and its host."""
    status = dict(line.partition(":")[::2] for line in (text(f"{root}/proc/self/status") or "").splitlines())
    total, free = _shared_memory(root)
    memlock = _memlock(text(f"{root}/proc/self/limits") or "")
    memory_bytes, bound = _memory(root)
    uid = status.get("Uid", "").split()
    return Facts(
        shm_bytes=total,
        shm_free_bytes=free,
        memlock=None if memlock is None or memlock < 0 else memlock,
        memlock_known=memlock is not None,
        may_lock=_may_lock(root, status.get("CapEff", "")),
        uid=int(uid[1]) if len(uid) > 1 and uid[1].isdecimal() else None,
        memory_bytes=memory_bytes,
        memory_bound=bound,
        cpu_quota=_cpu_quota(root),
        cores=status.get("Cpus_allowed_list", "").strip(),
        nodes=tuple(_nodes(root)),
        rdma=bool(entries(f"{root}/sys/class/infiniband")),
    )


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Judge them."""
    hosts = by_host(ranks)
    local = {host: sum(one.host == host for one in ranks) for host in hosts}
    shm = {host: _size(facts.shm_bytes) for host, facts in hosts.items()}
    locked = {host: _locked(facts) for host, facts in hosts.items()}
    quota = {host: "none" if one.cpu_quota is None else f"{one.cpu_quota:g} cores" for host, one in hosts.items()}
    shape = {host: _shape(facts) for host, facts in hosts.items()}
    why = "the weakest host sets what all ranks get"
    found = difference(CHECK, "/dev/shm", shm, why=why, remedy=_SHM_REMEDY)
    found += difference(CHECK, "the limit of locked memory", locked, why=why, remedy=_MEMLOCK_REMEDY)
    found += difference(CHECK, "the limit of processor time", quota, why=why)
    found += difference(CHECK, "the shape of the machine", shape, why=why)
    found += on_hosts({host: list(_of_host(facts, local[host])) for host, facts in hosts.items()})
    return found + _available(hosts) + _affinity(ranks)


_MEMLOCK_REMEDY = (
    "ulimit -l unlimited before the launcher's daemons start: limits.conf, LimitMEMLOCK=infinity for containerd or "
    "slurmd, --ulimit memlock=-1 for Docker"
)


def memlock_problem(facts: Facts, least: int = _PINNED_LEAST_BYTES) -> str | None:
    """Say why RDMA cannot pin its buffers; None where it can, or where nothing is known."""
    if not facts.memlock_known or facts.memlock is None or facts.may_lock or facts.memlock >= least:
        return None
    return f"at most {about(facts.memlock)} of memory may be locked (RLIMIT_MEMLOCK), without CAP_IPC_LOCK"


def _of_host(facts: Facts, ranks: int) -> Iterator[Finding]:
    yield _shm(facts, ranks)
    problem = memlock_problem(facts)
    if problem is not None and facts.rdma:
        why = "RDMA pins its buffers; libraries that may not take TCP without a word, or fail"
        yield Finding(CHECK, "warning", problem, why, _MEMLOCK_REMEDY, "Linux manual, getrlimit(2)")
    else:
        yield Finding(CHECK, "ok", f"locked memory: {_locked(facts)}")
    cores = len(expanded(facts.cores)) if facts.cores else 0
    if facts.cpu_quota is not None and cores:
        tight = facts.cpu_quota < max(ranks, 1)
        seen = f"the control group may use {facts.cpu_quota:g} cores' time, and {ranks} ranks run on {cores} cores"
        why = "ranks that wait spin, and use the quota up; the kernel then stops them for the rest of each period"
        remedy = "raise the limit (in a pod resources.limits.cpu) to the number of ranks or more"
        source = "Linux kernel, Documentation/scheduler/sched-bwc.rst"
        yield Finding(CHECK, "warning" if tight else "ok", seen, why if tight else "", remedy if tight else "", source)


def _shm(facts: Facts, ranks: int) -> Finding:
    if facts.shm_bytes is None:
        seen = "/dev/shm is not there"
        return Finding(CHECK, "warning", seen, _SHM_WHY, _SHM_REMEDY, "nccl#525, #290")
    free = facts.shm_bytes if facts.shm_free_bytes is None else facts.shm_free_bytes
    segments = free // NCCL_SEGMENT_BYTES
    if facts.shm_bytes <= _DEFAULT_SHM_BYTES or segments < 2 * ranks:
        seen = f"/dev/shm: {_size(facts.shm_bytes)}, {about(free)} free: room for {segments} of NCCL's segments"
        return Finding(CHECK, "warning", seen, _SHM_WHY, _SHM_REMEDY, "nccl#525, #290, #342; pytorch/ci-infra#490")
    return Finding(CHECK, "ok", f"/dev/shm: {_size(facts.shm_bytes)}")


def _available(hosts: Mapping[str, Facts]) -> list[Finding]:
    """The host with the least memory: a case's buffers must fit there."""
    known = [(facts.memory_bytes, facts.memory_bound, host) for host, facts in hosts.items() if facts.memory_bytes]
    if not known:
        return []
    least, bound, host = min(known)
    where = f"; {host} has the least" if len(known) > 1 else ""
    return [Finding(CHECK, "ok", f"memory: {about(least)} {bound}{where}")]


def _affinity(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Ranks that may wander between NUMA nodes."""
    wandering = []
    for one in ranks:
        cores = expanded(one.facts.cores) if one.facts.cores else set()
        touched = [node for node, near in one.facts.nodes if cores & expanded(near)]
        if len(touched) > 1:
            wandering.append(one.rank)
    if not wandering:
        nodes = max(len(one.facts.nodes) for one in ranks)
        return [Finding(CHECK, "ok", "each rank stays on one NUMA node" if nodes > 1 else "one NUMA node")]
    who = f"ranks {compact(wandering)}" if len(ranks) > 1 else "this process"
    why = "memory of one node is slower from another, and which one it is changes from launch to launch"
    remedy = "let the launcher bind (Open MPI: --bind-to core; MPICH: -bind-to core)"
    return [Finding(CHECK, "note", f"{who} may run on several NUMA nodes", why, remedy)]


def _size(size: int | None) -> str:
    return "none" if size is None else about(size)


def _locked(facts: Facts) -> str:
    if not facts.memlock_known:
        return "unknown"
    if facts.memlock is None:
        return "unlimited"
    return f"{about(facts.memlock)}{' (CAP_IPC_LOCK: not held to it)' if facts.may_lock else ''}"


def _shape(facts: Facts) -> str:
    cores = {core for _, near in facts.nodes for core in expanded(near)}
    return f"{len(cores)} cores, {len(facts.nodes)} NUMA nodes"


def _shared_memory(root: str) -> tuple[int | None, int | None]:
    """Total and free bytes of /dev/shm; of a recorded tree the size that it was mounted with."""
    if root:
        for line in (text(f"{root}/proc/self/mounts") or "").splitlines():
            _, where, _, options, *_ = [*line.split(), "", "", "", ""]
            if where == "/dev/shm":
                size = next((one.removeprefix("size=") for one in options.split(",") if one.startswith("size=")), "")
                return (
                    (int(size.removesuffix("k")) * 1024, None) if size.removesuffix("k").isdecimal() else (None, None)
                )
        return None, None
    try:
        state = os.statvfs("/dev/shm")
    except OSError:
        return None, None
    return state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize


def _memlock(limits: str) -> int | None:
    """The soft limit in bytes; -1 where there is none, None where it is not told."""
    for line in limits.splitlines():
        if line.startswith("Max locked memory"):
            word = line.removeprefix("Max locked memory").split()[0]
            return -1 if word == "unlimited" else int(word)
    return None


def _memory(root: str) -> tuple[int | None, str]:
    try:
        found = available(Path(root or "/"))
    except OSError:
        return None, ""
    return found.available_bytes, found.bound


def _cpu_quota(root: str) -> float | None:
    """How many cores' time the control groups leave; None where they set no limit."""
    quotas = []
    for line in (text(f"{root}/proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            base = f"{root}/sys/fs/cgroup"
        elif "cpu" in controllers.split(","):
            base = f"{root}/sys/fs/cgroup/cpu"
        else:
            continue
        # A container may see its own group as the root of the tree while its path is told from outside.
        for folder in {"", path.rstrip("/")}:
            whole = (text(f"{base}{folder}/cpu.max") or "").split()
            if not whole:
                whole = [text(f"{base}{folder}/cpu.cfs_{word}_us") or "" for word in ("quota", "period")]
            if len(whole) == 2 and whole[0].isdecimal() and whole[1].isdecimal() and int(whole[1]) > 0:
                quotas.append(int(whole[0]) / int(whole[1]))
    return min(quotas, default=None)


def _nodes(root: str) -> Iterator[tuple[int, str]]:
    for node in entries(f"{root}/sys/devices/system/node"):
        number = node.name.removeprefix("node")
        cores = text(node / "cpulist") if number.isdecimal() else None
        if cores:
            yield int(number), cores


def _may_lock(root: str, capabilities: str) -> bool:
    """Whether CAP_IPC_LOCK is in effect, and not only within a user namespace (a rootless container)."""
    mapped = (text(f"{root}/proc/self/uid_map") or "").split()
    try:
        return mapped in ([], _EVERY_USER) and bool(int(capabilities.strip() or "0", 16) >> _IPC_LOCK & 1)
    except ValueError:
        return False
