"""Does collbench's compiled loop cost what a C loop costs? Both run in one process, on one set of buffers.

c_loop.c is compiled as a shared library and loaded beside collbench. Blocks of samples of the two loops alternate; a
sample is the largest duration over ranks, a block's figure its median, and a pair's ratio collbench's figure over C's.
Which loop goes first changes from pair to pair, and the first pair is thrown away. Beside the medians, which move by
whole steps of the clock, stand the means of each block's middle half, which show less than a step.

    python -m benchmarks.against_c_shared [--collectives all_reduce ...] [--sizes "8 B" ...]
"""

import argparse
import ctypes
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from collbench.backends.base import BoundCall
from collbench.backends.mpi import Mpi
from collbench.collectives import collective_of
from collbench.dtypes import DTYPES
from collbench.pattern import Pattern
from collbench.plan import Case, expand
from collbench.scenario import Scenario, Sweep
from collbench.start import start_world, stop_world
from collbench.stats import median_of
from collbench.timing import loop_of
from collbench.units import format_duration, format_size, parse_size
from collbench.verify import Check
from collbench.world import World

CRITERION = 1.05
_BLOCK_S = 0.02
"""A block takes about this long: far above the cost of changing over, and short against most noise, so that the two
blocks of a pair share it."""
_LEAST_SAMPLES = 9
_CALIBRATION_S = 0.1
_TIMEOUT_S = 900.0

Int64s = NDArray[np.int64]
Block = Callable[[int], Int64s]
"""Runs so many samples; their durations on this rank in nanoseconds."""


def c_block(path: Path, bound: BoundCall) -> Block:
    """Return the loop of c_loop.c for a bound call: one MPI function after MPI_Barrier, on one set of buffers."""
    library = ctypes.CDLL(str(path))
    library.address_of.restype = ctypes.c_uint64
    library.run_loop.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p]
    if bound.run.shape[:2] != (1, 1) or bound.meet.shape[:2] != (1, 1) or bound.finish.shape[1] != 0:
        raise RuntimeError(f"{bound.library_call}: got several calls a sample, expected one after one barrier")
    entry = library.find_function(bound.library_call.encode())
    if entry < 0:
        raise RuntimeError(f"c_loop.c: got no line for {bound.library_call}, expected one; add it to FUNCTIONS")
    call, barrier = bound.run[0, 0].copy(), bound.meet[0, 0].copy()
    if (library.address_of(entry), library.address_of(-1)) != (int(call[0]), int(barrier[0])):
        raise RuntimeError(f"{bound.library_call}: the C loop and collbench call different MPI functions")

    def block(samples: int) -> Int64s:
        durations = np.empty(samples, np.int64)
        words, meeting = call[2:], barrier[2:]
        failed = library.run_loop(entry, words.ctypes.data, meeting.ctypes.data, samples, durations.ctypes.data)
        if failed:
            raise RuntimeError(f"{bound.library_call}: got status {failed} in the C loop, expected 0")
        return durations

    return block


def collbench_block(bound: BoundCall) -> Block:
    """Return collbench's own loop for a bound call."""
    loop = loop_of(bound)

    def block(samples: int) -> Int64s:
        stamps = np.empty((samples, 3), np.int64)
        if status := loop(0, 1, stamps):
            raise RuntimeError(f"{bound.library_call}: got status {status} in collbench's loop, expected 0")
        durations: Int64s = stamps[:, 2] - stamps[:, 0]
        return durations

    return block


def compare(world: World, block_of: dict[str, Block], pairs: int) -> dict[str, Any]:
    """Run both loops in turn on all ranks; on rank 0 each one's figures of its blocks, in seconds."""
    samples = _calibrate(world, block_of["collbench"])
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in block_of}
    for pair in range(pairs + 1):
        for name in sorted(block_of, reverse=bool(pair % 2)):
            whole = world.gather_array(block_of[name](samples))
            if whole is not None and pair > 0:
                ordered = np.sort(whole.max(axis=0)) * 1e-9
                middle = ordered[samples // 4 : samples - samples // 4]
                figures[name].append((median_of(ordered), float(np.mean(middle))))
    return {"samples": samples, "blocks_s": figures}


def _calibrate(world: World, block: Block) -> int:
    """Warm up for a while; how many samples a block has, the same on all ranks."""
    began, samples, enough, sample_s = time.monotonic(), 1, 0, math.inf
    while not enough:
        start = time.monotonic()
        block(samples)
        end = time.monotonic()
        sample_s = min(sample_s, (end - start) / samples)  # one that was interrupted says nothing
        decision = np.array([samples if end - start > _BLOCK_S / 2 else 2 * samples, 0], np.int64)
        if end - began > _CALIBRATION_S:
            decision[1] = max(_LEAST_SAMPLES, round(_BLOCK_S / sample_s))
        samples, enough = (int(value) for value in world.broadcast_array(decision))
    return enough


def rank(library: Path, output: Path, collectives: Sequence[str], sizes: Sequence[int], pairs: int) -> None:
    """Be one rank of a launch: measure every case, and check the data that either loop leaves."""
    world = start_world()
    backend = Mpi(world)
    sweep = Sweep(backends=("mpi",), collectives=tuple(collectives), sizes=tuple(sizes))
    found = []
    for case in expand(Scenario(name="against_c", title="against_c", sweeps=(sweep,))).cases:
        found.append(_measure(case, backend, world, library, pairs))
        if world.rank == 0:
            output.write_text(json.dumps({"library": world.library, "cases": found}), encoding="utf-8")
    backend.close()
    stop_world(world)


def _measure(case: Case, backend: Mpi, world: World, library: Path, pairs: int) -> dict[str, Any]:
    if problem := backend.refuse(case):
        raise RuntimeError(problem)
    dtype = DTYPES[case.dtype]
    shape = collective_of(case.collective, case.pattern, world.size).shape(
        case.requested_bytes, dtype.itemsize, world.size
    )
    layout = backend.layout(case, shape.count)
    bound = backend.bind(case, shape.count, layout)
    check = Check(world.rank, layout, Pattern(dtype, case.operation or "move", world.size, 0))
    (buffers,) = bound.buffers
    block_of = {"c": c_block(library, bound), "collbench": collbench_block(bound)}
    check.prepare(buffers)
    found = compare(world, block_of, pairs)
    for name, block in block_of.items():
        check.prepare(buffers)
        block(1)
        if damage := check.damage(buffers):
            raise RuntimeError(f"{case.label}, {name}: {damage.on(world.rank)}")
    bound.close()
    return {"collective": case.collective, "bytes": case.requested_bytes, **found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the launches, print the table, save the figures; 1 where a ratio misses the criterion."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--collectives", nargs="+", default=["all_reduce"])
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[8, 1 << 16, 1 << 24])
    parser.add_argument("--launches", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=30, help="pairs of blocks a size and launch")
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--launcher", default="")
    parser.add_argument("--name", default="", help="of the file in benchmarks/results")
    parser.add_argument("--as-rank", dest="rank", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.rank:
        library, output = options.rank
        rank(library, output, options.collectives, options.sizes, options.pairs)
        return 0
    busy = harness.busy_share()
    launches = []
    with tempfile.TemporaryDirectory() as folder:
        library, output = Path(folder, "c_loop.so"), Path(folder, "launch.json")
        harness.build("c_loop.c", library, "-shared", "-fPIC")
        program: list[str | Path] = [sys.executable, "-m", "benchmarks.against_c_shared", "--as-rank", library, output]
        program += ["--pairs", str(options.pairs), "--collectives", *options.collectives]
        program += ["--sizes", *(f"{size} B" for size in options.sizes)]
        for number in range(options.launches):
            command = harness.launch_command(options.ranks, program, options.launcher)
            seconds = harness.run(command, timeout_s=_TIMEOUT_S).seconds
            launches.append(json.loads(output.read_text(encoding="utf-8")))
            print(f"launch {number + 1} of {options.launches}: {seconds:.1f} s", flush=True)
    return _report(options, launches, max(busy, harness.busy_share()))


def _report(options: argparse.Namespace, launches: list[dict[str, Any]], busy: float) -> int:
    cases = []
    for position, first in enumerate(launches[0]["cases"]):
        blocks = [launch["cases"][position]["blocks_s"] for launch in launches]
        ratios = [[k[0] / c[0] for k, c in zip(one["collbench"], one["c"], strict=True)] for one in blocks]
        finer = [k[1] / c[1] for one in blocks for k, c in zip(one["collbench"], one["c"], strict=True)]
        cases.append({
            "collective": first["collective"],
            "bytes": first["bytes"],
            "samples_of_a_block": [launch["cases"][position]["samples"] for launch in launches],
            "c_p50_s": statistics.median(p50 for one in blocks for p50, _ in one["c"]),
            "collbench_p50_s": statistics.median(p50 for one in blocks for p50, _ in one["collbench"]),
            "ratio": asdict(estimate := harness.median_estimate([ratio for one in ratios for ratio in one])),
            "ratio_of_midmeans": asdict(harness.median_estimate(finer)),
            "ratio_of_launches": [statistics.median(one) for one in ratios],
            "within": estimate.value <= CRITERION,
            "block_ratios": [[round(ratio, 4) for ratio in one] for one in ratios],
        })  # fmt: skip
    header = ("collective", "size", "C", "collbench", "ratio", "95 %", "midmean", "launches", f"<= {CRITERION}")
    harness.table(header, [_row(case) for case in cases])
    kind = harness.launcher_kind(options.launcher)
    content = {
        "question": "collbench's compiled loop over a C loop in the same process: ratio of block medians",
        "criterion": f"median block ratio at most {CRITERION}",
        "ranks": options.ranks,
        "launches": options.launches,
        "pairs": options.pairs,
        **harness.place(launches[0]["library"], busy),
        "cases": cases,
    }
    harness.save(options.name or f"against_c_shared-{kind}", content)
    return 0 if all(case["within"] for case in cases) else 1


def _row(case: dict[str, Any]) -> tuple[str, ...]:
    ratio = harness.Estimate(**case["ratio"])
    spread = case["ratio_of_launches"]
    return (
        case["collective"],
        format_size(case["bytes"]),
        format_duration(case["c_p50_s"]),
        format_duration(case["collbench_p50_s"]),
        f"{ratio.value:.3f}",
        ratio.bounds,
        f"{case['ratio_of_midmeans']['value']:.3f}",
        f"{min(spread):.3f} .. {max(spread):.3f}",
        "yes" if case["within"] else "NO",
    )


if __name__ == "__main__":
    sys.exit(main())
