"""What becomes of a launch when a fault strikes; the whole matrix is scripts/fault_matrix."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import faulting
import launching
from collbench.results import read

QUICK = [fault for fault in faulting.FAULTS if fault.quick]
SLOW = ("endless loop in prepare", "rank that is only slow")


@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name.replace(" ", "_"), marks=[pytest.mark.long] * (fault.name in SLOW))
        for fault in QUICK
    ],
)
def test_a_launch_accounts_for_a_fault(fault: faulting.Fault, tmp_path: Path) -> None:
    outcome = faulting.strike(fault, tmp_path, 2)
    assert faulting.unmet(fault, outcome) == [], outcome.err


@pytest.mark.timeout(100)
def test_the_case_that_hung_has_its_row_under_a_bare_mpirun(tmp_path: Path) -> None:
    fault = next(fault for fault in QUICK if fault.name == "endless loop in prepare")
    outcome = faulting.strike(fault, tmp_path, 2, bare=True)
    assert faulting.unmet(fault, outcome, bare=True) == [], outcome.err
    assert outcome.struck is not None
    assert str(outcome.struck.reason).startswith("rank 1 on ")


@pytest.mark.timeout(100)
def test_of_two_runs_into_one_folder_one_is_refused(tmp_path: Path) -> None:
    scenario, run = tmp_path / "s.toml", tmp_path / "run"
    scenario.write_text(faulting.SCENARIO)
    command = [sys.executable, "-m", "collbench", "launch", str(scenario), "-n", "2", "-o", str(run), "-q"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        second = launching.run(command, timeout=60)
        assert first.wait(60) + second.code == 2  # one has 0, the other 2
    finally:
        first.kill()
        first.wait()
    rows = read(run)
    assert len({row.case_id for row in rows}) == len(rows) == faulting.CASES
    assert {row.status for row in rows} == {"ok"}


@pytest.mark.timeout(100)
@pytest.mark.skipif(not faulting.can_mount() or shutil.which("mount") is None, reason="no mount namespace to be had")
@pytest.mark.parametrize("name", ["full disk", "4 MiB /dev/shm"])
def test_a_machine_without_room_is_told(name: str, tmp_path: Path) -> None:
    fault = next(fault for fault in faulting.FAULTS if fault.name == name)
    outcome = faulting.strike(fault, tmp_path, 2)
    assert faulting.unmet(fault, outcome) == [], outcome.err
