"""NCCL from a scenario file to rows, one rank a device; needs CUDA devices, real or emulated."""

import sys
from pathlib import Path

import pytest

import launching
from collbench.record import Record
from collbench.results import read

SCENARIO = """
schema = 1
title = "nccl beside mpi"
[measure]
time_budget = "20 ms"
least_time = "1 ms"
warmup_time = "5 ms"
modes = ["latency", "throughput"]
[[sweep]]
backends = ["nccl", "mpi"]
collectives = ["all_reduce", "send_recv"]
dtypes = ["float32"]
operations = ["max"]
callers = ["compiled", "python"]
sizes = ["12 B", "40 KiB"]
[[sweep]]
backends = ["nccl"]
collectives = ["all_reduce"]
dtypes = ["float64", "int32"]
placements = ["in_place"]
sizes = ["12 B", "40 KiB"]
"""


def needs(devices: int) -> None:
    if launching.cuda_devices() < devices:
        pytest.skip(f"{devices} CUDA devices are needed")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", launching.RANKS)
def test_nccl_and_mpi_from_one_scenario(ranks: int, tmp_path: Path) -> None:
    needs(ranks)
    scenario = tmp_path / "both.toml"
    scenario.write_text(SCENARIO)
    run = tmp_path / "run"
    launching.collbench(["launch", scenario, "-n", str(ranks), "-o", run, "--no-choices"], timeout=240).expect(0)
    rows = read(run)
    nccl = [row for row in rows if row.backend == "nccl"]
    assert len(nccl) == 2 * 2 * 2 * 2 + 2 * 2 * 2
    for row in nccl:
        assert (row.status, row.wrong) == ("ok", 0)
        assert row.library is not None
        assert row.library.startswith("NCCL 2.")
        assert row.ranks == ranks
        assert row.device
        assert row.clock == ("device" if row.mode == "latency" else "host")
        assert (row.device_p50_s is not None) == (row.mode == "latency")
    assert {row.status for row in rows if row.backend == "mpi" and row.dtype == "float32"} == {"ok"}


def test_default_is_nccl_where_every_rank_has_a_device(tmp_path: Path) -> None:
    needs(2)
    scenario = tmp_path / "default.toml"
    scenario.write_text(
        'schema = 1\ntitle = "d"\n[measure]\ntime_budget = "10 ms"\nleast_time = "1 ms"\n'
        '[[sweep]]\ncollectives = ["all_reduce"]\nsizes = ["8 B"]\n'
    )
    launching.collbench(["launch", scenario, "-n", "2", "-o", tmp_path / "two", "--no-choices"]).expect(0)
    assert [row.backend for row in read(tmp_path / "two")] == ["nccl"]
    more = launching.cuda_devices() + 1
    if more <= 5:
        launching.collbench(["launch", scenario, "-n", str(more), "-o", tmp_path / "more"]).expect(0)
        assert [row.backend for row in read(tmp_path / "more")] == ["mpi"]


def test_ranks_that_would_share_a_device_are_refused_with_their_numbers(tmp_path: Path) -> None:
    needs(1)
    scenario = tmp_path / "shared.toml"
    scenario.write_text(
        'schema = 1\ntitle = "d"\n[[sweep]]\nbackends = ["nccl"]\ncollectives = ["all_reduce"]\nsizes = ["8 B"]\n'
    )
    done = launching.collbench(
        ["launch", scenario, "-n", "2", "-o", tmp_path / "run"], env=launching.one_device()
    ).expect(7)
    (row,) = read(tmp_path / "run")
    assert row.status == "skipped"
    assert "ranks 0, 1" in str(row.reason)
    assert "the same device" in done.out


DAMAGED = """
import sys
import numpy as np
from collbench.backends.base import Call, call_list
from collbench.backends.nccl import Nccl
from collbench.dtypes import DTYPES
from collbench.pattern import Pattern
from collbench.plan import Case
from collbench.start import start_world, stop_world
from collbench.verify import Check, check_case

world = start_world()
backend = Nccl(world)
case = Case(variant="", backend="nccl", collective="all_reduce", call="blocking", dtype="float32", operation="sum",
            root="", placement="out_of_place", caller="compiled", mode="throughput", sync="library", buffer="plain",
            buffers=1, pages="default", pattern="", topology="world", requested_bytes=4096)
layout = backend.layout(case, 1024)
bound = backend.bind(case, 1024, layout)
check = Check(world.rank, layout, Pattern(DTYPES["float32"], "sum", world.size, 3))
assert check_case(bound, check, timed=False) is None  # and what verification allocates is there
_RELEASED = 1
driver = backend._driver
run = bound.run.reshape(-1, 14)
if sys.argv[1] == "count":  # one element less than there is
    run[0, 4] -= 1
if sys.argv[1] == "swap" and world.rank == 1:  # another rank's place: the buffer shifted by an element
    run[0, 3] += 4
if sys.argv[1] == "modify" and world.rank == 0:  # the send buffer is written to
    write = Call(driver.address("cuMemsetD8Async"), (bound.buffers[0].send.address + 8, 77, 1, backend._stream.ptr))
    bound.run = np.concatenate([bound.run, call_list([write])], axis=1)
if sys.argv[1] == "skip":
    # The operation is queued behind a wait, so that it is certain to be under way still when nobody waits for it.
    backend._flag[0] = 0
    assert backend._wait_for_flag() == 0
    bound.finish = call_list()
damage = check_case(bound, check, timed=False)
backend._flag[0] = _RELEASED
print(f"{'DAMAGE' if damage else 'CLEAN'} on rank {world.rank}", damage.on(world.rank) if damage else "")
world.all_gather(0)
bound.close()
backend.close()
stop_world(world)
"""


@pytest.mark.parametrize(
    ("damage", "ranks"), [("none", ()), ("skip", (0, 1)), ("count", (0, 1)), ("swap", (1,)), ("modify", (0,))]
)
def test_damage_is_seen(damage: str, ranks: tuple[int, ...], tmp_path: Path) -> None:
    """A skipped synchronisation of the stream, a wrong count, data in another's place, a send buffer that changes."""
    needs(2)
    program = tmp_path / "program.py"
    program.write_text(DAMAGED)
    done = launching.mpirun(2, [sys.executable, program, damage], timeout=60).expect(0)
    assert done.out.count("DAMAGE") + done.out.count("CLEAN") == 2
    for rank in range(2):
        assert f"{'DAMAGE' if rank in ranks else 'CLEAN'} on rank {rank}" in done.out


CHOSEN = """
import os, sys
from collbench.nccl_log import Log, path_of, settings
# NCCL's own lines, as far as the emulated one does not write them.
def write(text):
    path = path_of(os.environ, os.uname().nodename, os.getpid())
    with open(path, "a") as file:
        file.write(f"host:1:2 [0] NCCL INFO {text}\\n")

import collbench.backends.nccl as module
before = module.Nccl.bind
def bind(self, case, count, layout):
    bound = before(self, case, count, layout)
    prime = bound.prime
    def primed():
        prime()
        if "TUNING" in os.environ["NCCL_DEBUG_SUBSYS"]:
            write(f"AllReduce: {case.requested_bytes} Bytes -> Algo RING proto LL128 channel{{Lo..Hi}}={{0..3}}")
    bound.prime = primed
    return bound
module.Nccl.bind = bind
asked = module.Nccl.chosen
def chosen(self, choice):
    write("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")  # just before it is read: the emulated NCCL writes over it later
    return asked(self, choice)
module.Nccl.chosen = chosen
from collbench.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_what_nccl_chose_comes_into_the_rows(tmp_path: Path) -> None:
    needs(2)
    scenario, run, program = tmp_path / "s.toml", tmp_path / "run", tmp_path / "program.py"
    scenario.write_text(
        'schema = 1\n[measure]\ntime_budget = "10 ms"\nleast_time = "1 ms"\n[[sweep]]\nbackends = ["nccl"]\n'
        'collectives = ["all_reduce"]\nsizes = ["1 KiB"]\n[expect]\ntransport = "shm"\n'
    )
    program.write_text(CHOSEN)
    common: list[str | Path] = [sys.executable, program, "run", scenario, "-o", run]
    launching.mpirun(2, [*common, "--choices"], timeout=60).expect(0)
    done = launching.mpirun(2, common, timeout=60)
    (row,) = read(run)
    assert (row.status, row.transport, row.algorithm, row.protocol, row.channels) == ("ok", "p2p", "RING", "LL128", 4)
    assert "unexpected_transport" in str(row.notes)
    assert row.reason == "transport: got p2p, expected shm"
    assert done.code == 5


PATCHED = """
import sys
import collbench.backends.nccl as module
from cupy.cuda import runtime

alive = []
def counted(name, change):
    before = getattr(runtime, name)
    def call(*arguments):
        found = before(*arguments)
        change(found if name == "graphInstantiate" else arguments[0])
        return found
    setattr(runtime, name, call)

if sys.argv[1] == "graphs":
    counted("graphInstantiate", alive.append)
    counted("graphExecDestroy", alive.remove)
    ended = module.Nccl.close
    def close(self):
        print("ALIVE", len(alive))
        ended(self)
    module.Nccl.close = close
elif sys.argv[1] == "windows":  # what NCCL does where not all devices reach each other: success, and no handle
    module.Nccl._register = lambda self, buffer, memory: ("ncclCommWindowDeregister", 0)
elif sys.argv[1] == "split":  # CuPy before 14
    module._splits = lambda comm: False
from collbench.cli import main
sys.exit(main(sys.argv[2:]))
"""


def patched(patch: str, sweep: str, tmp_path: Path) -> tuple[launching.CompletedRun, list[Record]]:
    needs(3)
    scenario, run, program = tmp_path / "s.toml", tmp_path / "run", tmp_path / "program.py"
    scenario.write_text(
        'schema = 1\n[measure]\ntime_budget = "10 ms"\nleast_time = "1 ms"\nmodes = ["graph"]\n[[sweep]]\n'
        f'backends = ["nccl"]\ncollectives = ["all_reduce"]\nsizes = ["1 KiB"]\n{sweep}\n'
    )
    program.write_text(PATCHED)
    done = launching.mpirun(3, [sys.executable, program, patch, "run", scenario, "-o", run], timeout=60)
    return done, read(run)


def test_no_graph_outlives_its_case(tmp_path: Path) -> None:
    """NCCL's ncclCommDestroy waits for all graphs that the communicator is in."""
    done, rows = patched("graphs", 'topologies = ["world", "first:2"]', tmp_path)
    assert {row.status for row in rows} == {"ok"}
    assert done.out.count("ALIVE 0") == done.out.count("ALIVE") == 3 + 2


def test_windows_that_nccl_does_not_make_are_no_symmetric_rows(tmp_path: Path) -> None:
    done, (row,) = patched("windows", 'buffer = ["symmetric"]', tmp_path)
    assert row.status == "skipped"
    assert "registers nothing here" in str(row.reason)
    assert done.code == 7


def test_groups_without_comm_split(tmp_path: Path) -> None:
    done, rows = patched("split", 'topologies = ["pairs"]', tmp_path)
    assert done.code == 0
    assert [(row.group, row.status, row.wrong) for row in rows] == [(row.group, "ok", 0) for row in rows]
    assert {row.group for row in rows if not str(row.group).startswith("again:")} == {"0-1", "0-2", "1-2"}
