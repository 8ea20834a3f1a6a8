"""Ladders of two ranks on this machine: with an ib_write_bw that prints what the real one does, with one that goes
wrong in each of its ways, and without any."""

import os
from pathlib import Path

import pytest

import fake_perftest
import launching
from collbench.record import Record
from collbench.results import read

SCENARIO = """
schema = 1
title = "a short ladder"
[measure]
modes = ["throughput"]
time_budget = "20 ms"
least_time = "1 ms"
warmup_time = "1 ms"
{more}
[[sweep]]
kind = "ladder"
sizes = ["64 KiB"]
"""
WRITE = """
schema = 1
[measure]
time_budget = "20 ms"
warmup_time = "1 ms"
{more}
[[sweep]]
kind = "kernel"
kernels = ["rdma_write"]
sizes = ["64 KiB"]
"""


def launch(
    folder: Path, env: dict[str, str | None], *, text: str = SCENARIO, more: str = "", ranks: int = 2, code: int = 0
) -> tuple[list[Record], launching.CompletedRun]:
    scenario = folder / "short.toml"
    scenario.write_text(text.format(more=more))
    words: list[str | Path] = ["launch", scenario, "-n", str(ranks), "-o", folder / "run"]
    done = launching.collbench(words, env=env).expect(code)
    return read(folder / "run"), done


def writes(rows: list[Record]) -> tuple[Record, Record]:
    host, device = (row for row in rows if row.collective == "rdma_write")
    assert (host.pattern, device.pattern) == ("host", "device")
    return host, device


def test_every_step_has_its_row_and_what_ran_is_held_against_what_is_below(tmp_path: Path) -> None:
    rows, done = launch(tmp_path, fake_perftest.write(tmp_path))
    assert len(rows) == 13
    host, device = writes(rows)
    assert host.status == "ok"
    assert host.busbw_GBps == host.algbw_GBps == pytest.approx(1.0)
    assert (host.size_bytes, host.mode, host.warmup_iterations) == (65536, "throughput", 5)
    assert host.iterations == int(0.02 * 1e9 / 65536)  # what fits into the time, by the first test's rate
    assert host.library == "perftest 6.06"
    assert host.algorithm == f"ib_write_bw -d rxe0 -i 1 -x 1 -s 65536 -n {host.iterations} -F --report_gbits"
    assert (host.time_p50_s, host.wrong, host.seed, host.transport) == (None, None, None, None)
    assert host.group == f"first:2 on {os.uname().nodename}"
    assert device.status == "skipped"
    assert "was built without CUDA" in str(device.reason)
    mpi = [row for row in rows if row.backend == "mpi"]
    assert [(row.collective, row.topology, row.status) for row in mpi] == [
        ("ping_pong", "two_hosts", "ok"),
        ("send_recv", "two_hosts", "ok"),
        ("all_reduce", "two_hosts", "ok"),
        ("all_reduce", "world", "ok"),
    ]
    if launching.cuda_devices() == 0:
        assert all(row.status == "skipped" and row.reason for row in rows if row.backend in ("nccl", "staged"))
    table = [line.removeprefix("# ") for line in done.out.splitlines() if line.startswith("# ")]
    assert f"ladder {host.group}, 64 KiB float32, throughput" in table
    assert any(line.split()[:5] == ["ib_write_bw,", "host", "memory", "1", "-"] for line in table)
    told = launching.collbench(["ladder", tmp_path / "run"]).expect(0).out.splitlines()
    assert set(told) <= set(table)  # the same at the end of the launch
    assert told[-1].startswith(("  the step from ", "  no step loses"))


def test_the_server_is_the_partners_and_both_have_the_same_options(tmp_path: Path) -> None:
    launch(tmp_path, fake_perftest.write(tmp_path), text=WRITE)
    calls = [file.read_text() for file in (tmp_path / "log").iterdir()]
    tests = sorted(call for call in calls if call.startswith("-d"))
    assert len(tests) == 4  # a short test and a long one, each with two ends
    clients = [call for call in tests if call.endswith(" 127.0.0.1")]  # the address of the chosen entry
    assert len(clients) == 2
    for client in clients:
        assert client.removesuffix(" 127.0.0.1") in tests


def test_without_perftest_its_steps_say_so(tmp_path: Path) -> None:
    fake = fake_perftest.write(tmp_path)
    (tmp_path / "bin" / "ib_write_bw").unlink()
    rows, done = launch(tmp_path, fake)
    for row in writes(rows):
        assert row.status == "skipped"
        assert "ib_write_bw is not on PATH; install the package perftest" in str(row.reason)
    assert "not run: ib_write_bw, host memory; ib_write_bw, GPU memory: " in done.out


def test_without_an_rdma_port_they_say_so(tmp_path: Path) -> None:
    fake = fake_perftest.write(tmp_path, port=fake_perftest.PORT | {"state": "1: DOWN"})
    rows, _ = launch(tmp_path, fake, text=WRITE, code=7)
    assert "no RDMA port is ACTIVE here (rxe0:1 is DOWN)" in str(writes(rows)[0].reason)


@pytest.mark.parametrize(
    ("wrong", "status", "said", "code"),
    [
        ("server", "failed", "the server, before it listened, ended with exit code 1: Failed to modify QP to RTR", 1),
        (
            "client",
            "failed",
            "the client (of 127.0.0.1) ended with exit code 1: Unable to Connect the HCA's through the link",
            1,
        ),
        pytest.param("stuck", "timeout", "the client (of 127.0.0.1) did not end in time", 4, marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(150)
def test_what_went_wrong_is_in_the_row_and_nothing_is_left(
    wrong: str, status: str, said: str, code: int, tmp_path: Path
) -> None:
    rows, _ = launch(tmp_path, fake_perftest.write(tmp_path, wrong), text=WRITE, more='timeout = "16 s"', code=code)
    host, _ = writes(rows)
    assert host.status == status
    assert said in str(host.reason)
    assert host.busbw_GBps is None


@pytest.mark.long
def test_a_watchdog_that_ends_the_rank_ends_its_programs(tmp_path: Path) -> None:
    """A server that never listens is waited for 20 s; the case's time is up before. The fixture finds what is left."""
    rows, done = launch(tmp_path, fake_perftest.write(tmp_path, "deaf"), text=WRITE, more='timeout = "3 s"', code=4)
    assert (rows[0].status, rows[0].collective) == ("timeout", "rdma_write")
    assert "phase sample" in done.err


def test_three_ranks_have_a_pair_and_the_last_step_has_all(tmp_path: Path) -> None:
    rows, _ = launch(tmp_path, fake_perftest.write(tmp_path), ranks=3)
    ran = [(row.collective, row.ranks) for row in rows if row.status == "ok"]
    assert ran == [("rdma_write", 2), ("ping_pong", 2), ("send_recv", 2), ("all_reduce", 2), ("all_reduce", 3)]
