"""What does `collbench run` report beside a C program that makes the same calls of NCCL, on one device?

nccl_program.c and `collbench run` (mode throughput) take turns, each in a process of its own, for the same sizes, the
same time a size and batches of the same length; which goes first changes from round to round. A process gives one
median a size; compared are the medians over rounds. One rank sends nothing, so small sizes show what the loop costs.

    python -m benchmarks.against_nccl_program [--rounds 5] [--sizes "8 B" ...]
"""

import argparse
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from collbench.devices import facts
from collbench.results import read
from collbench.units import format_duration, format_size, parse_size

CRITERION = 1.05
_TIMEOUT_S = 120.0
_FIRST_BATCH = 1
"""Where the C program goes first in a round it takes the batches of the round before."""

_LOADED = """\
from cupy.cuda import nccl
nccl.get_version()
print(next((line.split()[-1] for line in open("/proc/self/maps") if "/libnccl.so" in line), "libnccl.so.2"))
"""
_UUID = "from collbench.backends.cuda import device_uuid; print(device_uuid(0))"


@dataclass(frozen=True)
class Figure:
    """What one process gave for one size: seconds an operation, and their part until the last call had returned."""

    bytes: int
    batch: int
    p50_s: float
    enqueue_p50_s: float
    samples: int
    library: str = ""


def compiled(path: Path) -> None:
    """Compile nccl_program.c, with what C compiler there is."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        raise RuntimeError("cc: got none on PATH, expected a C compiler; install gcc or clang")
    words = [compiler, "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra"]
    words += [str(harness.FOLDER / "nccl_program.c"), "-o", str(path), "-ldl"]
    print("$", shlex.join(words), flush=True)
    subprocess.run(words, check=True, timeout=60)


def said(program: str) -> str:
    """Run a line of Python in a process of its own, as the library must not be loaded here; what it prints."""
    return harness.run([sys.executable, "-c", program], timeout_s=_TIMEOUT_S).out.strip()


def of_c(program: Path, library: str, seconds: float, batches: dict[int, int]) -> list[Figure]:
    """Run the C program once; a figure for each size."""
    sizes = [f"{size}:{batch}" for size, batch in batches.items()]
    out = harness.run([program, library, f"{seconds:g}", *sizes], timeout_s=_TIMEOUT_S).out
    version = next((line for line in out.splitlines() if line.isdigit()), "")
    figures = []
    for found in re.finditer(r"^(\d+) (\d+) ([\d.]+) ([\d.]+)$", out, re.MULTILINE):  # NCCL may write there as well
        size, samples, whole_s, queued_s = int(found[1]), int(found[2]), float(found[3]) * 1e-9, float(found[4]) * 1e-9
        figures.append(Figure(size, batches[size], whole_s, queued_s, samples, version))
    if [figure.bytes for figure in figures] != list(batches):
        raise RuntimeError(f"nccl_program: got the sizes {[f.bytes for f in figures]}, expected {list(batches)}")
    return figures


def of_collbench(scenario: Path, folder: Path) -> list[Figure]:
    """Run collbench once; a figure for each size."""
    with tempfile.TemporaryDirectory(dir=folder) as output:
        words: list[str | Path] = [sys.executable, "-m", "collbench", "run", scenario, "--quiet", "--output", output]
        harness.run(words, timeout_s=_TIMEOUT_S)
        rows = read(Path(output))
    for row in rows:
        if row.status != "ok":
            raise RuntimeError(f"collbench: got a row that is {row.status} ({row.reason}), expected ok")
    return [
        Figure(
            row.requested_bytes or 0,
            row.batch or 1,
            row.time_p50_s or 0.0,
            row.enqueue_p50_s or 0.0,
            (row.iterations or 0) // (row.batch or 1),
            row.library or "",
        )
        for row in rows
    ]


def written(folder: Path, sizes: Sequence[int], seconds: float) -> Path:
    """Write a scenario with one case a size, whose sampling ends by time alone like the C program's."""
    scenario = folder / "against_nccl_program.toml"
    shown = ", ".join(f'"{size} B"' for size in sizes)
    scenario.write_text(
        "schema = 1\n[measure]\nmodes = ['throughput']\nprecision = 0.000001\nleast_iterations = 9\n"
        f"most_iterations = 100000000\ntime_budget = '{seconds:g} s'\nleast_time = '{seconds:g} s'\n"
        f"warmup_time = '0.1 s'\n[[sweep]]\nbackends = ['nccl']\ncollectives = ['all_reduce']\nsizes = [{shown}]\n",
        encoding="utf-8",
    )
    return scenario


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds, print the table, save the figures; 1 where a ratio misses the criterion."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[8, 1 << 16, 1 << 24])
    parser.add_argument("--rounds", type=int, default=5, help="processes of each program")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a size is sampled in a process")
    parser.add_argument("--name", default="against_nccl_program", help="of the file, without .json")
    parser.add_argument("--output", type=Path, default=harness.FOLDER / "results", help="folder of the file")
    options = parser.parse_args(arguments)
    busy = harness.busy_share()
    found: dict[str, list[list[Figure]]] = {"c": [], "collbench": []}
    batches = dict.fromkeys(options.sizes, _FIRST_BATCH)
    with tempfile.TemporaryDirectory() as name:
        folder, program = Path(name), Path(name, "nccl_program")
        compiled(program)
        scenario, library = written(folder, options.sizes, options.seconds), said(_LOADED)
        for number in range(options.rounds):
            for turn in ("c", "collbench") if number % 2 else ("collbench", "c"):
                if turn == "c":
                    found["c"].append(of_c(program, library, options.seconds, batches))
                else:
                    figures = of_collbench(scenario, folder)
                    batches = {figure.bytes: figure.batch for figure in figures}
                    found["collbench"].append(figures)
            print(f"\rround {number + 1} of {options.rounds}", end="", flush=True)
    print()
    return _report(options, found, max(busy, harness.busy_share()))


def _report(options: argparse.Namespace, found: dict[str, list[list[Figure]]], busy: float) -> int:
    cases = []
    for position, size in enumerate(options.sizes):
        of = {name: [figures[position] for figures in rounds] for name, rounds in found.items()}
        medians = {name: [figure.p50_s for figure in figures] for name, figures in of.items()}
        ratio = harness.ratio_of_medians(medians["collbench"], medians["c"])
        cases.append({
            "collective": "all_reduce",
            "bytes": size,
            "batch": [figure.batch for figure in of["collbench"]],
            "ratio": asdict(ratio),
            "within": ratio.value <= CRITERION,
            "p50_s": medians,
            "enqueue_p50_s": {name: [figure.enqueue_p50_s for figure in figures] for name, figures in of.items()},
            "samples": {name: [figure.samples for figure in figures] for name, figures in of.items()},
        })  # fmt: skip
    header = ("size", "batch", "C", "collbench", "ratio", "95 %", "queued C", "collbench", f"<= {CRITERION}")
    harness.table(header, [_row(case) for case in cases])
    device = facts(said(_UUID))
    content = {
        "question": "collbench run (throughput) over a C program with the same calls of NCCL, one rank",
        "criterion": f"reported; ratio at most {CRITERION} hoped for",
        "device": device,
        "nccl": {"c": found["c"][0][0].library, "collbench": found["collbench"][0][0].library},
        "rounds": options.rounds,
        "seconds_a_size": options.seconds,
        **harness.place("", busy),
        "cases": cases,
    }
    harness.save(options.name, content, options.output)
    return 0 if all(case["within"] for case in cases) else 1


def _row(case: dict[str, Any]) -> tuple[str, ...]:
    ratio = harness.Estimate(**case["ratio"])
    return (
        format_size(case["bytes"]),
        f"{statistics.median(case['batch']):.0f}",
        *(format_duration(statistics.median(case["p50_s"][name])) for name in ("c", "collbench")),
        f"{ratio.value:.3f}",
        ratio.bounds,
        *(format_duration(statistics.median(case["enqueue_p50_s"][name])) for name in ("c", "collbench")),
        "yes" if case["within"] else "NO",
    )


if __name__ == "__main__":
    sys.exit(main())
