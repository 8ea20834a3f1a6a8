"""Beginning a run, and going on with one: what must agree, and which rows are measured anew."""

import difflib
from datetime import UTC, datetime
from pathlib import Path

from collbench.errors import UsageError
from collbench.results import RunFolder, RunInfo
from collbench.scenario import Scenario, find, load

UNFINISHED = frozenset({"failed", "timeout"})
"""Statuses of rows that a resume measures anew."""
_SHOWN_LINES = 12


def open_run(path: Path | None, scenario: Scenario, source: str, ranks: int, launches: int) -> RunFolder:
    """Make a new run folder, or open the one at `path` and check that it is of this scenario and as many ranks.

    The folder is locked when it comes back.
    """
    if path is not None and (path / "run.json").exists():
        folder = RunFolder.open(path)
        folder.lock()
        info = folder.read_info()
        check_scenario(folder, info, scenario)
        if info.ranks != ranks:
            raise UsageError(f"{path}: got {ranks} ranks, expected {info.ranks} as the run began with")
        return folder
    folder = RunFolder.create(scenario.name, path)
    folder.lock()
    folder.write_scenario(find(source).read_text(encoding="utf-8"))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    folder.write_info(RunInfo(scenario.name, scenario.digest, ranks, now, launches))
    return folder


def check_scenario(folder: RunFolder, info: RunInfo, scenario: Scenario) -> None:
    """Refuse a scenario that means something else than the run's, and show where the files differ."""
    if scenario.digest == info.scenario_digest:
        return
    kept = load(str(folder.scenario_path))
    if kept.digest != info.scenario_digest:
        raise UsageError(
            f"{folder.scenario_path}: got another scenario than the run began with, expected it unchanged; "
            "undo the change, or start a new run"
        )
    old = folder.scenario_path.read_text(encoding="utf-8").splitlines()
    new = find(scenario.source).read_text(encoding="utf-8").splitlines()
    difference = [line for line in difflib.unified_diff(old, new, lineterm="", n=0) if line[:1] in "+-"][2:]
    shown = "; ".join(" ".join(line.split()) for line in difference[:_SHOWN_LINES])
    raise UsageError(
        f"{scenario.source}: got another scenario than {folder.path} was run with: {shown}; start a new run"
    )


def drop_unfinished(folder: RunFolder) -> int:
    """Take rows of cases that failed or timed out from a run that goes on, so that each key stays unique."""
    folder.repair()
    return folder.drop(lambda row: row.status in UNFINISHED)
