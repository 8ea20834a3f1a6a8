"""pytest sessions of their own for the tests of the plugin: on ranks, in a folder, each rank's reports kept."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import launching

SCENARIO = """\
# Does the plugin work?
schema = 1
title = "small"
[measure]
time_budget = "10 ms"
least_time = "1 ms"
warmup_time = "1 ms"
most_iterations = 200
[[sweep]]
backends = ["default"]
collectives = ["all_reduce", "ping_pong"]
placements = ["out_of_place"]
sizes = ["8 B", "4 KiB"]
"""

CONFTEST = """\
import json, os
from pathlib import Path
import pytest

HERE = Path(__file__).parent
RANK = int(next((os.environ[n] for n in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if n in os.environ), "0"))
SIZE = int(next((os.environ[n] for n in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE") if n in os.environ), "1"))
LAST = RANK == SIZE - 1


def pytest_configure(config):
    writes, cache = HERE / f"cache-{RANK}.txt", config.cache
    (HERE / f"reports-{RANK}.jsonl").unlink(missing_ok=True)
    if RANK:
        # What the plugin puts here does not write; whatever else does would show.
        type(cache).set = lambda self, key, value: writes.write_text(key)


def pytest_sessionfinish(session):
    told = {name: str(getattr(session.config.option, name, None)) for name in ("benchmark_json", "xmlpath")}
    (HERE / f"told-{RANK}.json").write_text(json.dumps(told))


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    with (HERE / f"reports-{RANK}.jsonl").open("a") as file:
        file.write(json.dumps([report.nodeid, report.when, report.outcome, hasattr(report, "wasxfail")]) + "\\n")
"""


def on_ranks(
    ranks: int, folder: Path, *args: str, env: Mapping[str, str | None] | None = None, timeout: float = 60
) -> launching.CompletedRun:
    """Run pytest in a folder on so many ranks; each rank reports to reports-<rank>.jsonl."""
    if not (folder / "conftest.py").exists():
        (folder / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "--color=no", *args]
    return launching.mpirun(ranks, command, timeout=timeout, cwd=folder, env={"PYTEST_ADDOPTS": None, **(env or {})})


def reports(folder: Path, ranks: int) -> dict[str, str]:
    """What each test came to, which every rank must have reported alike, phase by phase."""
    each = [(folder / f"reports-{rank}.jsonl").read_text() for rank in range(ranks)]
    assert each == [each[0]] * ranks
    found: dict[str, str] = {}
    for nodeid, _, outcome, xfail in map(json.loads, each[0].splitlines()):
        name = nodeid.partition("::")[2]
        if found.get(name, "passed") == "passed":
            found[name] = "xfail" if xfail and outcome == "skipped" else outcome
    return found


def alone(folder: Path, *args: str) -> launching.CompletedRun:
    """Run pytest in a folder, in one process that no launcher has started."""
    command = [sys.executable, "-m", "pytest", "--color=no", *args]
    return launching.run(command, timeout=60, cwd=folder, env={"PYTEST_ADDOPTS": None})
