"""Command lines for each kind of launcher, the order of launches, and what a launcher's ending is made into."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench import launch
from collbench.errors import CannotRun, UsageError
from collbench.launch import LaunchOptions
from collbench.launcher import Launcher, command_of, find_launcher
from collbench.scenario import load

SCENARIO = """
schema = 1
title = "variants"
[[sweep]]
collectives = ["all_reduce"]
sizes = ["8 B"]
"""
VARIANTS = "".join(f'[[variant]]\nname = "{name}"\nenv = {{ UCX_TLS = "{name}" }}\n' for name in "abc")

Fake = Callable[..., str]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Make a launcher: a shell script that says its version, and does `body` when it is to start ranks."""

    def make(says: str, body: str = "exit 0", name: str = "mpirun") -> str:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{says}"; exit 0; fi\n{body}\n')
        path.chmod(0o755)
        return str(path)

    return make


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("mpirun (Open MPI) 5.0.11", "openmpi"),
        ("prterun (PRRTE) 3.0", "openmpi"),
        ("HYDRA build details:", "mpich"),
        ("Acme MPI 1", "other"),
    ],
)
def test_kinds_of_launchers(says: str, kind: str, fake: Fake) -> None:
    path = fake(says)
    assert find_launcher(path) == Launcher(path, kind)


def test_srun_is_told_by_its_name(fake: Fake) -> None:
    path = fake("slurm 23", name="srun")
    assert find_launcher(path) == Launcher(path, "srun")


def test_a_launcher_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="--launcher: got '/no/such/mpirun'"):
        find_launcher("/no/such/mpirun")


def test_no_launcher_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotRun, match="mpirun: got none beside Python or on PATH"):
        find_launcher()


def test_the_launcher_beside_python_comes_first(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> None:
    path = Path(fake("Open MPI"))
    monkeypatch.setattr(sys, "executable", str(path.with_name("python")))
    assert find_launcher().path == str(path)


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("kind", "ranks", "more", "words"),
    [
        ("openmpi", 4, "", ["--bind-to", "core"]),
        ("openmpi", 5, "", ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]),
        ("openmpi", 4, "--host a:2,b:2", ["--host", "a:2,b:2"]),
        ("mpich", 4, "", ["-bind-to", "core"]),
        ("mpich", 5, "", ["-bind-to", "none"]),
        ("mpich", 5, "-f hosts", ["-f", "hosts"]),
        ("srun", 5, "--mpi=pmix", ["--mpi=pmix"]),
        ("other", 5, "", []),
    ],
)
def test_command_lines(kind: str, ranks: int, more: str, words: list[str]) -> None:
    command, _ = command_of(Launcher("/x/mpirun", kind), ranks, more)
    assert command == ["/x/mpirun", "-n", str(ranks), *words]


def test_root_is_allowed_where_open_mpi_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for user, kind, expected in ((0, "openmpi", allowed), (1000, "openmpi", {}), (0, "mpich", {})):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert command_of(Launcher("mpirun", kind), 2)[1] == expected


def test_an_open_quote_is_told() -> None:
    with pytest.raises(UsageError, match="--launcher-args: got "):
        command_of(Launcher("mpirun", "other"), 2, "--x 'y")


def scenario_file(tmp_path: Path, more: str = "") -> str:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO + more)
    return str(path)


def test_each_round_has_every_variant_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    scenario = load(scenario_file(tmp_path, VARIANTS))
    order = [(number, variant.name) for number, variant in launch._order(scenario, 6) if variant is not None]
    assert [number for number, _ in order] == [number for number in range(6) for _ in range(3)]
    rounds = [tuple(name for number, name in order if number == one) for one in range(6)]
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)
    assert len(set(rounds)) > 1
    again = [(number, variant.name) for number, variant in launch._order(scenario, 6) if variant is not None]
    assert again == order


def test_without_variants_there_is_one_start_a_launch(tmp_path: Path) -> None:
    assert list(launch._order(load(scenario_file(tmp_path)), 3)) == [(0, None), (1, None), (2, None)]


# Stands for mpirun and rank 0: writes down what it was started with, then does what a rank would leave.
NOTE = 'echo "$UCX_TLS $*" >> "$NOTES"\n'
ENDS = 'echo "{{\\"exit_code\\": {0}}}" > "$RUN/ended-$COLLBENCH_LAUNCHED.json"; exit {0}'


@pytest.fixture
def run(tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[str]]]:
    """Launch with a fake mpirun: the exit code, and the command lines that it was started with."""
    monkeypatch.setattr(launch, "compile_kernels", lambda *given: None)
    monkeypatch.setattr(launch, "_LAST_WORD_S", 0.2)

    def go(body: str, more: str = "", launches: int = 1, **options: Any) -> tuple[int, list[str]]:
        folder, notes = tmp_path / "run", tmp_path / "notes"
        monkeypatch.setenv("NOTES", str(notes))
        monkeypatch.setenv("RUN", str(folder))
        path = fake("HYDRA", NOTE + body)
        told = LaunchOptions(scenario_file(tmp_path, more), 2, launches, path, output=folder, quiet=True)
        return launch.launch(replace(told, **options)), notes.read_text().splitlines()

    return go


Run = Callable[..., tuple[int, list[str]]]


def test_variants_are_started_with_their_settings(run: Run) -> None:
    code, notes = run(ENDS.format(0), VARIANTS, launches=2)
    assert code == 0
    assert len(notes) == 6
    for note in notes:
        variant = note.split()[0]
        assert note.endswith(f" --variant {variant} --quiet")
        assert " --launches 2 --launch " in note
        assert f"{sys.executable} -m collbench run " in note


def test_a_launcher_that_did_not_come_up_is_started_once_more(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    code, notes = run('[ "$(wc -l <"$NOTES")" -gt 1 ] || exit 213\n' + ENDS.format(0))
    assert (code, len(notes)) == (0, 2)
    assert "did not come up (exit code 213) and started nothing; once more" in capfd.readouterr().err


def test_one_that_never_comes_up_is_started_twice_and_told(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    code, notes = run("exit 213\n")
    assert (code, len(notes)) == (1, 2)
    assert "ended with exit code 213 and no rank left a word" in capfd.readouterr().err


@pytest.mark.parametrize("code", [0, 1, 3, 4, 7])
def test_an_ending_in_order_gives_the_exit_code(code: int, run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(ENDS.format(code))[0] == code
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("codes", "expected", "starts"), [((3, 0), 3, 2), ((7, 0), 7, 2), ((4, 0), 4, 1), ((1, 0), 1, 1)]
)
def test_the_worst_launch_counts_and_a_broken_one_is_the_last(
    codes: tuple[int, int], expected: int, starts: int, run: Run
) -> None:
    body = f'if [ $(wc -l < "$NOTES") = 1 ]; then {ENDS.format(codes[0])}; else {ENDS.format(codes[1])}; fi'
    code, notes = run(body, launches=2)
    assert (code, len(notes)) == (expected, starts)


def test_a_resume_goes_on_after_a_launch_that_broke(run: Run) -> None:
    """A case that always ends its launch must not keep the launches behind it from theirs."""
    assert len(run(ENDS.format(4), launches=3)[1]) == 1
    code, notes = run(ENDS.format(4), launches=None, resume=True)
    assert (code, len(notes)) == (4, 1 + 3)
    assert [note.split("--launch ")[1].split()[0] for note in notes[1:]] == ["0", "1", "2"]


def test_launches_are_counted_though_nobody_reads(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code, notes = run(ENDS.format(0), launches=3, quiet=False)
    assert (code, len(notes)) == (0, 3)
    assert capfd.readouterr().err == ""


def test_quiet_is_the_path_of_the_results_once(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(f'touch "$RUN/results.csv"; {ENDS.format(0)}', launches=2)
    assert capfd.readouterr().out == "run/results.csv\n"


def test_each_start_has_an_ending_of_its_own(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = 'echo "{\\"exit_code\\": 3}" > "$RUN/ended-other.json"; '
    assert run(ENDS.format(0).replace("; exit", f"; {other} exit"))[0] == 0
    assert capfd.readouterr().err == ""
    assert [path.name for path in (tmp_path / "run").glob("ended*")] == ["ended-other.json"]


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ("exit 5", 1, "mpirun ended with exit code 5 and no rank left a word"),
        ("exit 9", 1, "mpirun ended with exit code 9 (a rank died of SIGKILL, it seems) and no rank left a word"),
        ("exit 7", 7, "mpirun ended with exit code 7"),
        ("kill -9 $$", 1, "mpirun ended with signal SIGKILL and no rank left a word"),
        ("exit 0", 1, "mpirun ended with exit code 0 and no rank left a word in the run folder; is /"),
    ],
)
def test_an_ending_without_a_word(body: str, code: int, says: str, run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(body)[0] == code
    assert capfd.readouterr().err.startswith(f"collbench: {says}")


WORD = (
    'mkdir -p "$RUN/faults"; echo "{{\\"start\\": \\"$COLLBENCH_LAUNCHED\\", \\"reason\\": \\"because\\", '
    '\\"exit_code\\": {code}, \\"host\\": \\"h\\", \\"phase\\": \\"sample\\"}}" > "$RUN/faults/rank-{rank}.jsonl"\n'
)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (WORD.format(rank=1, code=1), 1, "rank 1 on h: because (phase sample)"),
        (WORD.format(rank=0, code=4), 4, "rank 1 left no word (stopped, stuck or gone); rank 0 on h: because"),
        (WORD.format(rank=0, code=130) + WORD.format(rank=1, code=130), 130, "rank 0 on h: because (phase sample)"),
    ],
)
def test_a_rank_s_last_word_is_told(
    words: str, code: int, says: str, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(words + "exit 1")[0] == code
    assert capfd.readouterr().err.startswith(f"collbench: {says}")


def test_words_of_an_earlier_start_are_not_told(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run(WORD.format(rank=1, code=1).replace("$COLLBENCH_LAUNCHED", "earlier") + "exit 1")
    assert "no rank left a word" in capfd.readouterr().err


def test_a_launcher_that_goes_on_after_a_rank_s_last_word_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_LOOK_S", 0.1)
    monkeypatch.setattr(launch, "_TERM_GRACE_S", 0.5)
    assert run(f"trap '' TERM\n{WORD.format(rank=1, code=4)}sleep 100 & wait; wait; sleep 100")[0] == 4


def test_a_launcher_that_starts_nothing_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_LOOK_S", 0.1)
    monkeypatch.setattr(launch, "_START_LIMIT_S", 0.5)
    monkeypatch.setattr(launch, "_TERM_GRACE_S", 0.5)
    assert run("exec sleep 100")[0] == 1


def test_a_folder_with_a_run_is_not_begun_again(run: Run) -> None:
    run(ENDS.format(0))
    with pytest.raises(UsageError, match=r"got a folder with a run in it, expected a new one; .*--resume"):
        run(ENDS.format(0))
