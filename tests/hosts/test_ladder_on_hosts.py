"""A ladder on two hosts whose links are shaped: which hosts its group names, the order of its steps, its limits."""

import sys
from pathlib import Path

import pytest

import launching
import shaped_hosts
from collbench.readers.ladder import ladders
from collbench.results import read

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(shaped_hosts.problem() is not None, reason=f"no hosts: {shaped_hosts.problem()}"),
]

SCENARIO = """
schema = 1
[measure]
modes = ["throughput"]
time_budget = "300 ms"
least_time = "1 ms"
least_iterations = 2
warmup_time = "1 ms"
[[sweep]]
kind = "ladder"
sizes = ["4 MiB"]
"""


def test_two_hosts_in_the_order_of_the_steps(tmp_path: Path) -> None:
    scenario, run = tmp_path / "ladder.toml", tmp_path / "run"
    scenario.write_text(SCENARIO)
    command = f"{sys.executable} -m collbench launch {scenario} -n 2 -o {run}"
    command += f' --launcher-args "{shaped_hosts.launcher_args()}"'
    done = shaped_hosts.on_hosts(["400mbit", "400mbit"], command, timeout=120).expect(0)
    rows = read(run)
    pairs = [row for row in rows if row.topology == "two_hosts"]
    assert {(row.group, row.ranks, row.hosts) for row in pairs} == {("cb1+cb2", 2, 2)}
    (ladder,) = ladders(rows)
    ran = [rung for rung in ladder.rungs if rung.busbw is not None]
    assert [rung.step.name for rung in ran] == [
        "MPI ping_pong",
        "MPI send_recv",
        "MPI all_reduce, 2 ranks",
        "MPI all_reduce, all ranks",
    ]
    assert [rung.below for rung in ran] == ["", *(rung.step.name for rung in ran[:-1])]
    for rung in ran:
        assert rung.of_limit is not None
        assert 0.1 < rung.of_limit < 1.1
    # One direction at a time fills the link with either library; only MPICH also fills both at once.
    if launching.flavour() == "mpich":
        assert (ran[0].of_limit or 0) > 0.8
        assert (ran[1].of_below or 0) > 0.8
        # The 2 (n - 1) / n of all_reduce over 2 ranks is 1: what it loses against send_recv is the library's.
        assert ladder.worst is not None
        assert ladder.worst.step.collective == "all_reduce"
    assert ladder.sentence in done.out
