"""Replays on 1, 2 and 4 ranks of this machine: the calls of each form, right data, and the forecast beside it."""

from pathlib import Path

import pytest

import launching
from collbench.results import read

SCENARIO = """
schema = 1
title = "a short replay"
[measure]
modes = ["latency"]
time_budget = "5 ms"
least_time = "1 ms"
least_iterations = 2
warmup_time = "1 ms"
[[sweep]]
backends = ["mpi"]
collectives = ["all_reduce"]
placements = ["in_place"]
sizes = ["64 B", "1 KiB", "8 KiB"]
[[sweep]]
kind = "replay"
backends = ["mpi"]
workloads = ["WORKLOAD"]
bucketings = ["ddp", "none"]
computes = ["none", "5 ms"]
calls = ["blocking", "nonblocking", "persistent"]
placements = ["in_place", "out_of_place"]
buffers = [2]
"""
WORKLOAD = """
schema = 1
title = "four layers"
source = "made up"
dtype = "float32"
[bucketing]
kind = "ddp"
first = "1 KiB"
cap = "3 KiB"
[[group]]
name = "layer.{}"
repeat = 4
[group.tensors]
"weight" = [20, 20]
"bias" = [20]
"""
PARAMETERS = 4 * (20 * 20 + 20)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2, 4])
def test_each_form_has_its_row_and_right_data(ranks: int, tmp_path: Path) -> None:
    workload, scenario = tmp_path / "four.toml", tmp_path / "short.toml"
    workload.write_text(WORKLOAD)
    scenario.write_text(SCENARIO.replace("WORKLOAD", str(workload)))
    run = tmp_path / "run"
    launching.collbench(["launch", scenario, "-n", str(ranks), "-o", run], timeout=120).expect(0)
    rows = [row for row in read(run) if row.collective == "replay"]
    assert len(rows) == 2**3 * 3  # bucketing, compute, placement; three calls
    for row in rows:
        assert row.pattern is not None
        if row.call == "persistent":
            assert (row.status, row.reason) == (
                "skipped",
                "call persistent: replay can be blocking or nonblocking here",
            )
            continue
        assert (row.status, row.wrong) == ("ok", 0)
        assert row.size_bytes == row.requested_bytes == 4 * PARAMETERS
        assert sum(map(int, row.pattern.partition(": ")[2].split())) == row.size_bytes
        assert row.time_min_s is not None
        if "/5 ms backward" in row.pattern:
            assert row.time_min_s >= 5e-3
        if ranks > 1:
            assert row.algbw_GBps is not None
            assert row.busbw_GBps == pytest.approx(row.algbw_GBps * 2 * (ranks - 1) / ranks)
    if ranks > 1:
        told = launching.collbench(["forecast", "--replay", run, "--within", "900%", "--format", "csv"])
        assert told.code in (0, 5)  # how far off is not for a gate: these are microseconds on shared cores
        assert told.out.count("replay,four,") == 2**3 * 2
        assert "no forecast" not in told.out


@pytest.mark.timeout(60)
def test_a_gradient_that_does_not_fit_into_memory_is_skipped(tmp_path: Path) -> None:
    workload, scenario = tmp_path / "vast.toml", tmp_path / "short.toml"
    workload.write_text(WORKLOAD.replace("[20, 20]", "[100000000, 20]"))
    text = SCENARIO.replace("WORKLOAD", str(workload)).replace('"ddp", "none"', '"none"')
    scenario.write_text(text[: text.index("[[sweep]]")] + text[text.rindex("[[sweep]]") :])
    run = tmp_path / "run"
    launching.collbench(["launch", scenario, "-n", "2", "-o", run]).expect(7)
    rows = read(run)
    assert {row.status for row in rows} == {"skipped"}
    assert any("memory" in str(row.reason) for row in rows if row.call == "blocking")
