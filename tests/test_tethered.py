"""Programs that end with their rank, and in time."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import launching
from collbench.tethered import Tethered


def test_what_it_says_and_how_it_ends() -> None:
    with Tethered(["sh", "-c", "echo out; echo one >&2; echo two >&2; exit 3"]) as program:
        assert program.wait(20) == 3
    assert (program.out, program.last_words) == ("out\n", "one; two")
    with Tethered(["sh", "-c", "echo first; echo last"]) as program:
        program.wait(20)
    assert program.last_words == "last"
    with Tethered(["true"]) as program:
        program.wait(20)
    assert program.last_words == "it said nothing"


def test_a_program_that_is_not_there_is_a_failure() -> None:
    with Tethered(["/nowhere/ib_write_bw"]) as program:
        assert program.wait(20) == 1
    assert program.last_words.startswith("/nowhere/ib_write_bw: ")


def test_it_is_ended_when_its_time_is_up() -> None:
    began = time.monotonic()
    with Tethered(["sleep", "60"]) as program:
        assert program.wait(0.1) is None
    assert program.code is None
    assert time.monotonic() - began < 20


def test_it_is_ended_with_the_block() -> None:
    with Tethered(["sleep", "60"]) as program:
        process = program._process
    assert process.returncode == -signal.SIGKILL


def test_signals_that_a_rank_blocks_reach_it() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        with Tethered(["sh", "-c", "kill -TERM $$; sleep 60"]) as program:
            assert program.wait(20) == -signal.SIGTERM
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def test_it_does_not_outlive_a_rank_that_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        "import time; from collbench.tethered import Tethered; "
        f"Tethered(['sh', '-c', 'echo $$ >{pid}; exec sleep 600']); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as rank:
        deadline = time.monotonic() + 20
        while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < deadline:
            time.sleep(0.02)
        child = int(pid.read_text())
        assert Path(f"/proc/{child}").exists()
        rank.kill()
    deadline = time.monotonic() + 10
    while any(one.pid == child for one in launching._processes()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert all(one.pid != child for one in launching._processes())


def test_it_waits_for_a_listener_and_not_for_one_that_is_gone() -> None:
    with socket.create_server(("", 0)) as free:
        taken = free.getsockname()[1]
        with Tethered(["sleep", "60"]) as program:
            assert program.listens(taken, 20)
    with Tethered(["sleep", "60"]) as program:
        assert not program.listens(taken, 0.1)
    with Tethered(["true"]) as program:
        began = time.monotonic()
        assert not program.listens(taken, 20)
        assert time.monotonic() - began < 15
