"""How soon does collbench measure, and what does a rank import for it?

Launched in turn, with warm caches: `mpirun -n 4 python -c 'from mpi4py import MPI; import numpy'`, and `mpirun -n 4
collbench run` with one tiny case, whose first row is waited for on disk (which comes after the first sample). Then
`collbench --help`, and a launch whose ranks write down what they import.

    python -m benchmarks.start_up [--repetitions 10] [-n 4]
"""

import argparse
import importlib.util
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from benchmarks import harness
from collbench.results import read

MOST_LATER_S = 1.0
"""The first row may be on disk so much later than the bare launch ends."""
MOST_HELP_S = 0.3
UNWANTED = ("pandas", "plotly", "scipy")
UNWANTED_BEYOND_RANK_0 = ("pydantic", "pydantic_core")

_TIMEOUT_S = 120.0
_BARE = "from mpi4py import MPI; import numpy"
_SCENARIO = """\
schema = 1
[measure]
least_time = "0 s"
time_budget = "1 ms"
warmup_time = "0 s"
[[sweep]]
backends = ["mpi"]
collectives = ["all_reduce"]
sizes = ["8 B"]
"""
# Each rank's own file, named by its number: the launchers mix the ranks' outputs.
_KEEP_ERRORS = 'exec "$@" 2>"$IMPORTS/${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${PMIX_RANK:-0}}}"'


@dataclass(frozen=True)
class Start:
    """One launch of collbench, in seconds since it was started."""

    first_case_s: float
    """When the first case began, by its row (to a millisecond)."""
    first_row_s: float
    """When its row was on disk."""
    end_s: float


def bare(options: argparse.Namespace) -> float:
    """Launch ranks that only import; how many seconds that takes."""
    command = harness.launch_command(options.ranks, [sys.executable, "-c", _BARE], options.launcher)
    return harness.run(command, timeout_s=_TIMEOUT_S).seconds


def collbench(folder: Path, options: argparse.Namespace) -> Start:
    """Launch collbench with its one case."""
    with tempfile.TemporaryDirectory(dir=folder) as output:
        results, seen = Path(output, "results.csv"), list[float]()

        def watch() -> None:
            if not seen and results.exists() and results.read_bytes().count(b"\n") >= 2:
                seen.append(time.time())

        command = harness.launch_command(options.ranks, _run_words(folder, output), options.launcher)
        finished = harness.run(command, timeout_s=_TIMEOUT_S, watch=watch)
        (row,) = read(results)
    if row.status != "ok" or row.started_at is None:
        raise RuntimeError(f"collbench run: got status {row.status}, expected ok; {row.reason}")
    began = datetime.fromisoformat(row.started_at).timestamp()
    return Start(began - finished.began, seen[0] - finished.began, finished.seconds)


def _run_words(folder: Path, output: str | Path, *options: str) -> list[str | Path]:
    scenario = folder / "start_up.toml"
    scenario.write_text(_SCENARIO, encoding="utf-8")
    return [sys.executable, *options, "-m", "collbench", "run", scenario, "--quiet", "--output", output]


def imports(folder: Path, options: argparse.Namespace) -> list[list[str]]:
    """Launch collbench once more; for each rank, the modules that it imported or tried to import."""
    kept = folder / "imports"
    kept.mkdir()
    words = ["sh", "-c", _KEEP_ERRORS, "sh", *_run_words(folder, folder / "run", "-X", "importtime")]
    command = harness.launch_command(options.ranks, words, options.launcher)
    harness.run(command, timeout_s=_TIMEOUT_S, more={"IMPORTS": str(kept)})
    line = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s*(\S+)$", re.MULTILINE)
    return [line.findall((kept / str(rank)).read_text(encoding="utf-8")) for rank in range(options.ranks)]


def unwanted(modules: Iterable[str], packages: Iterable[str]) -> list[str]:
    """Return those of the packages that are among the modules; the import of what is not installed was only tried."""
    imported = {module.partition(".")[0] for module in modules}
    return sorted(package for package in packages if package in imported and importlib.util.find_spec(package))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the repetitions, print and save what was found; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("-n", "--ranks", type=int, default=4)
    parser.add_argument("--launcher", default="")
    parser.add_argument("--name", default="", help="of the file in benchmarks/results")
    options = parser.parse_args(arguments)
    busy = harness.busy_share()
    bares, starts, helps = list[float](), list[Start](), list[float]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        modules = imports(folder, options)  # warms the caches as well
        bare(options)
        for number in range(options.repetitions):
            if number % 2:
                starts.append(collbench(folder, options))
                bares.append(bare(options))
            else:
                bares.append(bare(options))
                starts.append(collbench(folder, options))
            helps.append(harness.run([sys.executable, "-m", "collbench", "--help"], timeout_s=_TIMEOUT_S).seconds)
        library = _library(folder / "run")
    return _report(options, bares, starts, helps, modules, library, max(busy, harness.busy_share()))


def _library(run: Path) -> str:
    return str(json.loads((run / "environment.json").read_text(encoding="utf-8"))["mpi_library"])


def _report(
    options: argparse.Namespace,
    bares: Sequence[float],
    starts: Sequence[Start],
    helps: Sequence[float],
    modules: Sequence[Sequence[str]],
    library: str,
    busy: float,
) -> int:
    times = {
        "bare_end_s": list(bares),
        "first_case_s": [start.first_case_s for start in starts],
        "first_row_s": [start.first_row_s for start in starts],
        "end_s": [start.end_s for start in starts],
        "help_s": list(helps),
    }
    estimates = {name: harness.median_estimate(values) for name, values in times.items()}
    later_s = estimates["first_row_s"].value - estimates["bare_end_s"].value
    found = [unwanted(one, (*UNWANTED, *(UNWANTED_BEYOND_RANK_0 if rank else ()))) for rank, one in enumerate(modules)]
    harness.table(
        ("what", "median s", "95 %"),
        [(name.removesuffix("_s"), f"{one.value:.3f}", one.bounds) for name, one in estimates.items()],
    )
    verdicts = {
        f"first row at most {MOST_LATER_S:g} s after the bare launch's end: {later_s:+.3f} s": later_s <= MOST_LATER_S,
        f"collbench --help under {MOST_HELP_S:g} s": estimates["help_s"].value < MOST_HELP_S,
        f"no rank imports {', '.join(UNWANTED)}, and only rank 0 pydantic: {found}": not any(found),
    }
    absent = [package for package in UNWANTED if not importlib.util.find_spec(package)]
    for sentence, holds in verdicts.items():
        print("yes" if holds else "NO ", sentence)
    if absent:
        print(f"not installed here, so nobody could import it: {', '.join(absent)}")
    content = {
        "question": "start-up of collbench beside a bare launch that imports mpi4py and numpy",
        "criterion": f"first_row_s - bare_end_s <= {MOST_LATER_S:g}; help_s < {MOST_HELP_S:g}; unwanted empty",
        "ranks": options.ranks,
        "repetitions": options.repetitions,
        **harness.place(library, busy),
        "later_s": later_s,
        "medians": {name: asdict(one) for name, one in estimates.items()},
        "times": {name: [round(value, 4) for value in values] for name, values in times.items()},
        "unwanted": found,
        "not_installed": absent,
        "modules": [len(one) for one in modules],
    }
    harness.save(options.name or f"start_up-{harness.launcher_kind(options.launcher)}", content)
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
