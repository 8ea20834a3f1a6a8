"""What does `collbench run` report beside a C program of its own, each in processes of its own?

c_program.c and `collbench run` are launched in turn, each for the same sizes and the same time a size; which goes first
changes from round to round. A launch gives one median a size; compared are the medians over launches. Beside them is
the median of the rounds' own ratios: where the machine changes its pace for a while, both launches of a round share it.

    python -m benchmarks.against_c_program [--rounds 25] [--sizes "8 B" ...]
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from collbench.record import Record
from collbench.results import read
from collbench.units import format_duration, format_size, parse_size

CRITERION = 1.05
_LAUNCH_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Figure:
    """What one launch gave for one size."""

    bytes: int
    p50_s: float
    samples: int
    library: str = ""


Program = Callable[[], list[Figure]]
"""Launches a program once; a figure for each size, in order."""


def c_program(path: Path, options: argparse.Namespace) -> Program:
    """Compile c_program.c; how it is launched."""
    harness.build("c_program.c", path)
    words: list[str | Path] = [path, f"{options.seconds:g}", *map(str, options.sizes)]
    command = harness.launch_command(options.ranks, words, options.launcher)

    def launch() -> list[Figure]:
        rows = [line.split() for line in harness.run(command, timeout_s=_LAUNCH_TIMEOUT_S).out.splitlines()]
        return [Figure(int(size), float(p50_ns) * 1e-9, int(samples)) for size, samples, p50_ns in rows]

    return launch


def collbench(folder: Path, options: argparse.Namespace) -> Program:
    """Write a scenario with one case a size, whose sampling ends by time alone like the C program's; how it is run."""
    scenario = folder / "against_c_program.toml"
    sizes = ", ".join(f'"{size} B"' for size in options.sizes)
    scenario.write_text(
        "schema = 1\n[measure]\nprecision = 0.000001\nleast_iterations = 9\nmost_iterations = 100000000\n"
        f'time_budget = "{options.seconds:g} s"\nleast_time = "{options.seconds:g} s"\n'
        f'[[sweep]]\nbackends = ["mpi"]\ncollectives = ["all_reduce"]\nsizes = [{sizes}]\n',
        encoding="utf-8",
    )

    def launch() -> list[Figure]:
        with tempfile.TemporaryDirectory(dir=folder) as output:
            words: list[str | Path] = [
                sys.executable,
                "-m",
                "collbench",
                "run",
                scenario,
                "--quiet",
                "--output",
                output,
            ]
            harness.run(harness.launch_command(options.ranks, words, options.launcher), timeout_s=_LAUNCH_TIMEOUT_S)
            rows = read(Path(output))
        return [
            Figure(row.requested_bytes or 0, row.time_p50_s or 0.0, row.iterations or 0, row.library or "")
            for row in rows
        ]

    return launch


def _figure(row: Record) -> Figure:
    return Figure(row.requested_bytes or 0, row.time_p50_s or 0.0, row.iterations or 0, row.library or "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds, print the table, save the figures; 1 where a ratio misses the criterion."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[8, 1 << 16, 1 << 24])
    parser.add_argument("--rounds", type=int, default=25, help="launches of each program")
    parser.add_argument("--seconds", type=float, default=0.25, help="how long a size is sampled in a launch")
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--launcher", default="")
    parser.add_argument("--name", default="", help="of the file in benchmarks/results")
    options = parser.parse_args(arguments)
    busy = harness.busy_share()
    found: dict[str, list[list[Figure]]] = {"c": [], "collbench": []}
    with tempfile.TemporaryDirectory() as folder:
        programs = {"c": c_program(Path(folder, "c_program"), options), "collbench": collbench(Path(folder), options)}
        for number in range(options.rounds):
            for name in sorted(programs, reverse=bool(number % 2)):
                figures = programs[name]()
                if [figure.bytes for figure in figures] != options.sizes:
                    raise RuntimeError(f"{name}: got the sizes {[f.bytes for f in figures]}, expected {options.sizes}")
                found[name].append(figures)
            print(f"\rround {number + 1} of {options.rounds}", end="", flush=True)
    print()
    return _report(options, found, max(busy, harness.busy_share()))


def _report(options: argparse.Namespace, found: dict[str, list[list[Figure]]], busy: float) -> int:
    cases = []
    for position, size in enumerate(options.sizes):
        medians = {name: [figures[position].p50_s for figures in launches] for name, launches in found.items()}
        ratio = harness.ratio_of_medians(medians["collbench"], medians["c"])
        rounds = [k / c for k, c in zip(medians["collbench"], medians["c"], strict=True)]
        samples = {name: [figures[position].samples for figures in launches] for name, launches in found.items()}
        cases.append({
            "collective": "all_reduce",
            "bytes": size,
            "ratio": asdict(ratio),
            "ratio_of_rounds": asdict(harness.median_estimate(rounds)),
            "within": ratio.value <= CRITERION,
            "p50_s": medians,
            "samples": samples,
        })  # fmt: skip
    header = (
        "size",
        "C",
        "collbench",
        "ratio",
        "95 %",
        "by round",
        "95 %",
        "samples C",
        "collbench",
        f"<= {CRITERION}",
    )
    harness.table(header, [_row(case) for case in cases])
    content = {
        "question": "collbench run over a C program: ratio of medians over launches, with its bootstrap interval",
        "criterion": f"reported; ratio at most {CRITERION} hoped for",
        "ranks": options.ranks,
        "rounds": options.rounds,
        "seconds_a_size": options.seconds,
        **harness.place(found["collbench"][0][0].library, busy),
        "cases": cases,
    }
    harness.save(options.name or f"against_c_program-{harness.launcher_kind(options.launcher)}", content)
    return 0 if all(case["within"] for case in cases) else 1


def _row(case: dict[str, Any]) -> tuple[str, ...]:
    ratio, by_round = harness.Estimate(**case["ratio"]), harness.Estimate(**case["ratio_of_rounds"])
    return (
        format_size(case["bytes"]),
        *(format_duration(statistics.median(case["p50_s"][name])) for name in ("c", "collbench")),
        f"{ratio.value:.3f}",
        ratio.bounds,
        f"{by_round.value:.3f}",
        by_round.bounds,
        *(f"{statistics.median(case['samples'][name]):.0f}" for name in ("c", "collbench")),
        "yes" if case["within"] else "NO",
    )


if __name__ == "__main__":
    sys.exit(main())
