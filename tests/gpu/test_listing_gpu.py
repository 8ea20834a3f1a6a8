"""What `collbench list` says of backends for devices where there are some."""

import pytest

import launching
from collbench.backends.mpi_cuda import MpiCuda


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
