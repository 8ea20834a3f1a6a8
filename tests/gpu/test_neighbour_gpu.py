"""Neighbours on a device: busy, ended, and gone when their parent is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import launching
from collbench.neighbour import Neighbour, start
from collbench.results import read
from collbench.world import World

pytest.importorskip("cupy", reason="cupy is not installed", exc_type=ImportError)

SMALL = 1 << 20

PARENT = """
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
from collbench.neighbour import start
from collbench.world import World
made = start(sys.argv[1], World(), 0, buffer_bytes=1 << 20)
print(made.pid, flush=True)
"""

SCENARIO = """
schema = 1
[measure]
time_budget = "20 ms"
least_time = "5 ms"
warmup_time = "5 ms"
[[sweep]]
backends = ["staged"]
collectives = ["all_reduce"]
neighbours = ["alone", "copy", "communicate"]
topologies = ["world", "first:1"]
sizes = ["1 KiB"]
"""

RANKS = """
import os, sys, time
from collbench.errors import CollbenchError
from collbench.start import start_world, stop_world
from collbench.neighbour import start
world = start_world()
device = 99 if world.rank == int(sys.argv[1]) else world.local_rank
try:
    with start("communicate", world, device, buffer_bytes=1 << 20, limit_s=float(sys.argv[2])) as made:
        first = made.rounds()
        deadline = time.monotonic() + 30
        while made.rounds() < first + 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        got_on = all(world.all_gather(made.rounds() >= first + 5))  # one that is stopped holds up the others
        environment = open(f"/proc/{made.pid}/environ").read()
        maps = open(f"/proc/{made.pid}/maps").read()
        said = f"got on {got_on}, MPI {'libmpi' in maps or 'OMPI_' in environment or 'PMI' in environment}"
    said += f", there {os.path.exists(f'/proc/{made.pid}')}"
except CollbenchError as error:
    said = str(error)
everyone = world.gather(said)
if everyone:
    print("\\n".join(everyone), flush=True)
stop_world(world)
"""


def gone(pid: int, limit_s: float = 5.0) -> bool:
    """Whether a process is gone, or a zombie, by then."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def gets_on(neighbour: Neighbour, limit_s: float = 30.0) -> bool:
    """Whether it does more rounds within a limit."""
    first, deadline = neighbour.rounds(), time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if neighbour.rounds() > first + 1:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("kind", ["compute", "copy"])
def test_it_is_busy_until_it_is_stopped(kind: str) -> None:
    with start(kind, World(), 0, buffer_bytes=SMALL) as neighbour:
        assert neighbour.alive()
        assert neighbour.problem() is None
        assert gets_on(neighbour)
        began = time.monotonic()
        neighbour.stop()
        assert time.monotonic() - began < 4  # by TERM: KILL would come after 5 s
        assert not neighbour.alive()
        assert neighbour._process.returncode == -signal.SIGTERM
    assert gone(neighbour.pid)
    assert neighbour.rounds() > 0
    neighbour.stop()  # again


def test_it_holds_nothing_of_ours_open() -> None:
    with start("copy", World(), 0, buffer_bytes=SMALL) as neighbour:
        folder = Path(f"/proc/{neighbour.pid}/fd")
        targets = {int(link.name): str(link.readlink()) for link in folder.iterdir()}
    assert [targets[number] for number in (0, 1, 2)] == ["/dev/null"] * 3
    assert sum(target.startswith("pipe:") for target in targets.values()) == 2  # its reports and its orders
    assert not any(target.startswith("socket:") for number, target in targets.items() if number < 3)


def test_one_that_is_killed_is_not_alive_and_says_how() -> None:
    with start("compute", World(), 0) as neighbour:
        os.kill(neighbour.pid, signal.SIGKILL)
        neighbour._process.wait(10)
        assert not neighbour.alive()
        assert neighbour.problem() == "it ended with signal 9"


def test_one_that_fails_says_why() -> None:
    with pytest.raises(Exception, match=r"neighbour copy: .*(?i:memory)"):
        start("copy", World(), 0, buffer_bytes=1 << 45)


@pytest.mark.parametrize("ending", ["import os; os.kill(os.getpid(), 9)", "os._exit(0)", "pass"])
def test_it_dies_with_its_parent(ending: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", f"{PARENT}\n{ending}\n", "compute"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        assert parent.stdout.read() == b""  # at once: the neighbour holds no end of this pipe
    parent.wait(30)
    assert gone(pid)


def test_term_ends_it_though_its_parent_blocks_signals() -> None:
    script = PARENT + "began = time.monotonic(); made.stop(); print(made._process.returncode, time.monotonic() - began)"
    out = launching.run([sys.executable, "-c", script, "copy"], timeout=60).expect(0).out.split()
    assert int(out[1]) == -signal.SIGTERM
    assert float(out[2]) < 4


@pytest.mark.parametrize("ranks", [2, 4])
def test_neighbours_of_all_ranks_communicate(ranks: int, tmp_path: Path) -> None:
    if launching.cuda_devices() < ranks:
        pytest.skip(f"{ranks} CUDA devices are needed")
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    out = launching.mpirun(ranks, [sys.executable, script, "-1", "60"], timeout=100).expect(0).out
    assert out.split("\n")[:-1] == ["got on True, MPI False, there False"] * ranks


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_alone_has_no_slowdown_beside_one_that_communicates(ranks: int, tmp_path: Path) -> None:
    if launching.cuda_devices() < ranks:
        pytest.skip(f"{ranks} CUDA devices are needed")
    path, folder = tmp_path / "s.toml", tmp_path / "run"
    path.write_text(SCENARIO)
    launching.collbench(["launch", path, "-n", str(ranks), "-o", folder]).expect(0)
    for row in read(folder):
        alone = row.neighbour == "communicate" and row.ranks == 1
        assert row.status == ("skipped" if alone else "ok")
        assert (row.slowdown is None) == (alone or row.neighbour == "alone")
        assert ("needs 2 ranks or more" in str(row.reason)) == alone


def test_where_one_fails_all_ranks_hear_of_it(tmp_path: Path) -> None:
    if launching.cuda_devices() < 2:
        pytest.skip("2 CUDA devices are needed")
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    done = launching.mpirun(2, [sys.executable, script, "1", "60"], timeout=100).expect(0)
    lines = done.out.splitlines()
    assert len(lines) == 2
    assert lines[0] == lines[1]
    assert lines[0].startswith("neighbour communicate of rank 1 on ")
    assert "invalid device" in lines[0]
    assert done.seconds < 50  # nobody waited for the limit
