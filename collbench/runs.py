"""Beginning a run, and going on with one: what must agree, and which rows are measured anew."""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from collbench.errors import UsageError
from collbench.plan import Case
from collbench.results import RunFolder, RunInfo
from collbench.scenario import Scenario, find, load

UNFINISHED = frozenset({"failed", "timeout"})
"""Statuses of rows that a resume measures anew."""
_SHOWN_LINES = 12
AB_FILE = "ab.json"
"""In the folder of an A/B, whose sides are run folders in it (collbench.ab)."""


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


def resumed_by(path: Path) -> Path:
    """The folder to name where a run is to go on: a side of an A/B goes on with the other."""
    return path.parent if (path.parent / AB_FILE).exists() else path


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


def check_launches(info: RunInfo, launches: int | None) -> None:
    """Refuse to complete a run with another number of launches than it began with."""
    if launches not in (None, info.launches):
        raise UsageError(
            f"--resume: got --launches {launches}, expected {info.launches} as the run began with; "
            "leave it out, or start a new run"
        )


def check_devices(folder: RunFolder, variant: str, found: Sequence[Sequence[str]], hosts: Sequence[str]) -> None:
    """Refuse other devices than the run began with, by their UUIDs; write down those that it begins with.

    Rows of one run are held against each other: a slowdown or a limit over other devices, or another number of them,
    would be none.
    """
    info = folder.read_info()
    begun = info.devices.get(variant)
    if begun is None:
        if found and all(found):
            folder.write_info(replace(info, devices={**info.devices, variant: found}))
        return
    for rank, (now, then) in enumerate(zip(found, begun, strict=False)):
        if list(now) != list(then):
            raise UsageError(
                f"{folder.path}: rank {rank} on {hosts[rank]}: got {_named(now)}, expected {_named(then)} as the run "
                "began with; show it those (CUDA_VISIBLE_DEVICES), or start a new run where they are gone (a vGPU has "
                "another UUID once its VM has restarted)"
            )


def _named(devices: Sequence[str]) -> str:
    return f"device{'s' * (len(devices) > 1)} {', '.join(devices)}" if devices else "no device"


def drop_unfinished(folder: RunFolder) -> int:
    """Take what is measured anew from a run that goes on, so that each key stays unique: failed rows, a torn one, and
    the case that a killed launch left pending. What had no end is remembered: see `tried_last`."""
    folder.repair()
    folder.remove_halves()
    struck = {row.case_id for row in folder.read() if row.status in UNFINISHED} | _left_pending(folder)
    if struck:
        tries = folder.read_tries()
        folder.write_tries(tries | {case_id: tries.get(case_id, 0) + 1 for case_id in sorted(struck)})
    folder.clear_pending()
    dropped = folder.drop(lambda row: row.status in UNFINISHED)
    folder.check_header()  # now, and not when the first case has been measured
    return dropped


def _left_pending(folder: RunFolder) -> set[str]:
    """The case that a killed launch was in, unless it has its rows."""
    try:
        rows = json.loads(folder.take_pending() or "{}").get("rows", [])
        left = {(str(row["case_id"]), str(row["group"]), int(row["launch"])) for row in rows}
    except (ValueError, TypeError, KeyError, AttributeError):
        return set()
    there = {(row.case_id, row.group or "", row.launch) for row in folder.read()}
    return {case_id for case_id, *_ in left - there}


def tried_last(cases: Iterable[Case], tries: Mapping[str, int]) -> tuple[Case, ...]:
    """Put the cases last that were begun before without an end, the most often tried at the very end.

    A case that always hangs ends its launch; where it stood it would keep all later cases from ever being measured.
    """
    return tuple(sorted(cases, key=lambda case: tries.get(case.case_id, 0)))
