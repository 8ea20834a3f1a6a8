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


def begin_run(path: Path | None, scenario: Scenario, source: str, ranks: int, launches: int) -> RunFolder:
    """Make a new run folder, at `path` or with a name of its own; it is locked when it comes back."""
    if path is not None and _has_run(path):
        raise UsageError(f"{path}: got a folder with a run in it, expected a new one; complete that run with --resume")
    folder = RunFolder.create(scenario.name, path)
    folder.lock()
    if _has_run(folder.path):  # another process was faster
        raise UsageError(f"{path}: got a folder that another run has just begun in, expected a new one")
    folder.write_scenario(find(source).read_text(encoding="utf-8"))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    folder.write_info(RunInfo(scenario.name, scenario.digest, ranks, now, launches))
    return folder


def open_run(path: Path, scenario: Scenario, ranks: int) -> RunFolder:
    """Open the run at `path`, check that it is of this scenario and as many ranks; it is locked when it comes back."""
    folder = RunFolder.open(path)
    folder.lock()
    info = folder.read_info()
    check_scenario(folder, info, scenario)
    if info.ranks != ranks:
        raise UsageError(f"{path}: got {ranks} ranks, expected {info.ranks} as the run began with")
    return folder


def begin_or_open_run(path: Path | None, scenario: Scenario, source: str, ranks: int, launches: int) -> RunFolder:
    """Open the run at `path` if there is one, else begin it."""
    if path is not None and _has_run(path):
        return open_run(path, scenario, ranks)
    return begin_run(path, scenario, source, ranks, launches)


def _has_run(path: Path) -> bool:
    return (path / "run.json").exists()


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
    """Take what is measured anew from a run that goes on, so that each key stays unique: failed rows, a torn one, and
    the case that a killed launch left pending."""
    folder.repair()
    folder.remove_halves()
    folder.clear_pending()
    return folder.drop(lambda row: row.status in UNFINISHED)
