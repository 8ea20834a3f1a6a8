"""A broken sweep is completed: what is there is kept, what is missing is measured, and nothing twice."""

import random
import shutil
from pathlib import Path

import pytest

import faulting
import killing
import launching
from collbench.results import RunFolder, read

pytestmark = pytest.mark.timeout(100)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("complete")
    (folder / "s.toml").write_text(faulting.SCENARIO)
    launching.collbench(["launch", folder / "s.toml", "-n", "2", "-o", folder / "run", "-q"]).expect(0)
    return folder / "run"


@pytest.fixture
def complete(once: Path, tmp_path: Path) -> Path:
    """A complete run of the small sweep on 2 ranks."""
    return Path(shutil.copytree(once, tmp_path / "run"))


def resume(run: Path, *more: str | Path) -> launching.CompletedRun:
    return launching.collbench(["launch", *more, "--resume", run, "-q"])


def test_random_kills_and_resumes_make_an_undisturbed_run(tmp_path: Path) -> None:
    scenario = tmp_path / "s.toml"
    scenario.write_text(faulting.SCENARIO.replace('"40 ms"', '"200 ms"'))
    told = killing.disturbed(scenario, tmp_path / "run", ranks=2, kills=3, chance=random.Random(3))
    assert told.kills == 3
    assert killing.problems(scenario, tmp_path / "run", told) == []


def test_a_torn_line_and_unfinished_rows_are_measured_anew_and_the_rest_is_kept(complete: Path) -> None:
    results = complete / "results.csv"
    before = read(complete)
    header, *lines = results.read_text().splitlines(keepends=True)
    lines[1] = lines[1].replace(",ok,", ",timeout,", 1)
    lines[2] = lines[2].replace(",ok,", ",failed,", 1)
    assert lines[1:3] != results.read_text().splitlines(keepends=True)[2:4]
    results.write_text(header + "".join(lines[:6]) + lines[6][:40])
    resume(complete).expect(0)
    after = {row.case_id: row for row in read(complete)}
    # What had no end goes last: were it to hang again, it would take nothing with it.
    assert [row.case_id for row in read(complete)][-2:] == [before[1].case_id, before[2].case_id]
    assert len(after) == len(read(complete)) == faulting.CASES
    assert {row.status for row in after.values()} == {"ok"}
    for number, row in enumerate(before):
        assert (after[row.case_id].started_at == row.started_at) == (number in (0, 3, 4, 5)), number


def test_a_complete_run_is_left_as_it_is(complete: Path) -> None:
    before = (complete / "results.csv").read_bytes()
    resume(complete).expect(0)
    assert (complete / "results.csv").read_bytes() == before


def test_what_does_not_agree_with_the_run_is_refused(complete: Path, tmp_path: Path) -> None:
    before = (complete / "results.csv").read_bytes()
    other = tmp_path / "other.toml"
    other.write_text(faulting.SCENARIO.replace('"1 KiB"', '"2 KiB"'))
    done = resume(complete, other).expect(2)
    assert '-sizes = ["8 B", "1 KiB"]; +sizes = ["8 B", "2 KiB"]' in done.err
    done = resume(complete, "-n", "3").expect(2)
    assert "got -n 3, expected 2 ranks" in done.err
    done = resume(complete, "--launches", "3").expect(2)
    assert "got --launches 3, expected 1 as the run began with" in done.err
    (complete / "scenario.toml").write_text(other.read_text())
    done = resume(complete).expect(2)
    assert "got another scenario than the run began with" in done.err
    assert (complete / "results.csv").read_bytes() == before
    done = resume(tmp_path).expect(2)
    assert "expected a run folder" in done.err


def test_a_run_that_is_being_written_is_refused(complete: Path) -> None:
    with RunFolder(complete):
        done = resume(complete).expect(2)
    assert "got a folder that process" in done.err


def test_a_scenario_that_says_the_same_in_other_words_is_accepted(complete: Path, tmp_path: Path) -> None:
    same = tmp_path / "same.toml"
    same.write_text("# Another comment.\n" + faulting.SCENARIO.replace('"1 KiB"', '"1024 B"'))
    resume(complete, same).expect(0)
