"""The helpers that the other tests trust: ranks start, and what hangs is ended."""

import shutil
import sys
import time
from pathlib import Path

import pytest

import launching

# One write a line: a launcher may mix the pieces of several ranks' lines.
HELLO = "import sys; from mpi4py import MPI; w = MPI.COMM_WORLD; sys.stdout.write(f'{w.rank} {w.size}\\n')"

# Deaf to SIGTERM; tells what shared memory it holds; rank 0 also starts a process in a session of its own.
DEAF = """
import os, signal, subprocess, sys, time
from mpi4py import MPI
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if MPI.COMM_WORLD.rank == 0:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print("deaf", *(line.split()[-1] for line in open("/proc/self/maps") if "/dev/shm/" in line), flush=True)
time.sleep(60)
"""

LEAK = """
import subprocess, sys
def test_leak():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
"""


@pytest.mark.parametrize("ranks", launching.RANKS)
def test_ranks_start(ranks: int) -> None:
    completed = launching.mpirun(ranks, [sys.executable, "-c", HELLO], timeout=60).expect()
    assert sorted(completed.out.splitlines()) == [f"{rank} {ranks}" for rank in range(ranks)]


def test_expect_shows_outputs() -> None:
    completed = launching.run([sys.executable, "-c", "raise SystemExit('no luck')"], timeout=30)
    with pytest.raises(AssertionError, match=r"exit code 1, expected 0(?s:.*)no luck"):
        completed.expect()
    completed.expect(1)


def test_environment_is_laid_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKEN_OUT", "1")
    program = "import os; print(os.environ.get('TAKEN_OUT'), os.environ['PUT_IN'])"
    completed = launching.run([sys.executable, "-c", program], timeout=30, env={"TAKEN_OUT": None, "PUT_IN": "2"})
    assert completed.out == "None 2\n"


def test_what_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "GRACE", 1.0)
    monkeypatch.setenv(launching.MARKER, "hang")
    start = time.monotonic()
    with pytest.raises(AssertionError, match=r"still running after 6 s(?s:.*)deaf") as raised:
        launching.mpirun(2, [sys.executable, "-c", DEAF], timeout=6)
    assert time.monotonic() - start < 20
    assert launching.left_behind("hang") == []
    segments = {Path(word) for word in str(raised.value).split() if word.startswith("/dev/shm/")}
    assert segments
    assert not any(segment.exists() for segment in segments)


def test_what_is_left_behind_is_found(tmp_path: Path) -> None:
    here = Path(__file__).parent
    shutil.copy(here / "conftest.py", tmp_path)
    (tmp_path / "test_leak.py").write_text(LEAK)
    # Apart from this run's configuration and conftest.
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    completed = launching.run(command, timeout=60, env={"PYTHONPATH": str(here), "PYTEST_ADDOPTS": None}).expect(1)
    assert "processes left behind" in completed.out
    assert "1 passed, 1 error" in completed.out
