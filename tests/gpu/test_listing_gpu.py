"""What is said of backends for devices where there are some."""

from pathlib import Path

import pytest

import launching
from collbench.backends.mpi_cuda import MpiCuda
from collbench.results import read


def test_the_list_says_whether_mpi_knows_devices() -> None:
    if launching.cuda_devices() < 1:
        pytest.skip("a CUDA device is needed")
    out = launching.collbench(["list"], timeout=60).expect(0).out
    (line,) = (line for line in out.splitlines() if line.startswith("  mpi_cuda "))
    (staged,) = (line for line in out.splitlines() if line.startswith("  staged "))
    assert "not here" not in staged
    if MpiCuda.summary in line:
        pytest.skip("the MPI library here is CUDA-aware")
    assert "not here: " in line
    assert "CUDA-aware (" in line or "cannot take memory of the device (" in line
    assert "; use backend staged" in line


SCENARIO = """
schema = 1
[[sweep]]
backends = ["nccl", "peer", "staged"]
collectives = ["all_reduce"]
sizes = ["8 B"]
"""


def test_a_driver_that_is_too_old_for_cupy_is_told_by_all(tmp_path: Path) -> None:
    if not launching.emulated():
        pytest.skip("the emulator's knobs")
    env, scenario, run = {"EMUGPU_DRIVER_CUDA": "12040"}, tmp_path / "s.toml", tmp_path / "run"
    told = (
        "the CUDA driver is for CUDA 12.4, and cupy-cuda13x needs one for 13.0 or later; "
        "install collbench[cuda12] in place of cupy-cuda13x, or update the driver"
    )
    out = launching.collbench(["list"], timeout=60, env=env).expect(0).out
    for name in ("nccl", "peer", "device", "staged"):
        (line,) = (line for line in out.splitlines() if line.startswith(f"  {name} "))
        assert line.endswith(f"not here: {told}")
    assert told in launching.collbench(["doctor", "--seconds", "0"], timeout=60, env=env).out
    scenario.write_text(SCENARIO)
    launching.collbench(["launch", scenario, "-n", "2", "-o", run], timeout=60, env=env).expect(7)
    assert [(row.status, row.reason) for row in read(run)] == [("skipped", told)] * 3
