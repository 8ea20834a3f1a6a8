"""Nothing changes the environment while MPI_Init reads it in another thread: getenv crashes then, once in a while."""

import sys
from pathlib import Path

import launching

SCENARIO = """
schema = 1
[measure]
time_budget = "1 ms"
least_time = "0 s"
warmup_time = "0 s"
[[sweep]]
backends = ["mpi"]
collectives = ["all_reduce"]
sizes = ["8 B"]
"""

# Tells of each change from the moment on at which there is a second thread.
PROGRAM = """
import os, sys, threading
def told(event, arguments):
    if event in ("os.putenv", "os.unsetenv") and len(os.listdir("/proc/self/task")) > 1:
        sys.stderr.write(f"CHANGED {arguments[0]!r} in phase {sys.argv}\\n")
sys.addaudithook(told)
from collbench.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_no_import_changes_the_environment_beside_mpi_init(tmp_path: Path) -> None:
    scenario = tmp_path / "one.toml"
    scenario.write_text(SCENARIO)
    program: list[str | Path] = [sys.executable, "-c", PROGRAM, "run", scenario, "-o", tmp_path / "run"]
    done = launching.mpirun(2, program, timeout=60).expect(0)
    assert "CHANGED" not in done.err, done.err
