"""Whole launches at 1 to 4 ranks with the MPI of this environment."""

import json
from pathlib import Path

import pytest

import launching
from collbench.results import read

SCENARIO = """
schema = 1
title = "every path of the spine"
[measure]
time_budget = "10 ms"
least_time = "1 ms"
warmup_time = "5 ms"
modes = ["latency", "throughput"]
[[sweep]]
backends = ["mpi"]
collectives = ["all_reduce", "barrier", "send_recv"]
dtypes = ["float32", "float64"]
operations = ["max"]
placements = ["out_of_place", "in_place"]
callers = ["compiled", "python"]
sizes = ["12 B", "40 KiB"]
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", [1, 2, pytest.param(3, marks=pytest.mark.long), 4])
def test_every_point_has_its_row_and_right_data(ranks: int, tmp_path: Path) -> None:
    scenario = tmp_path / "spine.toml"
    scenario.write_text(SCENARIO)
    run = tmp_path / "run"
    launching.collbench(["launch", scenario, "-n", str(ranks), "-o", run], timeout=240).expect(0)
    rows = read(run)
    assert len({(row.case_id, row.group, row.launch) for row in rows}) == len(rows)
    # all_reduce and send_recv: 2 dtypes x 2 placements x 2 sizes; barrier: none of it; each with 2 callers and 2 modes.
    assert len(rows) == 2 * 2 * (2 * 2 * 2 * 2 + 1)
    by_status = {status: [row for row in rows if row.status == status] for status in ("ok", "skipped")}
    assert len(by_status["ok"]) + len(by_status["skipped"]) == len(rows)
    for row in by_status["skipped"]:
        assert row.reason
        assert (row.collective, row.placement) == ("send_recv", "in_place")
    for row in by_status["ok"]:
        assert row.ranks == ranks
        assert row.time_min_s is not None
        assert row.time_p50_s is not None
        assert row.time_max_s is not None
        assert 0 < row.time_min_s <= row.time_p50_s <= row.time_max_s
        assert row.thread_level == "serialized"
        if row.collective != "barrier":
            assert row.wrong == 0
            assert row.size_bytes == (row.count or 0) * {"float64": 8}.get(str(row.dtype), 4)
            assert row.requested_bytes is not None
            assert 0 <= row.requested_bytes - row.size_bytes < 8
        factor = {"all_reduce": 2 * (ranks - 1) / ranks, "send_recv": 1.0}.get(str(row.collective))
        if factor is not None and row.size_bytes:
            assert row.algbw_GBps == pytest.approx(row.size_bytes / row.time_p50_s / 1e9)
            assert row.busbw_GBps == pytest.approx((row.algbw_GBps or 0) * factor)
        else:
            assert row.busbw_GBps is None


def test_a_launch_leaves_what_a_reader_needs(tmp_path: Path) -> None:
    scenario = tmp_path / "one.toml"
    scenario.write_text(
        'schema = 1\ntitle = "one"\n[measure]\ntime_budget = "10 ms"\nleast_time = "1 ms"\n'
        '[[sweep]]\ncollectives = ["all_reduce"]\nsizes = ["8 B"]\n'
    )
    run = tmp_path / "run"
    done = launching.collbench(
        ["launch", scenario, "-n", "2", "-o", run, "--launches", "2"], env={"MY_SECRET_TOKEN": "abc123xyz"}
    ).expect(0)
    assert "mpirun" in done.out  # the command that it runs
    assert str(run / "results.csv") in done.out
    rows = read(run)
    assert [row.launch for row in rows] == [0, 1]
    assert len({row.case_id for row in rows}) == 1
    assert {row.run_id for row in rows} == {"run"}
    environment = json.loads((run / "environment.json").read_text())
    assert environment["versions"]["mpi4py"]
    assert "abc123xyz" not in "".join(path.read_text(errors="replace") for path in run.rglob("*") if path.is_file())
    assert (run / "scenario.toml").read_text() == scenario.read_text()


def test_more_buffer_sets_than_iterations_are_all_visited(tmp_path: Path) -> None:
    scenario = tmp_path / "sets.toml"  # and a title is not needed
    scenario.write_text(
        'schema = 1\n[measure]\ntime_budget = "1 ms"\nleast_time = "0 s"\nleast_iterations = 1\nwarmup_time = "0 s"\n'
        '[[sweep]]\nbackends = ["mpi"]\ncollectives = ["all_reduce"]\nbuffers = [16]\nsizes = ["1 MiB"]\n'
        '[[variant]]\nname = "plain"\n'
    )
    done = launching.collbench(["launch", scenario, "-n", "2", "-o", tmp_path / "run"]).expect(0)
    # The run's copy has another name, which is not the title.
    assert "\n# sets\n" in done.out
    assert "; launch 0; variant plain\n" in done.out
    (row,) = read(tmp_path / "run")
    assert (row.status, row.wrong, row.scenario) == ("ok", 0, "sets")


def test_samples_are_in_the_unit_of_the_row(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    scenario = tmp_path / "samples.toml"
    scenario.write_text(
        'schema = 1\n[measure]\ntime_budget = "10 ms"\nleast_time = "1 ms"\nsamples = true\n[[sweep]]\n'
        'backends = ["mpi"]\ncollectives = ["ping_pong", "all_reduce"]\nsizes = ["8 B"]\n'
    )
    launching.collbench(["launch", scenario, "-n", "2", "-o", tmp_path / "run", "-q"]).expect(0)
    samples = pandas.read_parquet(tmp_path / "run" / "samples.parquet")
    for row in read(tmp_path / "run"):
        own = samples[(samples.case_id == row.case_id) & ((samples["rank"] == 0) | (row.collective != "ping_pong"))]
        assert own.groupby("sample").duration_s.max().median() == pytest.approx(row.time_p50_s, rel=0.01)


def test_bare_mpirun_does_the_same(tmp_path: Path) -> None:
    scenario = tmp_path / "one.toml"
    scenario.write_text(
        'schema = 1\ntitle = "one"\n[measure]\ntime_budget = "10 ms"\nleast_time = "1 ms"\n'
        '[[sweep]]\ncollectives = ["all_reduce"]\nsizes = ["8 B"]\n'
    )
    run = tmp_path / "run"
    import sys

    command: list[str | Path] = [sys.executable, "-m", "collbench", "run", scenario, "-o", run, "-q"]
    done = launching.mpirun(3, command, timeout=60).expect(0)
    assert done.out == f"{run / 'results.csv'}\n"
    assert not list(run.glob("ended*"))
    (row,) = read(run)
    assert (row.status, row.ranks, row.backend) == ("ok", 3, "mpi")


def test_independent_single_ranks_are_refused(tmp_path: Path) -> None:
    """What a foreign mpirun makes of a launch: the launcher says 4, MPI sees 1."""
    foreign = "PMI_SIZE" if launching.flavour() == "openmpi" else "OMPI_COMM_WORLD_SIZE"
    done = launching.collbench(["run", "quickstart", "-o", tmp_path / "run"], env={foreign: "4"})
    done.expect(7)
    assert "4 processes but MPI" in done.err
    assert "collbench launch" in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("ranks", [2, 3])
def test_an_error_of_rank_0_ends_all_ranks_with_one_sentence(ranks: int, tmp_path: Path) -> None:
    import sys

    broken = tmp_path / "broken.toml"
    broken.write_text("schema = 2\n")
    done = launching.mpirun(ranks, [sys.executable, "-m", "collbench", "run", broken], timeout=60)
    assert done.code == 2
    assert done.err.count("broken.toml: schema") == 1
    assert "Traceback" not in done.err
