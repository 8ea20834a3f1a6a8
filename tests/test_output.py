"""Outputs that are full, closed or broken: a command that prints says so, a run goes on."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

import launching
from collbench import output
from collbench.errors import CollbenchError


class Full(io.StringIO):
    """A full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_run_goes_on_without_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (Full(), Path("/dev/full").open("w")):  # noqa: SIM115
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        output.tell("x")
        output.complain("x")
        stream.close()


def test_what_cannot_be_delivered_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(CollbenchError, match="standard output: could not print: No space left on device, expected "):
        output.deliver("x")
    kept = io.StringIO()
    monkeypatch.setattr(sys, "stdout", kept)
    output.deliver("x\n")
    assert kept.getvalue() == "x\n"


SHELLS = [("> /dev/full", "No space left"), (">&-", "Bad file descriptor"), (">&- <&-", "Bad file descriptor")]


@pytest.mark.parametrize(("redirection", "says"), SHELLS)
@pytest.mark.parametrize("command", ["schema", "--version"])
def test_a_command_that_prints_says_that_it_could_not(command: str, redirection: str, says: str) -> None:
    done = launching.run(["sh", "-c", f'"{sys.executable}" -m collbench {command} {redirection}'], timeout=30)
    done.expect(1)
    assert done.err.startswith(f"collbench: standard output: could not print: {says}")
    assert done.err.count("\n") == 1


def test_an_error_reaches_no_output_in_place_of_a_closed_one() -> None:
    done = launching.run(["sh", "-c", f'"{sys.executable}" -m collbench show nothing 2>&-'], timeout=30).expect(2)
    assert done.out == ""


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f'"{sys.executable}" -m collbench schema; echo "code $?" >&2'
    done = subprocess.run(
        ["bash", "-c", f"( {command} ) | true"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stderr == "code 0\n"
