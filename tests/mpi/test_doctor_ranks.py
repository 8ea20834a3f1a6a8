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
