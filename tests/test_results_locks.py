"""A run folder that several processes and threads write: locks, deaths, faults, what a resume must agree with."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collbench import results
from collbench.errors import CollbenchError, UsageError
from collbench.record import Record
from collbench.results import RunFolder, RunInfo

ROOT = Path(__file__).resolve().parent.parent
AS_ROOT = os.geteuid() == 0


def record(number: int, **values: Any) -> Record:
    return Record(**{"launch": 1, "case_id": f"case-{number}", "status": "ok", "time_p50_s": 1e-6 * number, **values})


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    with RunFolder.create("quickstart", tmp_path / "run") as folder:
        yield folder


def in_another_process(path: Path, code: str, **options: Any) -> "subprocess.Popen[str]":
    """Start Python with `run`, the folder at `path`; it is ready when its first line comes."""
    start = "import sys\nfrom pathlib import Path\nfrom collbench.results import RunFolder\n"
    start += f"run = RunFolder(Path({str(path)!r}))\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", start + code]
    return subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
    )


HOLD = "run.lock()\nprint('ready', flush=True)\nsys.stdin.read()\n"


def test_a_second_run_waits_a_little_and_is_told_who_writes(run: RunFolder) -> None:
    other = RunFolder(run.path)
    with pytest.raises(
        UsageError, match=f"process {os.getpid()} on {socket.gethostname()} writes, expected a free one"
    ):
        other.lock(wait_s=0.1)
    threading.Timer(0.2, run.unlock).start()
    other.lock(wait_s=20)
    assert other._lock_fd is not None
    with pytest.raises(UsageError):
        run.lock(wait_s=0)
    other.unlock()


def test_two_processes_fight_for_a_folder(tmp_path: Path) -> None:
    run = RunFolder.create("x", tmp_path / "run")
    with in_another_process(run.path, HOLD) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(UsageError, match=f"got a folder that process {other.pid} on .* writes"):
            run.lock(0.1)
        assert run.read() == []
        other.kill()
        other.wait(timeout=30)
        run.lock(wait_s=20)  # the system lets go for a process that was killed
        run.append([record(1)])
    with in_another_process(run.path, "try:\n  run.lock(0.1)\nexcept Exception as error:\n  print(error)\n") as other:
        assert f"process {os.getpid()} on" in other.communicate(timeout=30)[0]
    run.unlock()


def test_a_program_that_a_run_starts_does_not_hold_its_lock(run: RunFolder) -> None:
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        try:
            run.unlock()
            RunFolder(run.path).lock(wait_s=1)
        finally:
            child.kill()


def test_append_locks_by_itself(tmp_path: Path) -> None:
    run = RunFolder.create("x", tmp_path / "run")
    run.append([record(1)])
    with pytest.raises(UsageError):
        RunFolder(run.path).lock(wait_s=0)
    run.unlock()


def test_a_process_that_dies_hard_leaves_its_rows_and_its_case(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    code = (
        "import os, signal\nfrom collbench.record import Record\n"
        "run.set_pending('first')\n"
        "run.append([Record(launch=1, case_id='a', status='ok')])\n"
        "run.clear_pending()\nrun.set_pending('second')\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with in_another_process(path, code) as dead:
        assert dead.wait(timeout=30) == -9
    run = RunFolder.open(path)
    assert [one.case_id for one in run.read()] == ["a"]
    assert run.take_pending() == "second"
    assert run.take_pending() is None


def test_only_one_of_many_takes_the_pending_case(run: RunFolder) -> None:
    for _ in range(20):
        run.set_pending("once")
        taken: list[str | None] = []
        threads = [threading.Thread(target=lambda into=taken: into.append(run.take_pending())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken, key=str) == [None, None, None, "once"]
    run.clear_pending()
    assert {path.name for path in run.path.iterdir()} == {"lock"}


def test_threads_append_whole_rows(run: RunFolder) -> None:
    def work(start: int) -> None:
        for number in range(10):
            run.append([record(start + number, reason="x" * 3000), record(start + number)])

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [one.case_id for one in run.read()]
    assert len(rows) == 60
    assert rows[::2] == rows[1::2]
    assert len(set(rows)) == 30


def test_a_watchdog_waits_for_no_stuck_thread(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "OTHER_THREAD_WAIT_S", 0.1)
    stuck, go_on = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        stuck.set()
        assert go_on.wait(30)

    run.set_pending("case")
    monkeypatch.setattr(os, "fsync", hang)
    thread = threading.Thread(target=run.append, args=([record(1)],))
    thread.start()
    assert stuck.wait(30)
    assert run.write_fault(0, {"reason": "hung"}) is True
    assert run.take_pending() == "case"
    with pytest.raises(CollbenchError, match=r"another thread has been writing for 0.1 s"):
        run.append([record(2)])
    go_on.set()
    thread.join()
    assert run.read() == [record(1)]


def test_faults_come_back_by_rank(run: RunFolder) -> None:
    assert run.read_faults() == []
    assert run.write_fault(10, {"reason": "late\nand long", "phase": "sample"})
    assert run.write_fault(2, {"reason": "hung", "where": Path("/x"), "rank": 2})
    assert run.write_fault(10, {"reason": "again"})
    (run.path / "faults" / "rank-3.jsonl").write_bytes(b'{"reason": "to')
    assert run.read_faults() == [
        {"rank": 2, "reason": "hung", "where": "/x"},
        {"rank": 3, "unreadable": '{"reason": "to'},
        {"rank": 10, "reason": "late\nand long", "phase": "sample"},
        {"rank": 10, "reason": "again"},
    ]


def test_a_fault_is_one_write(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write = os.write

    def watched(descriptor: int, content: bytes) -> int:
        written.append(content)
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", watched)
    run.write_fault(1, {"reason": "x" * 10_000})
    assert len(written) == 1
    assert json.loads(written[0]) == {"rank": 1, "reason": "x" * 10_000}


def test_a_fault_that_cannot_be_written_raises_nothing(tmp_path: Path) -> None:
    assert RunFolder(tmp_path / "gone").write_fault(1, {"reason": "x"}) is False


def test_what_a_resume_must_agree_with_comes_back(run: RunFolder) -> None:
    with pytest.raises(UsageError, match=r"run.json: got nothing, expected "):
        run.read_info()
    info = RunInfo("quick", "a1", 4, "2025-01-01T00:00:00+00:00")
    run.write_info(info)
    run.write_scenario("schema = 1\n")
    assert RunFolder.open(run.path).read_info() == info
    assert run.scenario_path.read_text() == "schema = 1\n"
    wrong = {'{"ranks": 4}': "no scenario", "[1]": "JSON that is no object", "{": "text that is not JSON"}
    for text, got in wrong.items():
        (run.path / "run.json").write_text(text)
        with pytest.raises(UsageError, match=rf"run.json: got {got}, expected what a run writes first; start a new "):
            run.read_info()


def test_an_environment_a_launch_where_it_differs(run: RunFolder) -> None:
    assert run.write_environment(1, {"numpy": "2.0"}).name == "environment.json"
    assert run.write_environment(2, {"numpy": "2.0"}).name == "environment.json"
    assert run.write_environment(3, {"numpy": "2.1", "odd": "\ud800"}).name == "environment-3.json"
    assert json.loads((run.path / "environment.json").read_text()) == {"numpy": "2.0"}


def test_run_id_is_the_folder_whatever_the_path_looks_like(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.path)
    assert RunFolder.open(Path()).run_id == run.run_id == "run"


def test_locks_are_where_the_file_system_has_them(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UsageError, match=r"could not lock the run folder: .*; choose a file system that has locks"):
        RunFolder(run.path).lock()
