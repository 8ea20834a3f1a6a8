"""Replays on two hosts whose links are shaped: a forecast from all_reduce foretells them, and overlap is told apart."""

from pathlib import Path

import pytest

import launching
import shaped_hosts
from collbench.planning import replay_check

pytestmark = shaped_hosts.MARKS

RATE = "100mbit"
WORKLOAD = """
schema = 1
title = "three buckets of 0.5, 1.5 and 1 MB"
source = "made up"
dtype = "float32"
[bucketing]
kind = "none"
[[group]]
[group.tensors]
"last" = [250, 1000]
"middle" = [375, 1000]
"first" = [125, 1000]
"""
SCENARIO = """
schema = 1
[measure]
modes = ["latency", "throughput"]
time_budget = "1500 ms"
least_iterations = 3
warmup_time = "1 ms"
[[sweep]]
collectives = ["all_reduce"]
placements = ["in_place"]
sizes = ["256 KiB", "512 KiB", "1 MiB", "2 MiB"]
[[sweep]]
kind = "replay"
workloads = ["WORKLOAD"]
computes = ["none", "200 ms"]
calls = ["blocking", "nonblocking"]
"""
GRADIENT = 3_000_000
LINK_S = GRADIENT * 8 / 100e6 * 1514 / 1448
"""What the link needs for what each host must send: among two ranks, the whole gradient."""


@pytest.mark.long
def test_a_replay_takes_what_all_reduce_foretells(tmp_path: Path) -> None:
    workload = tmp_path / "three.toml"
    workload.write_text(WORKLOAD)
    rows, _ = shaped_hosts.launch(SCENARIO.replace("WORKLOAD", str(workload)), tmp_path, [RATE, RATE])
    both = replay_check.checks(rows)
    assert len(both) == 8
    found = {(one.row.call, one.replayed.compute_s): one for one in both if one.row.mode == "latency"}
    assert len(found) == 4
    for one in found.values():
        assert (one.row.ranks, one.row.hosts, one.row.wrong) == (2, 2, 0)
        assert one.replayed.sizes == (500_000, 1_500_000, 1_000_000)
        assert one.measured.middle > 0.9 * LINK_S
        assert one.forecast is not None
        assert one.exposed is not None
    for compute in (0.0, 0.2):
        one = found["blocking", compute]
        assert one.holds(0.2), f"{one.difference:+.1%}"
        assert one.forecast is not None
        assert one.forecast.middle > 0.9 * (LINK_S + compute)
    # What a library hides lies between all that the pipeline hides and nothing.
    one = found["nonblocking", 0.2]
    assert one.forecast is not None
    assert one.exposed is not None
    assert 0.8 * one.forecast.middle < one.measured.middle < 1.25 * one.exposed.middle
    told = launching.collbench(["forecast", "--replay", tmp_path / "run"])
    assert told.code in (0, 5)
    assert told.out.count("three     none") == 8
