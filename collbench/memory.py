"""How much memory a host has for buffers, and whether a case fits: asked before anything is allocated."""

import os
from dataclasses import dataclass
from pathlib import Path

from collbench.units import about

_HEADROOM_BYTES = 64 << 20
"""Left to the host besides what the buffers take: page tables, the library's own staging, the other processes."""
_SEGMENT_BYTES = {"Open MPI": 16 << 20, "MPICH": 2 * 5404672}
"""Shared memory in /dev/shm that each library wants when it starts. Open MPI 5.0.11 asks for 16 MiB to be free for
each segment, of which it writes little. MPICH 5.0.2 takes 5.2 MiB a rank, and now and then dies of a segmentation fault
where it has less than twice that (2 ranks with 16 and 18 MiB, 3 with 19, 4 with 30, 5 with 30)."""


@dataclass(frozen=True)
class Memory:
    """Free memory of a host for this process, in bytes, and what sets the bound, in words."""

    available_bytes: int
    bound: str


def available(root: Path = Path("/")) -> Memory:
    """Find the least of the host's available memory and what the control groups leave."""
    found = [Memory(_available_on_host(root), "available on the host")]
    for limit, used, stat in _group_files(root):
        maximum, current = _number(limit), _number(used)
        if maximum is not None and current is not None:
            # Page cache counts as used until the kernel takes it back for us.
            reclaimable = _statistic(stat, "inactive_file")
            found.append(Memory(max(0, maximum - current + reclaimable), "left by the control group's limit"))
    least = min(found, key=lambda memory: memory.available_bytes)
    return Memory(max(0, least.available_bytes - _HEADROOM_BYTES), least.bound)


def problem(needs: list[tuple[str, int, Memory]]) -> str | None:
    """Say why a case does not fit: `needs` has each rank's host, bytes, and its host's memory. None where it fits."""
    hosts: dict[str, tuple[int, int, Memory]] = {}
    for host, need, memory in needs:
        total, ranks, least = hosts.get(host, (0, 0, memory))
        hosts[host] = total + need, ranks + 1, min(least, memory, key=lambda one: one.available_bytes)
    for host, (total, ranks, memory) in hosts.items():
        if total > memory.available_bytes:
            return (
                f"memory on {host}: {ranks} rank{'s' * (ranks > 1)} need {about(total)} of buffers, and "
                f"{about(memory.available_bytes)} is {memory.bound}"
            )
    return None


def shared_memory_problem(vendor: str, ranks: int, folder: str = "/dev/shm") -> str | None:
    """Say why an MPI library cannot start so many ranks on this host with the shared memory that is free."""
    segment = next((size for name, size in _SEGMENT_BYTES.items() if vendor.startswith(name)), 0)
    need = segment if vendor.startswith("Open MPI") else segment * ranks
    try:
        state = os.statvfs(folder)
    except OSError:
        return None
    free = state.f_bavail * state.f_frsize
    if ranks < 2 or free >= need:
        return None
    return (
        f"{folder}: got {about(free)} free, expected {about(need)} for {vendor} with {ranks} ranks on a host; "
        "make it larger (in a pod: an emptyDir of medium Memory; in a container: --shm-size) or start fewer ranks"
    )


def page_bytes(address: int, size_bytes: int, root: Path = Path("/")) -> int:
    """Return the largest page that backs so many bytes at an address, which must have been touched."""
    small = os.sysconf("SC_PAGE_SIZE")
    huge = _number(root / "sys/kernel/mm/transparent_hugepage/hpage_pmd_size") or 0
    if size_bytes < max(huge, small + 1):  # too small for a huge page: the long file need not be read
        return small
    try:
        lines = (root / "proc/self/smaps").read_text().splitlines()
    except OSError:
        return small
    inside, largest = False, small
    for line in lines:
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):  # a mapping begins: first-last (hexadecimal) rights ...
            if inside:
                break
            first, _, last = name.partition("-")
            inside = int(first, 16) <= address < int(last, 16)
        elif inside and name in ("KernelPageSize:", "AnonHugePages:"):
            number = int(rest.split()[0]) * 1024
            largest = max(largest, number if name == "KernelPageSize:" else huge if number else 0)
    return largest


def _available_on_host(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 62


def _group_files(root: Path) -> list[tuple[Path, Path, Path]]:
    """Limit, usage and statistics of the process's control group and those above it, versions 2 and 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "memory.stat")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
        else:
            continue
        inner = Path(path.lstrip("/"))
        # Inside a container the path may be the host's; its own group is then mounted at the top.
        for group in (inner, *inner.parents):
            limit, used, stat = (base / group / name for name in names)
            files.append((limit, used, stat))
    return files


def _number(path: Path) -> int | None:
    """Read a file that holds one number; "max", or anything that cannot be read, is None."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _statistic(path: Path, name: str) -> int:
    try:
        for line in path.read_text().splitlines():
            if line.startswith((f"{name} ", f"total_{name} ")):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
