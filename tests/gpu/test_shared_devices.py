"""Ranks on one device, on one host or in pods with names of their own: found by UUID, refused or flagged."""

import os
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
MEMORY = """
schema = 1
[measure]
time_budget = "10 ms"
least_time = "1 ms"
warmup_time = "5 ms"
[[sweep]]
backends = ["staged"]
collectives = ["broadcast"]
topologies = ["world", "0;1", "first:1"]
dtypes = ["int8"]
sizes = ["18 MiB", "1 MiB"]
"""
AT_ONCE = """
schema = 1
[measure]
time_budget = "5 ms"
least_time = "0 s"
least_iterations = 2
warmup_time = "1 ms"
ranks_per_device = 2
[[sweep]]
backends = ["nccl", "staged", "peer"]
collectives = ["all_reduce"]
topologies = ["0-1;2-3", "0-1"]
sizes = ["64 KiB"]
[[sweep]]
kind = "kernel"
kernels = ["copy", "host_copy", "reduce_local", "peer_copy"]
ways = ["kernel", "h2d pinned", "engine one_way"]
topologies = ["0-1;2-3", "0;1;2"]
sizes = ["64 KiB"]
"""
PODS = """
import socket, sys
from collbench.start import launcher_rank
socket.gethostname = lambda: f"pod{launcher_rank()}"
from collbench.cli import main
sys.exit(main(sys.argv[1:]))
"""


def in_pods(scenario: str, tmp_path: Path) -> list[Record]:
    """Run two ranks on one device, each with a host name of its own."""
    if launching.cuda_devices() < 1:
        pytest.skip("a CUDA device is needed")
    path, run, program = tmp_path / "s.toml", tmp_path / "run", tmp_path / "pods.py"
    path.write_text(scenario)
    program.write_text(PODS)
    env = launching.one_device()
    launching.mpirun(2, [sys.executable, program, "run", path, "-o", run], timeout=60, env=env).expect(0)
    return read(run)


def test_one_device_in_two_pods_is_refused_or_flagged(tmp_path: Path) -> None:
    nccl, staged, copy = in_pods(SCENARIO, tmp_path)
    for row in nccl, copy:
        assert row.status == "skipped"
        assert str(row.reason).startswith("rank 0 on pod0 and rank 1 on pod1 have the same device, expected one each")
    assert (staged.status, staged.wrong, staged.hosts, staged.ranks_per_device) == ("ok", 0, 2, 2)
    assert "shared_device" in str(staged.notes).split()


def test_a_list_that_ends_early_is_the_cause(tmp_path: Path) -> None:
    if launching.cuda_devices() < 1:
        pytest.skip("a CUDA device is needed")
    path, run = tmp_path / "s.toml", tmp_path / "run"
    path.write_text(SCENARIO.replace('"staged"]', '"staged", "peer"]'))
    visible = f"{launching.one_device()['CUDA_VISIBLE_DEVICES']},99"
    launching.collbench(["launch", path, "-n", "2", "-o", run], env={"CUDA_VISIBLE_DEVICES": visible}).expect(0)
    cause = f"CUDA_VISIBLE_DEVICES is '{visible}' and shows 1: CUDA ends the list at the first entry that is no device"
    for row in read(run):
        if row.backend != "staged":
            assert row.status == "skipped"
            expected = "; expected one each" if row.backend == "peer" else ", expected one each; start as many ranks"
            assert f" have the same device ({cause}){expected}" in str(row.reason)


def test_a_device_that_is_named_twice_is_the_cause() -> None:
    if not launching.emulated():
        pytest.skip("what the emulator does where a device is named twice")
    program = "from collbench.backends.cuda import driver_problem; print(driver_problem())"
    done = launching.run([sys.executable, "-c", program], timeout=60, env={"CUDA_VISIBLE_DEVICES": "1,0,1"}).expect(0)
    cause = "(CUDA_VISIBLE_DEVICES is '1,0,1', which names 1 more than once)"
    assert done.out.strip() == f"no CUDA device is visible {cause}"


def test_a_copy_between_pods_on_one_device_is_refused_for_the_device(tmp_path: Path) -> None:
    scenario = SCENARIO.replace("[measure]", "[measure]\nranks_per_device = 2")
    row = in_pods(scenario.replace('backends = ["nccl", "staged"]', 'backends = ["staged"]'), tmp_path)[1]
    assert row.status == "skipped"
    assert str(row.reason).endswith(" have the same device, on pod0 and pod1; expected one each")


def test_groups_at_once_on_the_same_devices_are_flagged_and_have_no_limit(tmp_path: Path) -> None:
    if not launching.emulated() or launching.cuda_devices() < 2:
        pytest.skip("2 emulated CUDA devices are needed")
    path, run = tmp_path / "s.toml", tmp_path / "run"
    path.write_text(AT_ONCE)
    env = {"CUDA_VISIBLE_DEVICES": "0,1"}
    launching.collbench(["launch", path, "-n", "4", "-o", run, "--no-choices"], timeout=150, env=env).expect(0)
    rows = [row for row in read(run) if row.status == "ok"]
    shared = {"0-1;2-3": ("0-1", "2-3"), "0;1;2": ("0", "2")}
    for row in rows:
        sharers = 2 if row.group in shared.get(str(row.topology), ()) else 1
        told = str(row.notes).split()
        assert (row.ranks_per_device, "shared_device" in told) == (sharers, sharers == 2), (row.backend, row.group)
        if sharers == 2:
            assert (row.limit_GBps, row.limit_fraction) == (None, None)
    collectives = {"copy", "host_copy", "reduce_local", "peer_copy", "all_reduce"}
    assert {row.collective for row in rows if row.topology == "0-1;2-3"} == collectives
    assert {row.backend for row in rows if row.topology == "0-1;2-3"} == {"nccl", "staged", "peer", "device"}


def test_memory_is_planned_for_all_ranks_of_a_device(tmp_path: Path) -> None:
    if not launching.emulated():
        pytest.skip("the emulator's knobs: a device with little memory")
    path, run = tmp_path / "s.toml", tmp_path / "run"
    path.write_text(MEMORY)
    # A session of its own: what the device has is counted over its processes.
    session = f"{os.environ.get('EMUGPU_SESSION', '')}-memory"
    env = {"CUDA_VISIBLE_DEVICES": "0", "EMUGPU_MEMORY": "32M", "EMUGPU_SESSION": session}
    launching.collbench(["launch", path, "-n", "2", "-o", run], env=env).expect(0)
    Path(f"/dev/shm/emugpu-{os.getuid()}-{session}").unlink(missing_ok=True)
    rows = read(run)
    found = {(row.group, row.size_bytes): row for row in rows}
    for group in ("world", "0", "1"):
        large, small = (found[group, size << 20] for size in (18, 1))
        assert large.status == "skipped"
        assert "device memory: the buffers need 36" in str(large.reason)
        assert (small.status, small.ranks_per_device) == ("ok", 2)
        assert "shared_device" in str(small.notes).split()
    for size in (18, 1):
        row = found["first:1", size << 20]
        assert (row.status, row.ranks_per_device) == ("ok", 1)
