import errno
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from collbench import results_text
from collbench.errors import CollbenchError, UsageError
from collbench.record import HEADER, Record, to_row
from collbench.results import RunFolder, read

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
    short = results_text.line_of(to_row(record(2, reason=reason, variant='"quoted, twice"'))[:cells])
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
