"""On hosts whose links are shaped: which path a row says was taken, its limit, and what a wrong expectation gives.

The rates themselves are judged by scripts/link_rates; two ranks on two shared cores are not for a gate.
"""

from pathlib import Path

import pytest

import shaped_hosts

pytestmark = shaped_hosts.MARKS

SCENARIO = """
schema = 1
title = "over the link"
[measure]
time_budget = "300 ms"
least_time = "1 ms"
least_iterations = 2
warmup_time = "1 ms"
{more}
[[sweep]]
backends = ["mpi"]
collectives = ["ping_pong", "all_reduce"]
sizes = ["8 B", "4 MiB"]
{expect}
"""


def test_the_path_and_its_limit_are_named_and_an_expectation_is_held_against_it(tmp_path: Path) -> None:
    rows, done = shaped_hosts.launch(
        SCENARIO.format(more="", expect='[expect]\ntransport = "rdma"'), tmp_path, ["400mbit", "200mbit"], code=5
    )
    assert [row.status for row in rows] == ["ok"] * 4
    for row in rows:
        assert (row.hosts, row.ranks, row.transport_source) == (2, 2, "counters")
        notes = str(row.notes).split()
        if row.requested_bytes == 8:
            assert row.transport == "undecided"
            assert row.limit_GBps is None
            assert "transport_untold" in notes
            continue
        assert row.transport == "tcp:eth0"
        assert "unexpected_transport" in notes
        assert row.reason == (
            "transport: got tcp:eth0, expected rdma; cb1 has no RDMA device (in a pod: no RDMA resource was asked for)"
        )
        # The slower host's link is the limit.
        assert row.limit_GBps is not None
        assert row.limit_GBps == pytest.approx(0.025 * 1448 / 1514)
        assert row.limit_source is not None
        assert row.limit_source.startswith("cb2: 200 Mbit/s (the shaper of eth0) x 1448/1514")
        assert row.limit_fraction is not None
        assert row.busbw_GBps is not None
        assert row.limit_fraction == pytest.approx(row.busbw_GBps / row.limit_GBps)
        assert 0.1 < row.limit_fraction < 1.1
        assert row.crossing_bytes is not None
        assert row.tcp_bytes is not None
        # Headers and acknowledgements come on top of the payload; nothing else of that size is on the link.
        assert 0.99 * row.crossing_bytes < row.tcp_bytes < 1.5 * row.crossing_bytes
        assert row.rdma_bytes == 0
        assert row.retransmissions is not None
    assert "expected rdma" in done.out


def test_what_the_scenario_says_of_the_link_is_taken(tmp_path: Path) -> None:
    more, expect = 'link_rate = "800 Mbit/s"', '[expect]\ntransport = "tcp"'
    rows, _ = shaped_hosts.launch(SCENARIO.format(more=more, expect=expect), tmp_path, ["400mbit", "400mbit"])
    limits = [row.limit_GBps for row in rows if row.transport == "tcp:eth0"]
    assert limits == [pytest.approx(0.1 * 1448 / 1538)] * 2
