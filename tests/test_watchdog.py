"""The watchdog, each time in a process of its own, since it ends the process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

SETUP = """
import json, os, signal, sys, threading, time
from collbench import watchdog
from collbench.errors import CollbenchError, UsageError
watchdog.SETTLE_S = 0.2
watchdog.block_signals()
dog = watchdog.Watchdog(3)
told = os.environ.get("TOLD") == "1"
def keep(fault):
    with open("fault", "a") as file:
        file.write(json.dumps(fault) + "\\n")
    return told
dog.on_fault = keep
dog.on_death = lambda fault: open("death", "w").close()
dog.start()
def work():
    end = time.monotonic() + 20
    while time.monotonic() < end:
        time.sleep(0.01)
"""


def run(body: str, folder: Path, **more: str) -> tuple[int, str, dict[str, Any]]:
    """Run a body after the set-up: exit code, stderr and the fault."""
    done = subprocess.run(
        [sys.executable, "-c", SETUP + body], cwd=folder, capture_output=True, text=True, timeout=60, env=_env() | more
    )
    return done.returncode, done.stderr, _fault(folder)


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _fault(folder: Path) -> dict[str, Any]:
    path = folder / "fault"
    if not path.exists():
        return {}
    (line,) = path.read_text().splitlines()
    fault: dict[str, Any] = json.loads(line)
    return fault


def test_a_phase_that_takes_too_long_ends_the_process(tmp_path: Path) -> None:
    code, err, fault = run('dog.enter("sample", 0.3, "all_reduce 8 B", "c1"); work()', tmp_path)
    assert code == 4
    assert fault["rank"] == 3
    assert fault["host"] == os.uname().nodename
    assert (fault["phase"], fault["case"], fault["case_id"]) == ("sample", "all_reduce 8 B", "c1")
    assert fault["reason"].startswith("no progress for 0.3 s;")
    assert fault["at"].endswith(" in work")
    assert err.count("collbench: rank 3 on ") == 1
    assert "(phase sample of all_reduce 8 B)" in err
    assert (tmp_path / "death").exists()


def test_what_somebody_else_tells_is_not_printed(tmp_path: Path) -> None:
    code, err, fault = run('dog.enter("sample", 0.3); work()', tmp_path, TOLD="1")
    assert (code, err) == (4, "")
    assert fault["exit_code"] == 4


def test_progress_extends_a_phase_and_another_phase_begins_anew(tmp_path: Path) -> None:
    body = """
dog.enter("sample", 1.0)
for _ in range(5):
    time.sleep(0.4)
    dog.extend()
for _ in range(5):
    time.sleep(0.4)
    dog.enter("verify", 1.0)
dog.stop()
print(dog.phase.name)
"""
    assert run(body, tmp_path) == (0, "", {})


def test_a_stopped_watchdog_lets_the_process_be(tmp_path: Path) -> None:
    assert run('dog.enter("x", 0.5); dog.stop(); time.sleep(1)', tmp_path) == (0, "", {})


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_process_that_is_in_compiled_code(name: str, tmp_path: Path) -> None:
    body = (
        f'threading.Timer(0.3, os.kill, (os.getpid(), signal.{name})).start(); __import__("ctypes").CDLL(None).pause()'
    )
    code, err, fault = run(body, tmp_path)
    assert code == 130
    assert fault["reason"].startswith(f"got {name}: ")
    assert f"got {name}" in err


def test_a_process_that_stood_still_says_so(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SETUP + 'dog.enter("sample", 60); open("ready", "w"); work()'], cwd=tmp_path, env=_env()
    )
    try:
        _until((tmp_path / "ready").exists)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2.0)
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()
    assert "after it had stood still for 2." in _fault(tmp_path)["reason"]


def test_a_process_whose_parent_is_gone_ends(tmp_path: Path) -> None:
    program = tmp_path / "rank.py"
    program.write_text(SETUP + 'open("ready", "w"); work(); open("survived", "w")')
    parent = f"import os, subprocess, sys, time; p = subprocess.Popen([sys.executable, {str(program)!r}])\n"
    parent += 'while not os.path.exists("ready"): time.sleep(0.02)\nprint(p.pid)'
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", parent],
        cwd=tmp_path,
        env=_env(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    _until((tmp_path / "death").exists)
    assert _fault(tmp_path)["reason"].startswith("the launcher is gone")
    assert not (tmp_path / "survived").exists()


def test_an_error_that_all_ranks_end_with_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    code, err, fault = run('dog.tell(UsageError("x: got y")); dog.stop()', tmp_path)
    assert (code, err) == (0, "collbench: x: got y\n")
    assert fault["everyone"] is True
    assert fault["exit_code"] == 2


def test_of_two_threads_that_die_one_tells(tmp_path: Path) -> None:
    body = """
error = CollbenchError("one")
threading.Thread(target=lambda: dog.die(error, settle=True), daemon=True).start()
dog.die(error, settle=True)
"""
    code, err, fault = run(body, tmp_path)
    assert code == 1
    assert err.count("collbench: ") == 1
    assert fault["reason"] == "one"


def test_what_nobody_reads_does_not_keep_the_case_from_its_row(tmp_path: Path) -> None:
    body = "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 2)\ndog.enter('sample', 0.2); work()"
    assert run(body, tmp_path)[0] == 4
    assert (tmp_path / "death").exists()


def test_a_report_that_fails_does_not_keep_the_process_alive(tmp_path: Path) -> None:
    body = 'dog.on_fault = lambda fault: 1 / 0\ndog.enter("sample", 0.2); work()'
    assert run(body, tmp_path)[0] == 4


def test_a_thread_that_holds_the_gil_is_ended_by_the_c_timer(tmp_path: Path) -> None:
    body = 'watchdog.BACKUP_S = 1.0\ntime.sleep(0.6)\n__import__("ctypes").PyDLL(None).sleep(20)'
    began = time.monotonic()
    code, err, _ = run("dog.stop()\n" + body.replace("time.sleep(0.6)", _RESTART), tmp_path)
    assert code == 1
    assert "Timeout" in err
    assert time.monotonic() - began < 15


_RESTART = "dog = watchdog.Watchdog(3); dog.start(); time.sleep(0.6)"


def _until(true: Any, limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
