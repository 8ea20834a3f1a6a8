"""What a launch that ended badly leaves on this host, processes and shared memory, and taking it away."""

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path

_SEGMENTS = ("sm_segment.", "vader_segment.", "mpich_shm_")
"""How the names of shared memory of Open MPI 5 and 4, and of MPICH, begin."""


def processes_with(name: str, value: str) -> list[int]:
    """This host's processes that have this variable in the environment they were started with, but for this one.

    Whatever session, group or parent they have by now: launchers change all three.
    """
    word, found = f"{name}={value}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # gone, or another user's
                if word in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def segments_of(processes: Iterable[int]) -> set[Path]:
    """The files of an MPI library in /dev/shm that these processes have mapped."""
    paths = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/maps").read_text(errors="replace").splitlines():
                if "/dev/shm/" in line and not line.endswith("(deleted)"):
                    paths.add(Path(line[line.index("/dev/shm/") :]))
    return {path for path in paths if path.name.startswith(_SEGMENTS)}


def kill(processes: Iterable[int]) -> None:
    """End processes; stopped ones too."""
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def remove_session(launcher: int) -> None:
    """Take away the folder that Open MPI's launcher makes for itself, where it was killed and could not."""
    shutil.rmtree(Path(tempfile.gettempdir()) / f"ompi.{launcher}", ignore_errors=True)


def unlink(segments: Iterable[Path]) -> None:
    """Take names away; who has a file open or mapped keeps it."""
    for segment in segments:
        with contextlib.suppress(OSError):
            segment.unlink()
