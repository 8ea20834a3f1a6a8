"""Baselines: appended by machine and commit, and found again, or what differs."""

import copy
import dataclasses
import json
from pathlib import Path

import pytest

from collbench.errors import UsageError
from collbench.readers.baselines import add, fingerprint, machine, newest
from collbench.results import read
from compared_rows import ENVIRONMENT, run, write


def test_a_baseline_is_a_folder_by_machine_and_commit_and_time(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", run())
    (folder / "scenario.toml").write_text("schema = 1\n")
    (folder / "environment-1.json").write_text("{}")
    (folder / "lock").write_text("")
    path = add(folder, tmp_path / "kept", "abc123")
    assert path.parent.name == fingerprint(machine(run(), ENVIRONMENT))
    assert path.name.startswith("abc123-2")
    names = {one.name for one in path.iterdir()}
    assert names == {"results.csv", "environment.json", "environment-1.json", "scenario.toml", "baseline.json"}
    assert (path / "results.csv").read_bytes() == (folder / "results.csv").read_bytes()
    about = json.loads((path / "baseline.json").read_text())
    assert (about["commit"], about["run"], about["launches"]) == ("abc123", "run", 6)
    assert [one.name for one in path.parent.iterdir()] == [path.name]  # nothing half done beside it


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", run())
    paths = [add(folder, tmp_path / "kept", "abc") for _ in range(4)]
    assert len(set(paths)) == 4
    assert all(read(path) == run() for path in paths)


def test_a_results_file_of_another_name_is_taken_too(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", run())
    (folder / "results.csv").rename(folder / "other.csv")
    assert read(add(folder / "other.csv", tmp_path / "kept", "abc")) == run()


def test_what_is_not_known_to_be_good_is_no_baseline(tmp_path: Path) -> None:
    rows = [dataclasses.replace(one, status="failed") if one.launch == 1 else one for one in run()]
    with pytest.raises(UsageError, match=r"rows that are not ok \(the first: c8, failed\), expected a run"):
        add(write(tmp_path / "bad", rows), tmp_path / "kept")


def test_the_newest_that_fits_is_found(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    old = add(write(tmp_path / "1", run(seed=1)), kept, "a")
    best = add(write(tmp_path / "2", run(seed=2)), kept, "b")
    add(write(tmp_path / "3", run(seed=3, library="Open MPI v6")), kept, "c")
    new = write(tmp_path / "new", run(seed=4))
    assert newest(new, read(new), baselines=kept).path == best
    assert newest(new, read(new), baselines=kept).records == tuple(run(seed=2))
    assert old.is_dir()
    assert newest(new, read(new), across=("library",), baselines=kept).path.name.startswith("c-")


def test_where_none_fits_what_differs_is_said(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    new = write(tmp_path / "new", run())
    with pytest.raises(UsageError, match=r"got no baseline of this machine \(cpu Example CPU, .* ranks 2"):
        newest(new, read(new), baselines=kept)
    add(write(tmp_path / "1", run(library="Open MPI v6")), kept, "a")
    with pytest.raises(UsageError, match=r"library differs: Open MPI v6 in BASE, Open MPI v5\.0\.11 in NEW"):
        newest(new, read(new), baselines=kept)


def test_baselines_without_these_cases_do_not_fit(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    add(write(tmp_path / "1", run(sizes=[64])), kept, "a")
    new = write(tmp_path / "new", run())
    with pytest.raises(UsageError, match="it has no case of these results"):
        newest(new, read(new), baselines=kept)


def test_another_machine_is_another_folder_and_is_told(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    add(write(tmp_path / "1", run(ranks=4)), kept, "a")
    environment = copy.deepcopy(ENVIRONMENT)
    environment["ranks"]["cpu_model"] = {"0-1": "Other CPU"}
    new = write(tmp_path / "new", run(), environment)
    with pytest.raises(UsageError, match="cpu is Example CPU, not Other CPU, ranks is 4, not 2"):
        newest(new, read(new), baselines=kept)


def test_software_is_no_part_of_a_machine() -> None:
    other = copy.deepcopy(ENVIRONMENT)
    other["mpi_library"] = "another"
    other["ranks"]["kernel"] = {"0-1": "7"}
    assert machine(run(library="another"), other) == machine(run(), ENVIRONMENT)


def test_a_run_without_a_time_is_no_baseline(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", [])
    with pytest.raises(UsageError, match="got no row that is ok"):
        add(folder, tmp_path / "kept")


@pytest.mark.parametrize("commit", ["../x", "", "a b", "-x", "x" * 65])
def test_a_commit_is_a_name(tmp_path: Path, commit: str) -> None:
    with pytest.raises(UsageError, match="--commit: got"):
        add(write(tmp_path / "run", run()), tmp_path / "kept", commit)


def test_outside_a_repository_the_name_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert add(write(tmp_path / "run", run()), Path("kept")).name.startswith("nocommit-")


def test_a_place_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    with pytest.raises(UsageError, match="expected a folder that takes a baseline"):
        add(write(tmp_path / "run", run()), tmp_path / "kept", "a")
