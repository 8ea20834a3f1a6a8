"""The doctor on several ranks."""

import json
import sys

import launching
from collbench.start import launcher_size

DOCTOR = [sys.executable, "-m", "collbench", "doctor", "--seconds", "0"]


def test_all_ranks_are_compared() -> None:
    assert launcher_size() is None
    said = json.loads(launching.mpirun(2, [*DOCTOR, "--json"], timeout=60).expect(0).out)
    assert [one["rank"] for one in said["facts"]["system"]] == [0, 1]
    seen = {one["check"]: one["seen"] for one in said["findings"] if one["level"] == "ok"}
    assert seen["launcher"] == "2 ranks on one host"


def test_under_a_launcher_the_start_is_the_wait() -> None:
    done = launching.mpirun(2, [*DOCTOR, "--wait", "30"], timeout=60).expect(0)
    assert "2 ranks on one host" in done.out


def test_ranks_that_do_not_know_of_each_other() -> None:
    """As under another library's mpirun: each process is a world of one rank."""
    alone = ["env", "OMPI_COMM_WORLD_SIZE=3", "PMI_SIZE=3", "OMPI_COMM_WORLD_RANK=0", "PMI_RANK=0"]
    done = launching.run([*alone, *DOCTOR], timeout=60)
    if launching.flavour() == "openmpi":
        done.expect(7)
        assert "problem  launcher: OMPI_COMM_WORLD_SIZE says 3 processes but MPI" in done.out


def test_a_scenario_that_is_not_there_is_told_once() -> None:
    done = launching.mpirun(2, [*DOCTOR, "nowhere.toml"], timeout=60)
    assert done.code != 0
    assert done.err.count("collbench: scenario: got") == 1
