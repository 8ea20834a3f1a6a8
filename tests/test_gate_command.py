"""`collbench compare` and `collbench baseline` as commands: exit codes, options, and what they refuse."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.cli import main
from compared_rows import ENVIRONMENT, run, write

Out = pytest.CaptureFixture[str]


@pytest.fixture
def folders(tmp_path: Path) -> Callable[..., list[str]]:
    def made(factor: float = 1.0, **more: object) -> list[str]:
        base = write(tmp_path / "base", run())
        new = write(tmp_path / "new", run(factor, seed=2, **more))  # type: ignore[arg-type]
        return [str(base), str(new / "results.csv")]

    return made


@pytest.mark.parametrize(
    ("factor", "code", "word"), [(1.0, 0, "same"), (0.7, 0, "faster"), (1.3, 5, "slower"), (1.1, 6, "unclear")]
)
def test_exit_codes(folders: Callable[..., list[str]], capsys: Out, factor: float, code: int, word: str) -> None:
    assert main(["compare", *folders(factor)]) == code
    assert capsys.readouterr().out.endswith(f"overall: {word} (exit code {code})\n")


def test_options_reach_the_rules(folders: Callable[..., list[str]], capsys: Out) -> None:
    words = ["--threshold", "40 %", "--floor", "2 ms", "--bands", "latency,bandwidth", "--format", "json"]
    assert main(["compare", *folders(1.3), *words]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["threshold"], content["floor_s"]) == (0.4, 0.002)
    assert [one["name"] for one in content["decisions"]] == ["latency", "bandwidth", "any one case"]


def test_cases_can_be_named(folders: Callable[..., list[str]], capsys: Out) -> None:
    assert main(["compare", *folders(1.3), "--case", "all_reduce B mpi", "--case", "c1024", "--format", "json"]) == 5
    content = json.loads(capsys.readouterr().out)
    assert (content["decided_by"], len(content["decisions"])) == ("cases", 2)


def test_another_library_is_refused_unless_it_is_what_is_tested(folders: Callable[..., list[str]], capsys: Out) -> None:
    its = folders(library="Open MPI v6")
    assert main(["compare", *its]) == 2
    assert capsys.readouterr().err == (
        "collbench: compare: library: got Open MPI v6 in NEW, expected Open MPI v5.0.11 as in BASE; "
        "`--across library` says that this is what is tested\n"
    )
    assert main(["compare", *its, "--across", "library"]) == 0
    assert "note: library differs: Open MPI v5.0.11 in BASE, Open MPI v6 in NEW" in capsys.readouterr().out


def test_an_axis_may_be_what_is_tested(tmp_path: Path, capsys: Out) -> None:
    base = write(tmp_path / "a", run(variant="ring"))
    other = [replace(one, variant="tree", case_id=f"d{one.case_id}") for one in run(1.3, seed=2)]
    new = write(tmp_path / "b", other)
    assert main(["compare", str(base), str(new)]) == 5
    assert "missing" in capsys.readouterr().out
    assert main(["compare", str(base), str(new), "--across", "variant"]) == 5
    assert "overall: slower" in capsys.readouterr().out


def test_a_missing_environment_is_told(tmp_path: Path, capsys: Out) -> None:
    base = write(tmp_path / "base", run())
    new = write(tmp_path / "new", run(seed=2), None)
    assert main(["compare", str(base), str(new)]) == 0
    assert capsys.readouterr().out.startswith("note: NEW has no environment.json beside it: driver, cpu, packages and ")


def test_the_baseline_that_was_added_is_the_one_to_compare_with(tmp_path: Path, capsys: Out) -> None:
    kept = str(tmp_path / "kept")
    base, new = write(tmp_path / "base", run()), write(tmp_path / "new", run(1.3, seed=2))
    assert main(["baseline", "add", str(base), "--to", kept, "--commit", "abc"]) == 0
    path = capsys.readouterr().out.strip()
    assert main(["compare", "--baseline", str(new), "--baselines", kept]) == 5
    assert capsys.readouterr().out.startswith(f"note: BASE is {path}\n")
    assert main(["compare", "--baseline", str(new), "--baselines", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize("words", [["--bands", "latency"], ["--case", "c8"], ["--across", "library"], ["--force"]])
def test_guidelines_take_no_options_that_change_nothing(words: list[str], tmp_path: Path, capsys: Out) -> None:
    assert main(["compare", "--guidelines", str(write(tmp_path / "run", run())), *words]) == 2
    assert f"got --guidelines and {words[0]}, which changes nothing there" in capsys.readouterr().err


def test_a_run_compared_with_itself_is_told(tmp_path: Path, capsys: Out) -> None:
    path = str(write(tmp_path / "run", run(started_at="2026-12-01T10:00:00.000+00:00")))
    assert main(["compare", path, path]) == 0
    assert "note: BASE and NEW have the same launch 0 of run, which says nothing of a change" in capsys.readouterr().out


def test_guidelines_take_one_result(tmp_path: Path, capsys: Out) -> None:
    assert main(["compare", "--guidelines", str(write(tmp_path / "run", run()))]) == 0
    assert "5 checks: 0 broken, 0 unclear, 5 kept" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["A"], "got 1 results, expected 2: BASE NEW"),
        (["A", "B", "C"], "got 3 results, expected 2"),
        (["--baseline", "A", "B"], "got 2 results, expected 1: NEW"),
        (["--guidelines", "A", "B"], "got 2 results, expected 1: RESULTS"),
        (["A", "B", "--threshold", "0.1"], 'got "0.1", expected a percentage of time; write e.g. "10%"'),
        (["A", "B", "--threshold", "-5%"], "expected"),
        (["A", "B", "--floor", "1"], "--floor: got"),
        (["A", "B", "--bands", "small"], 'got "small", expected some of latency, middle, bandwidth'),
        (["A", "B", "--across", "everything"], 'got "everything", expected one of library'),
        (["A", "B"], ": got nothing, expected a results file"),
    ],
)
def test_what_is_refused(
    words: list[str], said: str, capsys: Out, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["compare", *words])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert said in capsys.readouterr().err


def test_neither_mpi4py_nor_cupy_nor_numba_is_imported(tmp_path: Path) -> None:
    base, new = write(tmp_path / "base", run(), ENVIRONMENT), write(tmp_path / "new", run())
    program = (
        "import sys; from collbench.cli import main; code = main(sys.argv[1:]);"
        "bad = {'mpi4py', 'cupy', 'numba', 'pydantic'} & set(sys.modules); sys.exit(f'{bad}' if bad else code)"
    )
    words = ["compare", str(base), str(new)]
    found = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")
