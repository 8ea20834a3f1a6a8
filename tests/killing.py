"""Random kills with resume, for tests/mpi/test_resume_mpi.py and scripts/random_kills."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import launching
from collbench.plan import expand
from collbench.results import read
from collbench.scenario import load

VICTIMS = ("rank", "mpirun", "launch")
LIMIT_S = 60.0
"""A launch that was struck must have ended so long after."""


@dataclass
class Disturbed:
    """What happened to a run: each kill as (victim, seconds after the start, exit code, rows on disk), and problems."""

    struck: list[tuple[str, float, int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    launches: int = 0

    @property
    def kills(self) -> int:
        return len(self.struck)


def disturbed(
    scenario: Path, run: Path, *, ranks: int, kills: int, chance: random.Random, python: str = sys.executable
) -> Disturbed:
    """Run a sweep that is killed so many times, at random times after its first start-up, and resumed to its end."""
    told = Disturbed()
    seen: dict[str, str] = {}
    words = [str(scenario), "-n", str(ranks), "-o", str(run)]
    while True:
        marker = f"{os.environ.get(launching.MARKER, '')}/{uuid.uuid4().hex}"
        environment = os.environ | {launching.MARKER: marker}
        began = struck_at = time.monotonic()
        process = subprocess.Popen(
            [python, "-m", "collbench", "launch", *words, "-q"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        told.launches += 1
        try:
            victim = None
            if told.kills < kills:
                victim = _strike(process, marker, run, chance)
                struck_at = time.monotonic()
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            told.problems.append(f"launch {told.launches} went on for {LIMIT_S:g} s")
            code = 1
            process.kill()
            process.wait()
        left = launching.left_behind(marker, grace=15.0)
        if left:
            told.problems.append(f"launch {told.launches} left {[one.command for one in left]}")
            launching.kill(left)
        rows = read(run) if (run / "results.csv").exists() else []
        for row in rows:
            if row.status not in ("ok", "skipped"):
                continue
            if seen.setdefault(row.case_id, str(row.started_at)) != str(row.started_at):
                told.problems.append(f"{row.case_id} was measured twice")
        if victim is not None:
            told.struck.append((victim, struck_at - began, code, len(rows)))
        elif code not in (0, 7):
            told.problems.append(f"an undisturbed launch ended with {code}")
            return told
        if victim is None and told.kills >= kills:
            return told
        if victim is None:
            return told  # complete before all kills were done
        if (run / "run.json").exists():
            words = ["--resume", str(run)]


def _strike(process: "subprocess.Popen[bytes]", marker: str, run: Path, chance: random.Random) -> str | None:
    """Kill one process at once or after a few more rows; its name, or None where the launch ended before."""
    rows, victim, delay = chance.choice((-1, -1, 0, 1)), chance.choice(VICTIMS), chance.uniform(0.0, 0.5)
    wanted = _rows_on_disk(run) + rows
    deadline = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        if rows < 0 or ((run / "pending.json").exists() and _rows_on_disk(run) >= wanted):
            break
        time.sleep(0.05)
    time.sleep(delay)
    while process.poll() is None and time.monotonic() < deadline:
        for one in _found(victim, marker, process.pid, chance):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
                return victim
        time.sleep(0.05)
    return None


def _rows_on_disk(run: Path) -> int:
    return len(read(run)) if (run / "results.csv").exists() else 0


def _found(victim: str, marker: str, launch: int, chance: random.Random) -> list[int]:
    if victim == "launch":
        return [launch]
    processes = launching.left_behind(marker, grace=0.0)
    if victim == "mpirun":
        # The launcher is the one that launch itself started.
        return [one.pid for one in processes if _parent(one.pid) == launch]
    ranks = [one.pid for one in processes if " -m collbench run " in one.command and _parent(one.pid) != launch]
    chance.shuffle(ranks)
    return ranks


def _parent(process: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def problems(scenario: Path, run: Path, told: Disturbed, ranks: int = 2) -> list[str]:
    """Say where a disturbed run differs from an undisturbed one."""
    found = list(told.problems)
    rows = read(run)
    keys = [(row.case_id, row.group, row.launch) for row in rows]
    plan = expand(load(str(scenario)), ranks=ranks, variant="", backend="mpi", launch=0, launches=1)
    expected = {(case.case_id, "world", 0) for case in plan.cases}
    if len(set(keys)) < len(keys):
        found.append("a key is there twice")
    if set(keys) != expected:
        found.append(f"{len(set(keys) ^ expected)} keys differ from the plan's")
    found += [f"{row.case_id} is {row.status}" for row in rows if row.status not in ("ok", "skipped")]
    found += [f"{path.name} is left" for path in run.iterdir() if path.name.startswith(".")]
    return found
