"""`[expect] transport` on devices: what it marks, what it spares, and what it says."""

from pathlib import Path

import pytest

import launching
from collbench.results import read

SCENARIO = """
schema = 1
[measure]
time_budget = "10 ms"
least_time = "1 ms"
warmup_time = "5 ms"
[expect]
transport = "p2p"
[[sweep]]
kind = "kernel"
kernels = ["copy", "host_copy", "reduce_local", "peer_copy"]
ways = ["kernel", "h2d pinned", "engine one_way"]
sizes = ["64 KiB"]
[[sweep]]
backends = ["peer"]
collectives = ["all_reduce"]
sizes = ["8 B"]
"""
OTHERS = """
[[sweep]]
backends = ["staged", "nccl"]
collectives = ["all_reduce"]
sizes = ["1 MiB"]
"""


def needs_two() -> None:
    if launching.cuda_devices() < 2:
        pytest.skip("2 CUDA devices are needed")


def test_kernels_are_spared_and_peers_say_p2p(tmp_path: Path) -> None:
    needs_two()
    scenario, run = tmp_path / "s.toml", tmp_path / "run"
    scenario.write_text(SCENARIO)
    launching.collbench(["launch", scenario, "-n", "2", "-o", run, "--no-choices"]).expect(0)
    found = {row.collective: row.transport for row in read(run) if row.status == "ok"}
    local, peers = {"copy": None, "host_copy": None, "reduce_local": None}, {"peer_copy": "p2p", "all_reduce": "p2p"}
    assert found in (local, local | peers)  # devices may be out of each other's reach


def test_what_goes_by_another_way_is_marked_with_what_is_known(tmp_path: Path) -> None:
    needs_two()
    scenario, run = tmp_path / "s.toml", tmp_path / "run"
    scenario.write_text(SCENARIO.partition("[[sweep]]")[0] + OTHERS)
    env = {"NCCL_DEBUG": "WARN"}
    launching.collbench(["launch", scenario, "-n", "2", "-o", run, "--no-choices"], env=env).expect(5)
    staged, nccl = read(run)
    assert (staged.transport, staged.transport_source) == ("shm", "counters")
    assert staged.reason == "transport: got shm, expected p2p"
    assert str(nccl.reason).startswith("transport: got none that is known, expected p2p; NCCL_DEBUG is 'WARN' not INFO")
