"""Run programs for the tests, on one process or several ranks: each within a time limit, none left behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Literal, Self

RANKS = (1, 2, 3, 4)

# Names the test in the environment of all that it starts. Launchers give ranks process groups (Open MPI) or sessions
# (MPICH) of their own, and orphans get another parent, but the environment stays.
MARKER = "COLLBENCH_TEST"

GRACE = 5.0  # seconds between SIGTERM to the launcher and SIGKILL to all that it started


@dataclass(frozen=True)
class CompletedRun:
    """What a program left: its exit code (-N: ended by signal N), both outputs, and how many seconds it took."""

    code: int
    out: str
    err: str
    seconds: float

    def expect(self, code: int = 0) -> Self:
        """Assert the exit code, showing both outputs where it differs."""
        assert self.code == code, f"exit code {self.code}, expected {code}{_both(self.out, self.err)}"
        return self


@dataclass(frozen=True)
class Process:
    """A line of /proc; `started` (clock ticks since boot) tells a process from a later one of the same number."""

    pid: int
    parent: int
    session: int
    started: int

    @property
    def command(self) -> str:
        return _read(self.pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def mpirun(
    ranks: int,
    args: Sequence[str | Path],
    *,
    timeout: float,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
) -> CompletedRun:
    """Run a program, given with its arguments, on so many ranks; see `run`."""
    options: list[str] = []
    if flavour() == "openmpi":
        # Unbound, so that test runs side by side do not share the first cores.
        options = ["--oversubscribe", "--bind-to", "none"]
        env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **(env or {})}
    return run([launcher(), *options, "-n", str(ranks), *args], timeout=timeout, env=env, cwd=cwd)


def collbench(
    args: Iterable[str | Path],
    *,
    timeout: float = 60,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
) -> CompletedRun:
    """Run the command line program in a process of its own; see `run`."""
    return run([sys.executable, "-m", "collbench", *args], timeout=timeout, env=env, cwd=cwd)


def run(
    command: Sequence[str | Path],
    *,
    timeout: float,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
) -> CompletedRun:
    """Run a command for at most `timeout` seconds.

    `env` is laid over this process's environment; None takes a variable out. A command that does not end in time gets
    SIGTERM, then it and all its descendants SIGKILL, and AssertionError tells both outputs.
    """
    merged = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
    start = time.monotonic()
    # Files and not pipes: an orphan that holds a pipe open would keep its reader waiting.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=merged,
            cwd=cwd,
            start_new_session=True,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            _stop(process)
            text = " ".join(str(word) for word in command)
            raise AssertionError(f"still running after {timeout} s: {text}{_both(_text(out), _text(err))}") from None
        except BaseException:
            _stop(process)
            raise
        return CompletedRun(process.returncode, _text(out), _text(err), time.monotonic() - start)


@cache
def launcher() -> Path:
    """Find mpirun beside the interpreter, else on PATH."""
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise RuntimeError("mpirun: found none; install collbench[openmpi] or collbench[mpich], or put one on PATH")
    return Path(found)


@cache
def flavour() -> Literal["openmpi", "mpich"]:
    """Tell whose mpirun it is."""
    version = subprocess.run([launcher(), "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    return "openmpi" if "Open MPI" in version else "mpich"


@cache
def cuda_devices() -> int:
    """Count the visible CUDA devices, in a process of its own: the driver reads its settings once."""
    probe = (
        "import ctypes; driver = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int()\n"
        "print(0 if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(n)) else n.value)"
    )
    completed = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False)
    return int(completed.stdout) if completed.returncode == 0 else 0


def left_behind(marker: str, grace: float = 2.0) -> list[Process]:
    """List the processes that a test started and that still run after `grace` seconds."""
    deadline = time.monotonic() + grace
    entry = f"{MARKER}={marker}".encode()
    while True:
        remaining = [p for p in _processes() if p.pid != os.getpid() and entry in _read(p.pid, "environ").split(b"\0")]
        if not remaining or time.monotonic() > deadline:
            return remaining
        time.sleep(0.05)


def kill(processes: Iterable[Process]) -> None:
    """Send SIGKILL to those that still run."""
    running = {(p.pid, p.started) for p in _processes()}
    for process in processes:
        if (process.pid, process.started) in running:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _stop(process: subprocess.Popen[bytes]) -> None:
    family = _family(process.pid)
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        family |= _family(process.pid)
    finally:
        kill(family)
        process.wait()


def _family(root: int) -> set[Process]:
    """Collect a process, its session, and the descendants of both, in whatever sessions they are."""
    every = _processes()
    family = {p for p in every if root in (p.pid, p.session)}
    while True:
        pids = {p.pid for p in family}
        more = {p for p in every if p.parent in pids} - family
        if not more:
            return family
        family |= more


def _processes() -> list[Process]:
    """Read /proc, without the zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # proc(5): "pid (name) state parent group session ...", start time as field 22; the name may hold anything.
            fields = _read(int(entry.name), "stat").rpartition(b")")[2].split()
            if len(fields) > 19 and fields[0] not in (b"Z", b"X"):
                found.append(Process(int(entry.name), int(fields[1]), int(fields[3]), int(fields[19])))
    return found


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _both(out: str, err: str) -> str:
    return f"\n--- stdout\n{out}\n--- stderr\n{err}"
