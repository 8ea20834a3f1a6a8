"""A ladder on hosts whose links are shaped: which hosts its pair has, the order of its steps, its limits, who loses.

How much each step loses there is not for a gate: three ranks on two shared cores.
"""

from pathlib import Path

import pytest

import shaped_hosts
from collbench.readers.ladder import ladders

pytestmark = shaped_hosts.MARKS

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
sizes = ["1 MiB"]
"""


@pytest.mark.long
def test_the_step_to_all_ranks_loses_most_where_a_third_host_has_a_slow_link(tmp_path: Path) -> None:
    rows, done = shaped_hosts.launch(SCENARIO, tmp_path, ["400mbit", "400mbit", "25mbit"])
    pairs = [row for row in rows if row.topology == "two_hosts"]
    assert {(row.group, row.ranks, row.hosts) for row in pairs} == {("cb1+cb2", 2, 2)}
    assert {(row.ranks, row.hosts) for row in rows if row.topology == "world"} == {(3, 3)}
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
        assert 0.02 < rung.of_limit < 1.1
    # It has at most 25/400 of what the pair's link carries.
    assert ladder.worst is ran[-1]
    assert ladder.sentence.startswith(
        "the step from MPI all_reduce, 2 ranks to MPI all_reduce, all ranks loses most: 0."
    )
    assert f"# ladder {ladder.title}\n" in done.out
    assert ladder.sentence in done.out
