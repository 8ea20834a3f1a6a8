"""Replays on CUDA devices, one rank each: NCCL reduces bucket by bucket, and what cannot be replayed says why."""

from pathlib import Path

import pytest

import launching
from collbench.results import read

WORKLOAD = """
schema = 1
title = "four layers"
source = "made up"
dtype = "float16"
[bucketing]
kind = "ddp"
first = "1 KiB"
cap = "3 KiB"
[[group]]
name = "layer.{}"
repeat = 9
[group.tensors]
"weight" = [40, 20]
"bias" = [20]
"""
SCENARIO = """
schema = 1
title = "a short replay"
[measure]
modes = ["latency", "throughput"]
time_budget = "10 ms"
least_time = "1 ms"
least_iterations = 2
warmup_time = "1 ms"
[[sweep]]
kind = "replay"
backends = ["nccl", "staged"]
workloads = ["WORKLOAD"]
bucketings = ["ddp", "none"]
computes = ["none", "2 ms"]
calls = ["blocking", "nonblocking"]
placements = ["in_place", "out_of_place"]
"""


@pytest.mark.timeout(150)
def test_nccl_replays_buckets_back_to_back(tmp_path: Path) -> None:
    if launching.cuda_devices() < 2:
        pytest.skip("2 CUDA devices are needed")
    workload, scenario, run = tmp_path / "four.toml", tmp_path / "short.toml", tmp_path / "run"
    workload.write_text(WORKLOAD)
    scenario.write_text(SCENARIO.replace("WORKLOAD", str(workload)))
    launching.collbench(["launch", scenario, "-n", "2", "-o", run], timeout=120).expect(0)
    rows = read(run)
    assert len(rows) == 2**6
    for row in rows:
        pattern = str(row.pattern)
        if row.backend == "staged":
            assert (row.status, str(row.reason).partition(": ")[0]) == ("skipped", "replay")
        elif "/2 ms" in pattern:
            assert row.status == "skipped"
            assert "what computes would run on a stream of its own here; use computes none" in str(row.reason)
        elif row.call == "nonblocking":
            assert row.status == "skipped"
        else:
            assert (row.status, row.wrong) == ("ok", 0)
            assert row.size_bytes == 2 * 9 * 820
            assert row.busbw_GBps == row.algbw_GBps
            # More launches than may wait on a stream that is held: 18 tensors one by one.
            held = row.mode == "throughput" or "none/" not in pattern
            assert ("stream_not_held" in str(row.notes).split()) != held, pattern
