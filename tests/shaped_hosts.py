"""Runs programs on the hosts of tests/hosts/hosts.sh: network namespaces on links of known rate."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

import launching
from collbench.record import Record
from collbench.results import read

SCRIPT = Path(__file__).parent / "hosts" / "hosts.sh"


@cache
def problem() -> str | None:
    """One sentence that says why this machine cannot make such hosts; None where it can."""
    for program in ("ip", "tc", "unshare", "bash"):
        if shutil.which(program) is None:
            return f"{program} is not here"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    try:
        done = subprocess.run([SCRIPT, "1", "1gbit", "true"], capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return "making a host took more than 30 s"
    if done.returncode:
        return f"a host could not be made: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    return None


def launcher_args() -> str:
    """What `mpirun` needs to start ranks on them, as a word that the shell on the hosts expands."""
    return "$CB_OPENMPI" if launching.flavour() == "openmpi" else "$CB_MPICH"


def on_hosts(
    rates: Sequence[str],
    command: str,
    *,
    timeout: float,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
) -> launching.CompletedRun:
    """Run a shell command with as many hosts as there are rates."""
    more = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return launching.run(
        [SCRIPT, str(len(rates)), ",".join(rates), "bash", "-c", command],
        timeout=timeout,
        env={**more, **(env or {})},
        cwd=cwd,
    )


def launch(
    scenario: str, folder: Path, rates: Sequence[str], *, code: int = 0, timeout: float = 150
) -> tuple[list[Record], launching.CompletedRun]:
    """Launch a scenario with one rank on each of as many hosts as there are rates: its rows, and what was printed."""
    file, run = folder / "scenario.toml", folder / "run"
    file.write_text(scenario)
    words = f"{sys.executable} -m collbench launch {file} -n {len(rates)} -o {run}"
    done = on_hosts(rates, f'{words} --launcher-args "{launcher_args()}"', timeout=timeout).expect(code)
    return read(run), done


MARKS = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(problem() is not None, reason=f"no hosts: {problem()}"),
]
"""Of every test module that needs such hosts."""
