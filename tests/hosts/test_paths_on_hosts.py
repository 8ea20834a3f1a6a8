"""On hosts whose links are shaped: which path a row says was taken, its limit, and what a wrong expectation gives.

The rates themselves are judged by scripts/link_rates; two ranks on two shared cores are not for a gate.
"""

import sys
from pathlib import Path

import pytest

import launching
import shaped_hosts
from collbench.record import Record
from collbench.results import read

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(shaped_hosts.problem() is not None, reason=f"no hosts: {shaped_hosts.problem()}"),
]

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


def launch(
    tmp_path: Path, rates: list[str], *, more: str = "", expect: str = "", code: int = 0
) -> tuple[list[Record], launching.CompletedRun]:
    scenario = tmp_path / "link.toml"
    scenario.write_text(SCENARIO.format(more=more, expect=expect))
    run = tmp_path / "run"
    words = f"launch {scenario} -n {len(rates)} -o {run}"
    command = f'{sys.executable} -m collbench {words} --launcher-args "{shaped_hosts.launcher_args()}"'
    done = shaped_hosts.on_hosts(rates, command, timeout=120).expect(code)
    return read(run), done


def test_the_counters_name_the_link_and_its_limit(tmp_path: Path) -> None:
    rows, _ = launch(tmp_path, ["400mbit", "400mbit"])
    assert [row.status for row in rows] == ["ok"] * 4
    for row in rows:
        assert (row.hosts, row.ranks, row.transport_source) == (2, 2, "counters")
        if row.requested_bytes == 8:
            assert row.transport == "undecided"
            assert row.limit_GBps is None
            continue
        assert row.transport == "tcp:eth0"
        assert row.limit_GBps is not None
        assert row.limit_GBps == pytest.approx(0.05 * 1448 / 1514)
        assert row.limit_source is not None
        assert "400 Mbit/s (the shaper of eth0) x 1448/1514" in row.limit_source
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


def test_the_slower_hosts_link_is_the_limit(tmp_path: Path) -> None:
    rows, _ = launch(tmp_path, ["400mbit", "200mbit"])
    large = [row for row in rows if row.transport == "tcp:eth0"]
    assert len(large) == 2
    for row in large:
        assert row.limit_GBps == pytest.approx(0.025 * 1448 / 1514)
        assert str(row.limit_source).startswith("cb2: ")


def test_what_the_scenario_says_of_the_link_is_taken(tmp_path: Path) -> None:
    rows, _ = launch(tmp_path, ["400mbit", "400mbit"], more='link_rate = "800 Mbit/s"')
    limits = [row.limit_GBps for row in rows if row.transport == "tcp:eth0"]
    assert limits == [pytest.approx(0.1 * 1448 / 1538)] * 2


def test_tcp_where_rdma_is_expected_ends_with_5_and_says_why(tmp_path: Path) -> None:
    rows, done = launch(tmp_path, ["400mbit", "400mbit"], expect='[expect]\ntransport = "rdma"', code=5)
    wrong = [row for row in rows if row.notes and "unexpected_transport" in row.notes]
    assert [row.requested_bytes for row in wrong] == [4 << 20] * 2
    for row in wrong:
        assert row.status == "ok"
        assert row.reason == (
            "transport: got tcp:eth0, expected rdma; cb1 has no RDMA device (in a pod: no RDMA resource was asked for)"
        )
    assert "expected rdma" in done.out


def test_what_is_expected_is_met(tmp_path: Path) -> None:
    launch(tmp_path, ["400mbit", "400mbit"], expect='[expect]\ntransport = "tcp"')
