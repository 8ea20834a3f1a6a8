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
least_iterations = 5
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
    # 50 ms, where all_reduce takes less than one microsecond, and 20 ms where something else has its core: found
    # whatever the machine does beside it.
    planted = planting.install(tmp_path / "planted", {"time_ns": {"8": 5e7}, "step_ns": planting.step_ns()})
    sides = ["--ab-prefix", "env", f"env {planting.SHARE}=1"]
    limits = ["--most-rounds", "2", "--time-limit", "100 s", "--case", "all_reduce 8 B", "--format", "json"]
    command: list[str | Path] = ["launch", scenario, "-n", "2", "-o", run, *sides, *limits]
    done = launching.collbench(command, env={**os.environ, **planted}, timeout=180).expect(5)
    content = json.loads(done.out)
    (case,) = content["decisions"]
    assert (case["name"], case["word"], case["launches"]) == ("all_reduce 8 B", "slower", [4, 4])
    assert case["added_s"] > 0.02
    assert content == json.loads((run / "comparison.json").read_text())
    assert "# look 1 of at most 1, 4 launches a side: all_reduce 8 B slower" in done.err
