"""Ranks on one device, on one host or in pods with names of their own: found by UUID, refused or flagged."""

import sys
from pathlib import Path

import pytest

import launching
from collbench.record import Record
from collbench.results import read

SCENARIO = """
schema = 1
[measure]
time_budget = "10 ms"
least_time = "1 ms"
warmup_time = "5 ms"
timeout = "15 s"
[[sweep]]
backends = ["nccl", "staged"]
collectives = ["all_reduce"]
sizes = ["1 KiB"]
[[sweep]]
kind = "kernel"
kernels = ["peer_copy"]
ways = ["engine one_way"]
sizes = ["1 KiB"]
"""
PODS = """
import socket, sys
from collbench.start import launcher_rank
socket.gethostname = lambda: f"pod{launcher_rank()}"
from collbench.cli import main
sys.exit(main(sys.argv[1:]))
"""


def in_pods(scenario: str, tmp_path: Path) -> tuple[launching.CompletedRun, list[Record]]:
    """Run two ranks on one device, each with a host name of its own."""
    if launching.cuda_devices() < 1:
        pytest.skip("a CUDA device is needed")
    path, run, program = tmp_path / "s.toml", tmp_path / "run", tmp_path / "pods.py"
    path.write_text(scenario)
    program.write_text(PODS)
    env = {"CUDA_VISIBLE_DEVICES": "0"}
    done = launching.mpirun(2, [sys.executable, program, "run", path, "-o", run], timeout=60, env=env)
    return done, read(run)


def test_one_device_in_two_pods_is_refused_or_flagged(tmp_path: Path) -> None:
    done, (nccl, staged, copy) = in_pods(SCENARIO, tmp_path)
    assert done.code == 0
    for row in nccl, copy:
        assert row.status == "skipped"
        assert str(row.reason).startswith("rank 0 on pod0 and rank 1 on pod1 have the same device, expected one each")
    assert (staged.status, staged.wrong, staged.hosts, staged.ranks_per_device) == ("ok", 0, 2, 2)
    assert "shared_device" in str(staged.notes).split()


def test_a_copy_between_pods_on_one_device_is_refused_for_the_device(tmp_path: Path) -> None:
    scenario = SCENARIO.replace("[measure]", "[measure]\nranks_per_device = 2")
    row = in_pods(scenario.replace('backends = ["nccl", "staged"]', 'backends = ["staged"]'), tmp_path)[1][1]
    assert row.status == "skipped"
    assert str(row.reason).endswith(" have the same device, on pod0 and pod1; expected one each")
