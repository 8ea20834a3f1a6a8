"""Three hosts, one of which has a link of half the rate: its name must come out."""

from pathlib import Path

import shaped_hosts

pytestmark = shaped_hosts.MARKS

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
    found, done = shaped_hosts.launch(SCENARIO, tmp_path, ["200mbit", "200mbit", "100mbit"])
    rows = {str(row.group): row for row in found}
    assert set(rows) == {"0-1", "0-2", "1-2", "again:0-2"} or set(rows) == {"0-1", "0-2", "1-2", "again:1-2"}
    assert rows["0-2"].members == "cb1;cb3"
    assert rows["0-1"].hosts == 2
    assert "host cb3 is slow: " in done.out, done.out
    assert "look at cb3's own link" in done.out
    assert "host cb1" not in done.out
    assert "host cb2" not in done.out
    (matrix,) = (tmp_path / "run").glob("pairs-*-hosts.csv")
    assert matrix.read_text().splitlines()[0] == "busbw_GBps,cb1,cb2,cb3"
