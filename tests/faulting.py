"""Faults for tests/mpi/test_faults.py and scripts/fault_matrix: how each is made, and what must come of it.

collbench knows nothing of them: a sitecustomize.py in the ranks' module path changes what a module holds once it is
imported, in the ranks that are named, so that the fault strikes at the same place each time.
"""

import os
import platform
import shlex
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import launching
from collbench.record import Record
from collbench.results import read
from fault_injection import FILL, INJECTION, LOOP, PATCHES

TREE = Path(__file__).parents[1]

SCENARIO = """\
schema = 1
title = "a sweep to be disturbed"
[measure]
timeout = "3 s"
time_budget = "40 ms"
least_time = "1 ms"
warmup_time = "5 ms"
precision = 0.0001
[[sweep]]
backends = ["mpi"]
collectives = ["all_reduce", "broadcast"]
callers = ["compiled", "python"]
sizes = ["8 B", "1 KiB"]
"""
CASES = 8
STRUCK = 3
"""Number of the case that is struck: a python caller's, with three rows before it."""

LIMIT_S = 45.0
"""A launch that takes longer is ended, and has failed the test."""
SLACK_S = 15.0
"""A launch must have ended so long after the fault, and its timeout."""

_TO_LAUNCHER = '"mpirun", "prterun", "mpiexec", "mpiexec.hydra"'


@dataclass(frozen=True)
class Fault:
    """A fault: where it strikes and what it does there, and what `collbench launch` must make of it.

    `status` and `says` are of the row of the struck case (none where empty) and of the line on stderr; `bare` is the
    status under a bare `mpirun collbench run` (None: not tried there).
    """

    name: str
    at: str = ""
    strike: str = "pass"
    code: int | tuple[int, ...] = 1
    status: str | tuple[str, ...] = "failed"
    says: str = ""
    ranks: tuple[int, ...] = (1,)
    rows: int = STRUCK
    mounts: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    bare: tuple[str, ...] | None = None
    quick: bool = False


_KEPT = ("failed", "timeout", "")

FAULTS = (
    Fault("SIGKILL of a rank", "sample", "os.kill(os.getpid(), signal.SIGKILL)", says="rank", bare=_KEPT, quick=True),
    Fault("SIGSEGV in a rank", "prepare", "ctypes.string_at(0)", says="rank", bare=_KEPT),
    Fault(
        "SIGSTOP of a rank",
        "sample",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        4,
        "timeout",
        "rank 1",
        bare=("timeout",),
        quick=True,
    ),
    Fault("SIGSTOP of rank 0", "sample", "os.kill(os.getpid(), signal.SIGSTOP)", 4, "timeout", "rank 0", ranks=(0,)),
    Fault("endless loop in prepare", "prepare", LOOP, 4, "timeout", "rank 1", bare=("timeout",), quick=True),
    # It goes on while its watchdog waits for the other ranks' words.
    Fault("rank that is only slow", "prepare", "time.sleep(4)", 4, "timeout", "rank 1", bare=("timeout",), quick=True),
    Fault("endless loop in verify", "verify", LOOP, 4, "timeout", "rank 1"),
    Fault("raise in prepare", "prepare", 'raise ValueError("injected")', 1, "failed", "", rows=CASES - 1, quick=True),
    Fault(
        "raise while sampling",
        "call",
        'raise ValueError("injected")',
        says="rank 1",
        bare=_KEPT,
        quick=True,
    ),
    Fault("SIGTERM to launch", "delay", 'send(signal.SIGTERM, "launch")', 130, says="SIGTERM", quick=True),
    Fault("SIGINT to launch", "delay", 'send(signal.SIGINT, "launch")', 130, says="SIGINT"),
    Fault("SIGKILL to launch", "delay", 'send(signal.SIGKILL, "launch")', -9, "", ""),
    Fault("SIGTERM to mpirun", "delay", f"send(signal.SIGTERM, {_TO_LAUNCHER})", 130, says="", bare=_KEPT),
    Fault("SIGKILL to mpirun", "delay", f"send(signal.SIGKILL, {_TO_LAUNCHER})", says="SIGKILL", bare=_KEPT),
    Fault(
        "full disk",
        "prepare",
        FILL,
        1,
        ("", "failed"),  # the shorter row of a case that failed may just fit
        "make room",
        (0,),
        mounts="mount -t tmpfs -o size=256k disk $RESULTS",
    ),
    Fault(
        "results turn read-only",
        "prepare",
        'subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "over", os.environ["RESULTS"] + "/run"], check=True)',
        2,
        "",
        "could not append rows",
        (0,),
        mounts="mount -t tmpfs disk $RESULTS",
    ),
    Fault("read-only results folder", "", "", 2, "", "read-only", rows=0, mounts="mount -t tmpfs -o ro disk $RESULTS"),
    Fault(
        "no place for Numba's cache",
        "",
        "",
        0,
        "",
        "",
        rows=CASES,
        mounts="mount --bind $TREE $TREE && mount -o remount,ro,bind $TREE",
        env={"HOME": "/nonexistent"},
    ),
    # Enough for Open MPI, and not for MPICH.
    Fault("16 MiB /dev/shm", "", "", (0, 7), "", "", rows=0, mounts="mount -t tmpfs -o size=16m shm /dev/shm"),
    Fault("4 MiB /dev/shm", "", "", 7, "", "/dev/shm: got", rows=0, mounts="mount -t tmpfs -o size=4m shm /dev/shm"),
    Fault("ranks disagree on the plan", "plan", "pass", 7, "", "made another plan", rows=0, quick=True),
    Fault(
        "scenario edited in mid-run",
        "prepare",
        'Path(os.environ["EDITED"]).write_text("schema = 2")',
        0,
        "",
        "",
        (0,),
        rows=CASES,
    ),
    Fault("rank missing at start", "start", "time.sleep(1000)", 4, "", "rank 1", (0, 1, 2), rows=0, quick=True),
    # MPICH's mpirun does not mind a rank that ends before MPI_Init: the others wait until their time is up.
    Fault("rank exits before MPI_Init", "start", "os._exit(9)", (1, 4), "", "", (0, 1, 2), rows=0),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a launch with a fault."""

    code: int
    seconds: float
    out: str
    err: str
    rows: list[Record]
    processes: list[str]
    files: list[str]

    @property
    def lines(self) -> list[str]:
        """collbench's own lines on stderr."""
        return [line for line in self.err.splitlines() if line.startswith("collbench: ")]

    @property
    def kept(self) -> list[Record]:
        """The rows of finished cases."""
        return [row for row in self.rows if row.status == "ok"]

    @property
    def struck(self) -> Record | None:
        """The row of the case that did not finish."""
        return next((row for row in self.rows if row.status != "ok"), None)


@cache
def can_mount() -> bool:
    """Whether a private mount namespace can be had."""
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except OSError:
        return False


def strike(
    fault: Fault, folder: Path, ranks: int, python: str = sys.executable, *, bare: bool = False, backend: str = "mpi"
) -> Outcome:
    """Run a small sweep in which the fault strikes; nothing that it started is left when this returns."""
    scenario, results, temporary, injection = (folder / name for name in ("s.toml", "results", "tmp", "injection"))
    for made in (results, temporary, injection):
        made.mkdir(parents=True)
    scenario.write_text(SCENARIO.replace('"mpi"', f'"{backend}"'))
    if fault.at:
        module = {"start": "collbench.rank"}.get(fault.at, "collbench.runner")
        (injection / "sitecustomize.py").write_text(
            INJECTION
            % {
                "strike": fault.strike,
                "patch": PATCHES[fault.at].strip(),
                "number": STRUCK + 1,
                "module": module,
                "ranks": fault.ranks,
            }
        )
    run = results / "run"
    if bare:
        words = [str(Path(python).with_name("mpirun")), "-n", str(ranks), python, "-m", "collbench", "run"]
        words[1:1] = ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in library(python) else []
    else:
        words = [python, "-m", "collbench", "launch", "-n", str(ranks)]
    words += [str(scenario), "-o", str(run), "-q"]
    marker = f"{os.environ.get(launching.MARKER, '')}/{uuid.uuid4().hex}"
    environment = {
        "PYTHONPATH": os.pathsep.join([str(injection), str(TREE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "TMPDIR": str(temporary),
        "RESULTS": str(results),
        "TREE": str(TREE),
        "EDITED": str(scenario),
        "STRUCK": str(folder / "struck"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **fault.env,
    }
    if can_mount():
        words = ["unshare", "-m", "sh", "-c", _in_namespace(words, fault.mounts, folder)]
    done = _run(words, environment, folder, marker)
    left = launching.left_behind(marker, grace=4.0)
    outcome = Outcome(
        done.code if done.code < 128 or done.code == 130 else 128 - done.code,
        _seconds(folder, done.seconds),
        done.out,
        done.err,
        _rows(folder / "kept" if can_mount() else run),
        [f"{process.pid} {process.command}" for process in left],
        _files(folder, run if not can_mount() else folder / "kept"),
    )
    launching.kill(left)
    return outcome


def _in_namespace(words: Sequence[str], mounts: str, folder: Path) -> str:
    """A shell script that runs a command with a /dev/shm and mounts of its own, and keeps what is gone after it."""
    return f"""
mount -t tmpfs -o size=1g shm /dev/shm || exit 99
{mounts or ":"} || exit 99
{shlex.join(words)}
code=$?
date +%s.%N > ended
[ $code != 137 ] || sleep 4
cd {shlex.quote(str(folder))}
ls -A /dev/shm > shm
umount results/run 2>/dev/null
[ ! -d results/run ] || cp -r results/run kept
exit $code
"""


def _run(words: Sequence[str], environment: Mapping[str, str], folder: Path, marker: str) -> launching.CompletedRun:
    before = os.environ.get(launching.MARKER)
    os.environ[launching.MARKER] = marker
    try:
        return launching.run(words, timeout=LIMIT_S, env=environment, cwd=folder)
    finally:
        os.environ.pop(launching.MARKER)
        if before is not None:
            os.environ[launching.MARKER] = before


def _seconds(folder: Path, whole: float) -> float:
    """How long the launch went on after the fault; where none struck, or nobody wrote down when it ended, all of it."""
    try:
        return float((folder / "ended").read_text()) - float((folder / "struck").read_text())
    except OSError:
        return whole


def _rows(run: Path) -> list[Record]:
    return read(run) if (run / "results.csv").exists() else []


def _files(folder: Path, run: Path) -> list[str]:
    """What must not be there afterwards: shared memory, temporary files, halves of files."""
    shared = (folder / "shm").read_text().split() if (folder / "shm").exists() else []
    temporary = [path.name for path in (folder / "tmp").iterdir() if not path.name.startswith("collbench-numba")]
    halves = [path.name for path in run.glob(".*")] if run.exists() else []
    shared = [name for name in shared if not name.startswith("emugpu-")]  # the emulator's own
    return [*(f"/dev/shm/{name}" for name in shared), *(f"tmp/{name}" for name in temporary), *halves]


@cache
def library(python: str) -> str:
    """Name an environment's Python and MPI."""
    code = (
        "import sys; from mpi4py import MPI; print(sys.version.split()[0], MPI.Get_library_version().split(', pa')[0])"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    number, _, name = done.stdout.splitlines()[0].strip("\0").partition(" ")
    return f"{' '.join(name.partition(', pa')[0].replace('Version:', '').split())} (Python {number})"


def machine() -> str:
    """Name the day, the processor and the system."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    cores = len(os.sched_getaffinity(0))
    return f"{datetime.now(UTC):%Y-%m-%d}, {cores} cores of {model}, {platform.system()} {platform.release()}"


def unmet(fault: Fault, outcome: Outcome, *, bare: bool = False) -> list[str]:
    """Say which expectations a launch did not meet."""
    problems = []
    status = outcome.struck.status if outcome.struck else ""
    if bare:
        if outcome.code == 0:
            problems.append("exit code 0")
        if fault.bare is not None and status not in fault.bare:
            problems.append(f"row {status!r}, expected one of {fault.bare}")
    else:
        if outcome.code not in ((fault.code,) if isinstance(fault.code, int) else fault.code):
            problems.append(f"exit code {outcome.code}, expected {fault.code}")
        if status not in ((fault.status,) if isinstance(fault.status, str) else fault.status):
            problems.append(f"row {status!r}, expected {fault.status!r}")
        told = [line for line in outcome.lines if fault.says.lower() in line.lower()]
        one_line = fault.code not in (0, -9) and fault.status in ("failed", "timeout") and fault.rows < CASES - 1
        if one_line and len(outcome.lines) != 1:
            problems.append(f"{len(outcome.lines)} lines of collbench, expected one")
        if fault.says and len(told) != 1:
            problems.append(f"{len(told)} lines that name {fault.says!r}, expected one")
    if outcome.struck is not None and not outcome.struck.reason:
        problems.append("a row without a reason")
    if not fault.rows <= len(outcome.kept) <= CASES:
        problems.append(f"{len(outcome.kept)} rows kept, expected {fault.rows} at least")
    if fault.at and fault.rows < CASES - 1 and len(outcome.kept) == CASES:
        problems.append("the sweep went on to its end")
    if len({row.case_id for row in outcome.rows}) < len(outcome.rows):
        problems.append("a case with two rows")
    if fault.at and fault.code and fault.rows < CASES - 1 and outcome.seconds > 3 + SLACK_S:
        problems.append(f"{outcome.seconds:.1f} s")
    # Under a bare mpirun that kills all ranks nobody is left to take shared memory away.
    if outcome.processes or (outcome.files and not bare):
        problems.append("something left behind")
    if "Traceback" in outcome.err and "raise" not in fault.name:
        problems.append("a traceback")
    return problems
