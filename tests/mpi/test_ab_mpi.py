"""One whole A/B of real launches: a busy loop in the measured calls of NEW, brought there by its prefix, is found."""

import json
import os
from pathlib import Path

import pytest

import launching
import planting

SCENARIO = """
schema = 1
title = "planted"
[measure]
time_budget = "10 ms"
least_time = "1 ms"
warmup_time = "5 ms"
[[sweep]]
backends = ["mpi"]
collectives = ["all_reduce"]
sizes = ["8 B"]
"""


@pytest.mark.timeout(200)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks on one core decide nothing")
def test_a_slowdown_of_one_side_is_found(tmp_path: Path) -> None:
    scenario, run = tmp_path / "planted.toml", tmp_path / "run"
    scenario.write_text(SCENARIO)
    # 0.2 ms, where all_reduce takes less than one microsecond: found whatever the machine does beside it.
    planted = planting.install(tmp_path / "planted", {"time_ns": {"8": 2e5}, "step_ns": planting.step_ns()})
    sides = ["--ab-prefix", "env", f"env {planting.SHARE}=1"]
    limits = ["--most-rounds", "4", "--time-limit", "100 s", "--bands", "latency", "--format", "json"]
    command: list[str | Path] = ["launch", scenario, "-n", "2", "-o", run, *sides, *limits]
    done = launching.collbench(command, env={**os.environ, **planted}, timeout=180).expect(5)
    content = json.loads(done.out)
    (band, _) = content["decisions"]
    assert (band["name"], band["word"]) == ("latency", "slower")
    assert band["added_s"] == pytest.approx(2e-4, rel=0.5)
    assert content == json.loads((run / "comparison.json").read_text())
    assert min(band["launches"]) >= 4
    assert "# look 1 of at most " in done.err
