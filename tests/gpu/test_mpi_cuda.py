"""Backend mpi_cuda with data: on the emulator, where the host may follow device addresses, any MPI takes them."""

import sys
from pathlib import Path

import pytest

import launching
from collbench.collectives import names
from collbench.record import Record
from collbench.results import read

SCENARIO = """
schema = 1
[measure]
time_budget = "5 ms"
least_time = "1 ms"
least_iterations = 3
warmup_time = "2 ms"
modes = ["latency", "throughput"]
[[sweep]]
backends = ["mpi_cuda"]
collectives = ALL
calls = ["blocking", "nonblocking", "persistent"]
callers = ["compiled", "python"]
placements = ["out_of_place", "in_place"]
buffers = [2]
patterns = ["linear"]
sizes = ["1000 B"]
""".replace("ALL", str([*names()]))
FEW = """
schema = 1
[measure]
time_budget = "5 ms"
least_time = "1 ms"
warmup_time = "2 ms"
[[sweep]]
backends = ["mpi_cuda"]
collectives = ["all_reduce", "send_recv"]
callers = ["compiled", "python"]
sizes = ["1000 B", "1 MiB"]
"""
WORKLOAD = """
schema = 1
title = "two layers"
source = "made up"
dtype = "float32"
[bucketing]
kind = "ddp"
first = "1 KiB"
cap = "3 KiB"
[[group]]
name = "layer.{}"
repeat = 2
[group.tensors]
"weight" = [40, 20]
"""
REPLAY = """
schema = 1
[measure]
time_budget = "5 ms"
least_time = "1 ms"
warmup_time = "2 ms"
[[sweep]]
kind = "replay"
backends = ["mpi_cuda"]
workloads = ["WORKLOAD"]
bucketings = ["ddp"]
computes = ["none"]
calls = ["blocking", "nonblocking"]
"""
# What the library says of itself is overruled; the child process then tries in earnest.
PROGRAM = """
import sys
from collbench.backends import mpi_cuda
mpi_cuda.says_no = lambda: None
{more}
from collbench.cli import main
sys.exit(main(sys.argv[1:]))
"""
FEWER = """
from collbench.backends.mpi import Mpi
words, specification = Mpi._words, Mpi._specification
Mpi._words = lambda self, case, count, *more: words(self, case, count - 1, *more)
Mpi._specification = lambda self, case, region, count, *more: specification(self, case, region, count - 1, *more)
"""


def run(scenario: str, tmp_path: Path, more: str = "", code: int = 0, **env: str) -> list[Record]:
    if not launching.emulated() or launching.cuda_devices() < 2:
        pytest.skip("2 emulated CUDA devices are needed")
    path, folder, program = tmp_path / "s.toml", tmp_path / "run", tmp_path / "program.py"
    path.write_text(scenario)
    program.write_text(PROGRAM.format(more=more))
    command: list[str | Path] = [sys.executable, program, "run", path, "-o", folder]
    launching.mpirun(2, command, timeout=150, env={"EMUGPU_HOST_ACCESS": "1", **env}).expect(code)
    return read(folder)


@pytest.mark.timeout(170)
def test_every_form_arrives(tmp_path: Path) -> None:
    rows = run(SCENARIO, tmp_path, EMUGPU_JITTER_US="50")
    assert {row.status for row in rows} <= {"ok", "skipped"}, {row.reason for row in rows}
    ok = [row for row in rows if row.status == "ok"]
    for row in ok:
        assert row.device
        assert row.ranks_per_device == 1
        assert (row.clock, row.limit_GBps) == ("host", None)
        assert row.stream_sync_p50_s is not None
        assert row.wrong == 0 or row.collective == "barrier"
    assert {(row.collective, row.caller) for row in ok} == {(row.collective, row.caller) for row in rows}


def test_buckets_are_replayed(tmp_path: Path) -> None:
    workload = tmp_path / "two.toml"
    workload.write_text(WORKLOAD)
    rows = run(REPLAY.replace("WORKLOAD", str(workload)), tmp_path)
    assert [(row.status, row.call, row.wrong) for row in rows] == [("ok", "blocking", 0), ("ok", "nonblocking", 0)]


def test_a_wrong_count_is_seen(tmp_path: Path) -> None:
    rows = run(FEW, tmp_path, FEWER, code=3)
    assert {row.status for row in rows} == {"wrong"}
    assert {row.first_wrong for row in rows} == {249, 262143}


def test_memory_that_the_library_cannot_take_is_found_by_the_child(tmp_path: Path) -> None:
    rows = run(FEW, tmp_path, code=7, EMUGPU_HOST_ACCESS="0")
    for row in rows:
        assert row.status == "skipped"
        assert "cannot take memory of the device (a child process that tried " in str(row.reason)
        assert str(row.reason).endswith("; use backend staged")
