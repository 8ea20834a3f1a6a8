"""Whether UCX hears of memory that is given back: who has put himself before libc's munmap in this process.

UCX keeps registrations of memory with RDMA devices and drops them when its hook in munmap tells it to. A library
that is loaded later and hooks munmap too (libfabric's cache of registrations does) takes UCX's hook away; what is
mapped at the same address afterwards is then received into pages that are gone (`docs/hosts.md`).
"""

import ctypes
import platform
import sys
from pathlib import Path

from collbench.doctor.mpi_library import selected_pml

_MOST_BYTES = 14
_ENDBR64 = b"\xf3\x0f\x1e\xfa"
_OF_UCX = ("libucm.", "libucs.", "libucp.")


DEAF = "UCX does not hear of memory that is given back: another library took its hook in munmap"
"""What a wrong row says besides."""


class _Symbol(ctypes.Structure):
    """What dladdr fills in."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def deaf_ucx() -> str:
    """The file that took munmap away from UCX, where this process's MPI goes by UCX; empty where none did."""
    if not _goes_by_ucx():
        return ""
    file = hooked_by("munmap")
    return "" if file.startswith(_OF_UCX) else file


def hooked_by(name: str) -> str:
    """The name of the file that a function of libc jumps into; empty where it is its own, or cannot be told."""
    if platform.machine() != "x86_64":
        return ""
    libc = ctypes.CDLL(None)
    address = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
    if address is None:
        return ""
    target = jump_target(ctypes.string_at(address, _MOST_BYTES), address)
    symbol = _Symbol()
    if target is None or not libc.dladdr(ctypes.c_void_p(target), ctypes.byref(symbol)) or not symbol.file:
        return ""
    return Path(symbol.file.decode(errors="replace")).name


def jump_target(code: bytes, address: int) -> int | None:
    """Where the x86-64 code of a function's entry jumps to at once; None where it does its own work."""
    if code.startswith(_ENDBR64):
        code, address = code[len(_ENDBR64) :], address + len(_ENDBR64)
    if code[:1] == b"\xe9":  # jmp rel32
        return address + 5 + int.from_bytes(code[1:5], "little", signed=True)
    if code[:2] == b"\x49\xbb":  # movabs r11; jmp r11
        return int.from_bytes(code[2:10], "little")
    return None


def _goes_by_ucx() -> bool:
    layer = selected_pml()
    if layer:
        return layer == "ucx"
    # MPICH with UCX links it; Open MPI loads it whatever it goes by.
    if "mpi4py.MPI" not in sys.modules:
        return False
    return any(name.startswith("libucp.") for name in _loaded())


def _loaded() -> set[str]:
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {line.rpartition("/")[2] for line in lines if "/" in line}
