"""Launchers behind a prefix, such as the words that enter a container, and what is started there."""

from pathlib import Path

import pytest

from collbench import launch
from collbench.errors import CannotRun
from collbench.launch import Signals, Starter
from collbench.launcher import Launcher, command_of, find_launcher
from collbench.results import RunFolder

MPIRUN = """#!/bin/sh
if [ "$1" = --version ]; then echo "HYDRA"; exit 0; fi
echo "$PREFIXED $SETTING $*" > "$RUN/notes"
echo '{"exit_code": 0}' > "$RUN/ended-$COLLBENCH_LAUNCHED.json"
"""
CLEARED = """#!/bin/sh
exec env -i PATH="$PATH" PREFIXED=yes RUN="$RUN" "$@"
"""


@pytest.fixture
def bin_of(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("mpirun", MPIRUN), ("enter", CLEARED)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def test_the_mpirun_behind_a_prefix_is_what_answers_there(bin_of: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter = [str(bin_of / "enter")]
    assert find_launcher("", str(bin_of / "python"), enter) == Launcher(str(bin_of / "mpirun"), "mpich")
    monkeypatch.setenv("PATH", str(bin_of), prepend=":")
    assert find_launcher("", "/elsewhere/python", enter) == Launcher("mpirun", "mpich")


def test_a_prefix_that_starts_nothing_is_one_sentence(bin_of: Path) -> None:
    with pytest.raises(CannotRun, match=r"expected a command that starts what follows it"):
        find_launcher("", "", ["/no/such/podman", "run"])
    with pytest.raises(CannotRun, match=r"false mpirun --version: got 'nothing', expected an MPI's answer; name its"):
        find_launcher("", "/elsewhere/python", ["false"])


def test_what_the_launch_needs_comes_behind_the_prefix(
    bin_of: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has an environment of its own, which has neither our settings nor the word that names the start."""
    monkeypatch.setattr(launch, "_LAST_WORD_S", 0.2)
    folder = RunFolder.create("x", tmp_path / "run")
    folder.write_scenario("schema = 1")
    monkeypatch.setenv("RUN", str(folder.path))
    words, variables = command_of(Launcher(str(bin_of / "mpirun"), "mpich"), 2)
    enter = (str(bin_of / "enter"),)
    starter = Starter(
        folder, 2, 1, words, variables | {"SETTING": "a b"}, quiet=True, python="/its/python", prefix=enter
    )
    with Signals() as signals:
        assert starter.start(signals, None, "--launch", "0") == 0
    assert (folder.path / "notes").read_text().startswith("yes a b -n 2 ")
    assert " /its/python -m collbench run " in (folder.path / "notes").read_text()
