"""What rows are held against, earlier rows of the launch, is there in any order and after a resumed run."""

from pathlib import Path

import pytest

import launching
from collbench.results import read

SCENARIO = """
schema = 1
[measure]
time_budget = "10 ms"
least_time = "1 ms"
warmup_time = "5 ms"
[[sweep]]
backends = ["nccl"]
collectives = ["all_reduce"]
neighbours = ["copy", "alone"]
sizes = ["8 B"]
"""


def test_a_slowdown_is_there_in_any_order_and_after_a_resume(tmp_path: Path) -> None:
    if launching.cuda_devices() < 1:
        pytest.skip("a CUDA device is needed")
    scenario, run = tmp_path / "s.toml", tmp_path / "run"
    scenario.write_text(SCENARIO)
    ranks = str(min(2, launching.cuda_devices()))
    launching.collbench(["launch", scenario, "-n", ranks, "-o", run, "--no-choices"]).expect(0)
    alone, busy = read(run)
    assert (alone.neighbour, alone.slowdown, busy.neighbour) == ("alone", None, "copy")
    assert busy.slowdown is not None
    results = run / "results.csv"
    results.write_text("".join(results.read_text().splitlines(keepends=True)[:-1]))
    launching.collbench(["launch", "--resume", run, "--no-choices"]).expect(0)
    kept, again = read(run)
    assert kept == alone
    assert again.started_at != busy.started_at
    assert again.time_p50_s is not None
    assert alone.time_p50_s is not None
    assert again.slowdown == pytest.approx(again.time_p50_s / alone.time_p50_s)
    # Held against a case that was not measured after all, it says so.
    lines = results.read_text().splitlines(keepends=True)[:-1]
    results.write_text("".join(lines).replace(",ok,", ",skipped,"))
    launching.collbench(["launch", "--resume", run, "--no-choices"]).expect(0)
    last = read(run)[-1]
    assert (last.status, last.neighbour, last.slowdown) == ("ok", "copy", None)
    assert "no_slowdown" in str(last.notes).split()
    assert last.reason == f"no slowdown: {alone.case_id}, this alone, is skipped"
