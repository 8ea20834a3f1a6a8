import errno
import fcntl
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from collbench import results
from collbench.errors import CollbenchError, UsageError
from collbench.record import HEADER, Record, to_row
from collbench.results import RunFolder, RunInfo, read

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


def test_a_new_folder_is_named_by_time_and_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {RunFolder.create("what does/it cost?").run_id for _ in range(5)}
    assert len(names) == 5
    assert {path.name for path in (tmp_path / "results").iterdir()} == names
    assert all(len(name.split("-")[0]) == 8 and "-what-does-it-cost" in name for name in names)


def test_a_scenario_name_cannot_leave_the_folder(tmp_path: Path) -> None:
    assert RunFolder.create("../../x", parent=tmp_path).path.parent == tmp_path
    assert RunFolder.create("", parent=tmp_path).run_id.endswith("-run")


def test_a_new_folder_clobbers_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert RunFolder.create("x", tmp_path / "empty").path == tmp_path / "empty"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "results.csv").write_text("precious")
    with pytest.raises(UsageError, match="full: got a folder with files in it, expected an empty one"):
        RunFolder.create("x", tmp_path / "full")
    assert (tmp_path / "full" / "results.csv").read_text() == "precious"


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_file_in_the_way_is_a_usage_error(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"could not make the run folder: .*; a file is in the way"):
        RunFolder.create("x", tmp_path / where)


def test_open_wants_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="got nothing, expected a run folder"):
        RunFolder.open(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="got a file, expected a run folder"):
        RunFolder.open(tmp_path / "file")
    assert RunFolder.open(tmp_path).path == tmp_path


def test_rows_come_back(run: RunFolder) -> None:
    assert run.read() == []
    run.append([])
    assert not run.results_path.exists()
    run.append([record(1), record(2, reason="a, b\nc")])
    run.append([record(3)])
    expected = [record(1), record(2, reason="a, b c"), record(3)]
    assert run.read() == read(run.path) == read(run.results_path) == RunFolder.open(run.path).read() == expected
    assert run.results_path.read_text().splitlines()[0] == ",".join(HEADER)


def test_rows_are_on_disk_when_append_returns(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    write, sync = os.write, os.fsync

    def watched_write(descriptor: int, content: bytes) -> int:
        events.append(f"write {content.count(b'case-')}")
        return write(descriptor, content)

    def watched_sync(descriptor: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        sync(descriptor)

    monkeypatch.setattr(os, "write", watched_write)
    monkeypatch.setattr(os, "fsync", watched_sync)
    run.append([record(1), record(2)])
    run.append([record(3)])
    assert events == ["write 2", "sync results.csv", "sync run", "write 1", "sync results.csv"]


def test_a_value_that_no_row_may_hold_leaves_the_file_alone(run: RunFolder) -> None:
    run.append([record(1)])
    with pytest.raises(ValueError, match="time_p50_s"):
        run.append([record(2), record(3, time_p50_s=float("nan"))])
    assert run.read() == [record(1)]


def test_a_line_torn_at_any_byte_is_repaired(tmp_path: Path) -> None:
    with RunFolder.create("x", tmp_path / "model") as model:
        model.append([record(1), record(2, reason='he said "é, à" ü')])
        content = model.results_path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(content) if byte == ord("\n")]
    for length in range(len(content) + 1):
        folder = RunFolder(tmp_path / "model")
        folder.results_path.write_bytes(content[:length])
        whole = max((end for end in ends if end <= length), default=0)
        rows_kept = max(0, content[:whole].count(b"\n") - 1)
        assert len(folder.read()) == rows_kept
        assert folder.repair() == content[whole:length].decode(errors="replace")
        assert folder.repair() == ""
        assert folder.results_path.read_bytes() == content[:whole]
        folder.unlock()
    for length in (0, 10, ends[0] - 1, ends[0], ends[0] + 1, ends[1] - 1, ends[2] - 3):
        folder = RunFolder(tmp_path / "model")
        folder.results_path.write_bytes(content[:length])
        kept = len(folder.read())
        folder.append([record(3)])
        assert [one.case_id for one in folder.read()] == [*["case-1", "case-2"][:kept], "case-3"]
        folder.unlock()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(reason="", cells=len(HEADER) - 1)
@given(reason=st.text(max_size=20), cells=st.integers(1, len(HEADER) - 1))
def test_a_last_line_of_too_few_cells_is_repaired(tmp_path: Path, reason: str, cells: int) -> None:
    folder = RunFolder(tmp_path)
    folder.results_path.unlink(missing_ok=True)
    folder.append([record(1, reason=reason)])
    whole = folder.results_path.read_bytes()
    short = results._line(to_row(record(2, reason=reason, variant='"quoted, twice"'))[:cells])
    folder.results_path.write_bytes(whole + short.encode())
    with pytest.raises(UsageError, match=rf"results.csv: line 3: got {cells} cells, expected {len(HEADER)}; "):
        folder.read()
    assert folder.repair() == short
    assert folder.results_path.read_bytes() == whole
    folder.unlock()


def test_a_torn_line_is_left_out_with_a_warning(run: RunFolder, caplog: pytest.LogCaptureFixture) -> None:
    run.append([record(1), record(2)])
    content = run.results_path.read_bytes()
    with caplog.at_level(logging.WARNING):
        run.read()
        assert caplog.text == ""
        run.results_path.write_bytes(content[:-1])
        assert run.read() == [record(1)]
    assert "the last line has no end and is left out" in caplog.text


def test_a_file_that_a_table_program_saved_is_read(run: RunFolder) -> None:
    run.append([record(1)])
    content = run.results_path.read_bytes()
    run.results_path.write_bytes(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n") + b"\r\n")
    assert run.read() == [record(1)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"schema,run_id\n", "line 1: got no column case_id"),
        (b"<html>\n</html>\n", "line 1: got no column case_id"),
        (b"\xff\xfe\n", "got 'utf-8' codec"),
        (b"schema,case_id,launch,status\n1,a,1,ok\n1,a,1\n1,a,1,ok\n", "line 3: got 3 cells, expected 4"),
        (b"schema,case_id,launch,status\n2,a,1,ok\n", "line 2: schema: got '2', expected 1"),
        (b'schema,case_id,launch,status\n1,"a"b,1,ok\n', "line 2: "),
    ],
)
def test_a_whole_but_unreadable_row_is_a_usage_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "results.csv").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'results.csv'}: {message}")


def test_reading_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none.csv: got nothing, expected a results file"):
        read(tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text("")
    assert read(tmp_path / "empty.csv") == []


def test_rows_of_another_version_are_not_mixed_in(run: RunFolder) -> None:
    run.results_path.write_text("schema,case_id,launch,status\n1,a,1,ok\n")
    before = run.results_path.read_bytes()
    with pytest.raises(UsageError, match="got the columns of another version"):
        run.append([record(1)])
    assert run.results_path.read_bytes() == before
    assert [one.case_id for one in run.read()] == ["a"]


@pytest.mark.parametrize("saved", [("\n", "\r\n"), ("schema", "\ufeffschema")])
def test_a_file_that_an_editor_saved_is_told_as_that(run: RunFolder, saved: tuple[str, str]) -> None:
    run.append([record(1)])
    run.unlock()
    text = run.results_path.read_text().replace(*saved)
    run.results_path.write_bytes(text.encode())
    with pytest.raises(UsageError, match="got line ends or a byte order mark of an editor or a table program"):
        run.append([record(2)])
    assert run.results_path.read_bytes() == text.encode()
    assert run.read() == [record(1)]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG])
@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("rows_before", [0, 1])
def test_a_disk_that_fails_leaves_whole_rows(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, error: int, call: str, rows_before: int
) -> None:
    if rows_before:
        run.append([record(1)])
    original = getattr(os, call)

    def fail(descriptor: int, *content: bytes) -> None:
        if content:
            os.pwrite(descriptor, content[0][:100], 0)  # appends: the descriptor is O_APPEND
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(CollbenchError, match=f"results.csv: could not append rows: {os.strerror(error)}; ") as caught:
        run.append([record(2), record(3)])
    assert caught.value.exit_code == 1
    monkeypatch.setattr(os, call, original)
    assert run.results_path.read_bytes().count(b"\n") == 2 * rows_before
    run.append([record(4)])
    assert run.read() == [*[record(1)][:rows_before], record(4)]


def test_a_short_write_leaves_whole_rows(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run.append([record(1)])
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:-5]))
    with pytest.raises(CollbenchError, match=r"could not append rows: only \d+ of \d+ bytes were taken; make room"):
        run.append([record(2), record(3)])
    assert run.read() == [record(1)]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tiny"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if not AS_ROOT or subprocess.run(command, capture_output=True, check=False, timeout=30).returncode != 0:
        pytest.skip("no right to mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True, timeout=30)


def test_a_full_disk_ends_with_whole_rows(tiny_disk: Path) -> None:
    with RunFolder.create("x", tiny_disk / "run") as run:
        appended = 0

        def fill() -> None:
            nonlocal appended
            while True:
                run.append([record(appended, reason="x" * 500), record(appended + 1)])
                appended += 2

        with pytest.raises(CollbenchError, match=r"could not append rows: .*; make room and resume the run"):
            fill()
        assert appended > 20
        assert len(run.read()) == appended
        with pytest.raises(CollbenchError, match="make room"):
            run.write_environment(1, {"x": "y" * 70_000})
        with pytest.raises(CollbenchError, match="make room"):
            run.set_pending("y" * 70_000)
        assert not [path for path in run.path.iterdir() if path.name.startswith(".")]
        assert run.write_fault(3, {"reason": "y" * 70_000}) is False
        assert len(run.read()) == appended


def test_a_read_only_folder_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir(mode=0o555)
    code = (
        "import os\nfrom collbench.errors import UsageError\nfrom collbench.record import Record\n"
        f"os.chdir({str(path)!r})\n"
        "if os.geteuid() == 0:\n  os.seteuid(65534)\n"  # root may write everywhere
        "run = RunFolder(Path())\nassert run.write_fault(0, {}) is False\n"
        "row = Record(launch=1, case_id='a', status='ok')\n"
        "try:\n  run.append([row])\nexcept UsageError as error:\n  print(error)\n"
    )
    with in_another_process(path, code) as other:
        told = other.communicate(timeout=30)[0]
    assert "could not lock the run folder: Permission denied; choose a folder that you may write to" in told
    assert list(path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_read_only_disk_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    run = RunFolder(tmp_path)
    with pytest.raises(UsageError, match=r"could not lock the run folder: .*; choose a folder that you may write to"):
        run.append([record(1)])
    assert run.write_fault(0, {}) is False


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
