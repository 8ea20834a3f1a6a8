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
CALLS = """
schema = 1
[measure]
time_budget = "5 ms"
least_time = "1 ms"
warmup_time = "2 ms"
[[sweep]]
backends = ["mpi_cuda"]
collectives = ["all_reduce", "all_to_all"]
calls = ["blocking", "nonblocking", "persistent"]
sizes = ["1000 B"]
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
# Here the host may follow addresses of the device, so what is known of Open MPI does not come to pass.
ADDS = "mpi_cuda.crash_in_reductions = lambda *_: None"
DIES = f"""{ADDS}
child = mpi_cuda._child
trial = '''
import os, signal, sys
from collbench.backends import mpi_cuda_trial
do = mpi_cuda_trial.do
def die(comm, function, call, *arguments):
    if (function, call) in (("Reduce", "blocking"), ("Alltoall", "persistent")):
        os.kill(os.getpid(), signal.SIGSEGV)
    do(comm, function, call, *arguments)
mpi_cuda_trial.do = die
mpi_cuda_trial.main(sys.argv[1], int(sys.argv[2]))
'''
mpi_cuda._child = lambda *words: child("-c", trial, *words[-2:])
"""
TELLS = """
mpi_cuda.crash_in_reductions = lambda *_: None
child = mpi_cuda._child
trial = '''
import sys
sys.exit(f"on device {sys.argv[2]}")
'''
mpi_cuda._child = lambda *words: child("-c", trial, *words[-2:]) if words[-1] != "0" else child(*words)
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
    rows = run(SCENARIO, tmp_path, ADDS, EMUGPU_JITTER_US="50")
    assert {row.status for row in rows} <= {"ok", "skipped"}, {row.reason for row in rows}
    ok = [row for row in rows if row.status == "ok"]
    for row in ok:
        assert row.device
        assert row.ranks_per_device == 1
        assert (row.clock, row.limit_GBps) == ("host", None)
        assert row.stream_sync_p50_s is not None
        assert row.wrong == 0 or row.collective == "barrier"
    assert {(row.collective, row.caller) for row in ok} == {(row.collective, row.caller) for row in rows}


def told(rows: list[Record]) -> dict[tuple[str | None, str | None], str]:
    """Of each collective and form of call the status, or why it was skipped."""
    return {(row.collective, row.call): str(row.reason or row.status) for row in rows}


def test_reductions_that_open_mpi_would_crash_in_are_skipped(tmp_path: Path) -> None:
    if launching.flavour() != "openmpi":
        pytest.skip("a fault of Open MPI")
    found = told(run(CALLS, tmp_path))
    for call in ("nonblocking", "persistent"):
        reason = found.pop(("all_reduce", call))
        assert f"would add up memory of the device on the host in {call} reductions, and crash" in reason
    assert len(found) == 4
    assert set(found.values()) == {"ok"}


def test_a_form_that_kills_the_child_is_skipped_and_no_other(tmp_path: Path) -> None:
    found = told(run(CALLS, tmp_path, DIES))
    ended = "cannot take memory of the device (a child process that tried MPI_{} died of SIGSEGV); use backend staged"
    for key, function in (
        (("all_reduce", "blocking"), "Reduce"),
        (("all_reduce", "persistent"), "Alltoall_init"),
        (("all_to_all", "persistent"), "Alltoall_init"),
    ):
        assert found.pop(key).endswith(ended.format(function))
    well = [("all_to_all", "blocking"), ("all_to_all", "nonblocking"), ("all_reduce", "nonblocking")]
    assert found == dict.fromkeys(well, "ok")


def test_a_group_tries_its_own_device(tmp_path: Path) -> None:
    rows = run(CALLS.replace("[[sweep]]", '[[sweep]]\ntopologies = ["1"]'), tmp_path, TELLS, code=7)
    assert {row.status for row in rows} == {"skipped"}
    assert all("tried MPI_" in str(row.reason) and "failed: on device 1)" in str(row.reason) for row in rows), rows


def test_buckets_are_replayed(tmp_path: Path) -> None:
    workload = tmp_path / "two.toml"
    workload.write_text(WORKLOAD)
    rows = run(REPLAY.replace("WORKLOAD", str(workload)), tmp_path, ADDS)
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
