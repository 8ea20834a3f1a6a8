"""Run programs for the tests, on one process or several ranks: each within a time limit, none left behind."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Literal, Self

RANKS = (1, 2, 3, 4)

# Names the test, and below it the run, in the environment of all that it starts. Launchers give ranks process groups
# (Open MPI) or sessions (MPICH) of their own, and orphans get another parent, but the environment stays.
MARKER = "TEST_OF_COLLBENCH"

SEGMENTS = (b"sm_segment.", b"vader_segment.", b"mpich_shm_")  # of Open MPI 5 and 4, of MPICH

GRACE = 5.0  # seconds from SIGTERM to the launcher to SIGKILL to all that it started


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
    """A process; `started` (clock ticks since boot) tells it from a later one of the same number."""

    pid: int
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
    timeout: float = 100,
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
    SIGTERM, then it and all that it started SIGKILL, and AssertionError tells both outputs.
    """
    marker = f"{os.environ.get(MARKER, '')}/{uuid.uuid4().hex}"
    merged = {name: value for name, value in {**os.environ, **(env or {}), MARKER: marker}.items() if value is not None}
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
            _stop(process, marker)
            text = " ".join(str(word) for word in command)
            raise AssertionError(f"still running after {timeout} s: {text}{_both(_text(out), _text(err))}") from None
        except BaseException:
            _stop(process, marker)
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


@cache
def emulated() -> bool:
    """Whether the visible CUDA devices are emulated ones (tests/emugpu), which can all that NCCL and CUDA have."""
    probe = (
        "import ctypes; driver = ctypes.CDLL('libcuda.so.1'); name = ctypes.create_string_buffer(100)\n"
        "print('' if driver.cuInit(0) or driver.cuDeviceGetName(name, 100, 0) else name.value.decode())"
    )
    completed = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False)
    return "emulated" in completed.stdout.lower()


def one_device() -> dict[str, str]:
    """The setting that shows the first of the visible devices alone, whichever a job has been given."""
    return {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}


def left_behind(marker: str, grace: float = 2.0) -> list[Process]:
    """List the processes under a marker that still run after `grace` seconds."""
    deadline = time.monotonic() + grace
    while True:
        remaining = _marked(marker)
        if not remaining or time.monotonic() > deadline:
            return remaining
        time.sleep(0.05)


def kill(processes: Iterable[Process]) -> None:
    """Send SIGKILL to those that still run."""
    for process in set(_processes()) & set(processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _stop(process: subprocess.Popen[bytes], marker: str) -> None:
    # Whoever is killed, by us or by the launcher, leaves its shared memory behind.
    segments = {segment for p in _marked(marker) for segment in _segments(p.pid)}
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    while remaining := _marked(marker):  # again, since what is killed may just have started another
        kill(remaining)
    process.wait()
    for segment in segments:
        segment.unlink(missing_ok=True)


def _marked(marker: str) -> list[Process]:
    entry = f"{MARKER}={marker}".encode()
    return [
        process
        for process in _processes()
        if process.pid != os.getpid()
        and any(variable.startswith(entry) for variable in _read(process.pid, "environ").split(b"\0"))
    ]


def _processes() -> list[Process]:
    """Read /proc, without the zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # proc(5): "pid (name) state parent group session ...", start time as field 22; the name may hold anything.
            fields = _read(int(entry.name), "stat").rpartition(b")")[2].split()
            if len(fields) > 19 and fields[0] not in (b"Z", b"X"):
                found.append(Process(int(entry.name), int(fields[19])))
    return found


def _segments(pid: int) -> set[Path]:
    """List the files that the MPI of a process keeps in /dev/shm."""
    names = (line.rpartition(b"/dev/shm/")[2] for line in _read(pid, "maps").splitlines() if b"/dev/shm/" in line)
    return {Path("/dev/shm") / name.decode() for name in names if name.startswith(SEGMENTS)}


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
