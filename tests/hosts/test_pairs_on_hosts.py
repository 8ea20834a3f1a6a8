"""Three hosts, one of which has a link of half the rate: its name must come out."""

import sys
from pathlib import Path

import pytest

import shaped_hosts
from collbench.results import read

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(shaped_hosts.problem() is not None, reason=f"no hosts: {shaped_hosts.problem()}"),
]

SCENARIO = """
schema = 1
title = "one slow link"
[measure]
time_budget = "1 s"
least_time = "200 ms"
least_iterations = 3
warmup_time = "1 ms"
[[sweep]]
backends = ["mpi"]
collectives = ["ping_pong"]
topologies = ["pairs"]
sizes = ["2 MiB"]
"""


def test_the_slow_host_is_named(tmp_path: Path) -> None:
    scenario, run = tmp_path / "pairs.toml", tmp_path / "run"
    scenario.write_text(SCENARIO)
    words = f"{sys.executable} -m collbench launch {scenario} -n 3 -o {run}"
    command = f'{words} --launcher-args "{shaped_hosts.launcher_args()}"'
    done = shaped_hosts.on_hosts(["200mbit", "200mbit", "100mbit"], command, timeout=150).expect(0)
    rows = {str(row.group): row for row in read(run)}
    assert set(rows) == {"0-1", "0-2", "1-2", "again:0-2"} or set(rows) == {"0-1", "0-2", "1-2", "again:1-2"}
    assert rows["0-2"].members == "cb1;cb3"
    assert rows["0-1"].hosts == 2
    assert "host cb3 is slow: " in done.out, done.out
    assert "look at cb3's own link" in done.out
    assert "host cb1" not in done.out
    assert "host cb2" not in done.out
    (matrix,) = run.glob("pairs-*-hosts.csv")
    assert matrix.read_text().splitlines()[0] == "busbw_GBps,cb1,cb2,cb3"
