import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from collbench.record import Record
from collbench.table import Table, is_terminal, varying

ROOT = Path(__file__).resolve().parent.parent
OK = Record(
    launch=1,
    case_id="c0ffee",
    status="ok",
    collective="all_reduce",
    backend="mpi",
    dtype="float32",
    operation="sum",
    placement="out_of_place",
    size_bytes=64 << 20,
    count=16 << 20,
    time_p50_s=12.34e-3,
    time_p50_low_s=12.2e-3,
    time_p50_high_s=12.5e-3,
    time_p99_s=31e-3,
    algbw_GBps=5.4382,
    busbw_GBps=10.876,
    wrong=0,
)


def changed(**values: Any) -> Record:
    return Record(**{name: getattr(OK, name) for name in Record.__slots__} | values)


def printed(*records: Record, columns: tuple[str, ...] = (), **options: Any) -> list[str]:
    stream = io.StringIO()
    shown = Table(stream, columns, **options)
    for record in records:
        shown.row(record)
    return stream.getvalue().splitlines()


def test_a_row_shows_what_nccl_tests_shows() -> None:
    titles, units, row = printed(OK)
    assert titles.split() == ["#", "size", "count", "dtype", "op", "time", "95", "%", "p99", "algbw", "busbw", "wrong"]
    assert units.split() == ["#", "GB/s", "GB/s"]
    # 12.5 is 1.3 % above the median, 12.2 is 1.1 % below: the wider side counts.
    cells = ["64", "MiB", "16777216", "float32", "sum", "12.3", "ms", "±1.3%", "31", "ms", "5.44", "10.9", "0"]
    assert row.split() == cells


def test_columns_stand_under_their_titles() -> None:
    small = changed(
        size_bytes=8, count=2, time_p50_s=1e-6, time_p50_low_s=1e-6, time_p50_high_s=3e-6, algbw_GBps=0.0064
    )
    titles, units, *rows = printed(OK, small, columns=("mode", "placement"))
    for title in ("size", "count", "time", "p99", "algbw", "busbw", "wrong"):
        end = titles.index(title) + len(title)
        assert all(row[end - 1] != " " and row[end : end + 1] in ("", " ") for row in rows), title
    for title in ("mode", "place", "dtype", "op"):
        start = titles.index(title)
        assert all(row[start - 1] == " " and row[start] != " " for row in rows), title
    assert units.index("GB/s") + 4 == titles.index("algbw") + 5


def test_what_varies_gets_a_column() -> None:
    assert varying([OK, changed(size_bytes=8)]) == ()
    other = changed(placement="in_place", collective="barrier")
    assert varying([OK, other]) == ("collective", "placement")
    assert varying(iter([OK, other])) == ("collective", "placement")
    rows = printed(OK, other, columns=("collective", "placement"))[2:]
    assert [row.split()[:2] for row in rows] == [["all_reduce", "out"], ["barrier", "in"]]


def test_what_was_not_measured_is_a_dash() -> None:
    row = printed(changed(operation=None, wrong=None, algbw_GBps=None, busbw_GBps=None, time_p50_low_s=None))[2]
    assert row.split() == ["64", "MiB", "16777216", "float32", "-", "12.3", "ms", "31", "ms", "-", "-", "-"]


def test_notes_stand_at_the_end() -> None:
    assert printed(changed(notes="timer_floor noisy"))[2].endswith("  timer_floor noisy")


@pytest.mark.parametrize("status", ["skipped", "failed", "timeout"])
def test_a_row_without_times_says_why_in_one_line(status: str) -> None:
    lines = printed(changed(status=status, size_bytes=None, requested_bytes=8, count=None, reason="no\ndevice here"))
    assert len(lines) == 3
    assert lines[2].split() == ["8", "B", "-", "float32", "sum", f"{status}:", "no", "device", "here"]
    assert printed(changed(status=status, reason=None))[2].endswith(f"  {status}")


def test_a_wrong_row_shows_the_first_wrong_element() -> None:
    values = {
        "algbw_GBps": None,
        "busbw_GBps": None,
        "wrong": 12,
        "first_wrong": 7,
        "first_got": "1.0",
        "first_expected": "2.0",
    }
    assert printed(changed(status="wrong", **values))[2].split("31 ms")[1].split() == [
        "-", "-", "12", "wrong:", "first", "at", "7:", "got", "1.0,", "expected", "2.0",
    ]  # fmt: skip
    assert printed(changed(status="wrong", reason="rank 3: recv[7]", **values))[2].endswith(
        "12  wrong: rank 3: recv[7]"
    )


def test_the_closing_line_counts() -> None:
    stream = io.StringIO()
    shown = Table(stream)
    for status in ("ok", "ok", "skipped", "wrong"):
        shown.row(changed(status=status))
    shown.line("a comment")
    shown.rule()
    shown.close(["results/x/results.csv"])
    comment, rule, empty, counts, path = stream.getvalue().splitlines()[-5:]
    assert (comment, empty, path) == ("# a comment", "#", "# results/x/results.csv")
    assert set(rule) == {"#", "-"}
    assert counts.startswith("# 4 rows in ")
    assert counts.endswith(": 2 ok, 1 wrong, 1 skipped")


def test_an_empty_table_closes() -> None:
    stream = io.StringIO()
    Table(stream).close()
    assert stream.getvalue().splitlines()[-1].startswith("# 0 rows in ")


def test_quiet_prints_nothing() -> None:
    stream = io.StringIO()
    shown = Table(stream, quiet=True, terminal=True)
    shown.line("x")
    shown.rule()
    shown.row(OK)
    shown.progress(1, 2)
    shown.close(["path"])
    assert stream.getvalue() == ""


def test_a_pipe_gets_plain_lines() -> None:
    stream = io.StringIO()
    shown = Table(stream)
    shown.progress(1, 2, 60.0, "all_reduce")
    shown.row(OK)
    assert not set(stream.getvalue()) & set("\r\x1b\b")
    assert stream.getvalue().count("\n") == 3


def test_a_terminal_gets_a_progress_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    now = 0.0
    monkeypatch.setattr("collbench.table.time.monotonic", lambda: now)
    stream = io.StringIO()
    shown = Table(stream, terminal=True)
    shown.progress(3, 20, 89.6, "all_reduce 8 B")
    assert stream.getvalue() == "\r3/20, about 90 s left  all_reduce 8 B"
    shown.progress(4, 20)
    assert "4/20" not in stream.getvalue()
    now = 1.0
    shown.progress(4, 20)
    assert stream.getvalue().endswith("\r4/20" + " " * (len("3/20, about 90 s left  all_reduce 8 B") - 4))
    now = 2.0
    shown.progress(5, 20, 1.0, "x" * 100)
    assert len(stream.getvalue().rsplit("\r", 1)[1]) == 59
    before = len(stream.getvalue())
    shown.line("next")
    assert stream.getvalue()[before:] == "\r" + " " * 59 + "\r# next\n"


def test_a_terminal_without_width_is_a_file_at_last() -> None:
    # Open MPI gives its ranks a terminal of no width, wherever its own output goes.
    leader, follower = pty.openpty()
    with os.fdopen(leader, "wb", buffering=0), os.fdopen(follower, "w") as stream:
        assert stream.isatty()
        assert not is_terminal(stream)
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        assert is_terminal(stream)
    assert not is_terminal(io.StringIO())


def test_a_stream_that_knows_no_plus_minus() -> None:
    content = io.BytesIO()
    stream = io.TextIOWrapper(content, encoding="ascii")
    Table(stream).row(changed(notes="é"))
    titles, _, row = content.getvalue().decode("ascii").splitlines()
    assert "  +-1.3%  " in row
    assert titles.index("p99") + 3 == row.index("31 ms") + 5
    assert row.endswith("?")


def test_a_reader_that_leaves_does_not_end_the_run() -> None:
    code = (
        "import sys\nfrom collbench.table import Table\n"
        "shown = Table(sys.stdout)\nshown.line('first')\nsys.stdin.read()\n"
        "for number in range(3):\n  shown.line(str(number))\nshown.close()\nsys.stderr.write('lived')\n"
    )
    # Empty means unset: a buffered stream still holds what the pipe refused.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, env=environment, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "# first\n"
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == "lived"
        assert process.wait(timeout=30) == 0
