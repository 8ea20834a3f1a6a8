"""What becomes of a launch on devices when a rank dies, hangs or never calls: the same as with MPI."""

from pathlib import Path

import pytest

import faulting
import launching

FAULTS = ("SIGKILL of a rank", "SIGSTOP of a rank", "endless loop in prepare", "raise in prepare")


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", FAULTS)
def test_a_launch_on_devices_accounts_for_a_fault(name: str, tmp_path: Path) -> None:
    if launching.cuda_devices() < 2:
        pytest.skip("2 CUDA devices are needed")
    fault = next(fault for fault in faulting.FAULTS if fault.name == name)
    outcome = faulting.strike(fault, tmp_path, 2, backend="nccl")
    assert faulting.unmet(fault, outcome) == [], outcome.err
    assert {row.backend for row in outcome.rows} == {"nccl"}
