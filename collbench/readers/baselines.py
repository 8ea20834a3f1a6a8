"""Baselines: results that later ones are compared with, by machine and commit, appended and never overwritten.

<baselines>/<fingerprint>/<commit>-<UTC time>/
  results.csv environment.json scenario.toml run.json   as the run wrote them
  baseline.json                                         the machine, the commit, when it was added, and from where
"""

import contextlib
import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collbench.errors import UsageError
from collbench.output import deliver
from collbench.readers.environments import Difference, differences
from collbench.readers.environments import read as read_environment
from collbench.readers.gate_rows import pair
from collbench.record import Record
from collbench.results import read

DEFAULT = Path("results") / "baselines"
_KEPT = ("results.csv", "scenario.toml", "run.json", "tries.json", "noise_floor.json")
_ABOUT = "baseline.json"
_COMMIT = re.compile(r"[0-9A-Za-z][0-9A-Za-z._]{0,63}")
_GIT_WAIT_S = 10
_SHOWN = 5


@dataclass(frozen=True)
class Baseline:
    """One that fits, with its rows."""

    path: Path
    records: tuple[Record, ...]


def machine(records: Sequence[Record], environment: dict[str, Any] | None) -> dict[str, str]:
    """Say what hardware and how many ranks made these rows: what a baseline must share, whatever its software is."""
    rows = [row for row in records if row.status == "ok"]
    ranks = (environment or {}).get("ranks", {})
    models = sorted({str(value) for value in ranks.get("cpu_model", {}).values()}) if isinstance(ranks, dict) else []
    return {
        "cpu": " or ".join(models) or "unknown",
        "devices": " or ".join(sorted({row.device for row in rows if row.device})) or "none",
        "ranks": str(max((row.ranks or 0 for row in rows), default=0)),
        "hosts": str(max((row.hosts or 0 for row in rows), default=0)),
    }


def fingerprint(of: dict[str, str]) -> str:
    """A short digest of a machine; the letter keeps it from being read as a number."""
    return "m" + hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:11]


def add(run: Path, baselines: Path = DEFAULT, commit: str | None = None) -> Path:
    """Append a run's results to the baselines; the new folder."""
    folder = run if run.is_dir() else run.parent
    records = read(run)
    if not any(row.status == "ok" for row in records):
        raise UsageError(f"{run}: got no row that is ok, expected results to compare with; measure again")
    bad = [row for row in records if row.status not in ("ok", "skipped")]
    if bad:
        raise UsageError(
            f"{run}: got {len(bad)} row{'s' * (len(bad) > 1)} that {'are' if bad[1:] else 'is'} not ok (the first: "
            f"{bad[0].case_id}, {bad[0].status}), expected a run that is known to be good; finish it with --resume"
        )
    if commit is not None and not _COMMIT.fullmatch(commit):
        raise UsageError(f'baseline: --commit: got "{commit}", expected letters, digits, dots and underscores')
    now = datetime.now(UTC)
    its = machine(records, read_environment(run))
    about = {
        "machine": its,
        "commit": commit or _head(),
        "added_at": now.isoformat(timespec="microseconds"),
        "run": records[0].run_id or folder.name,
        "launches": len({(row.run_id, row.launch) for row in records}),
    }
    home = baselines / fingerprint(its)
    name = f"{about['commit']}-{now:%Y%m%dT%H%M%SZ}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".adding-", dir=home) as temporary:
            whole = Path(temporary) / "whole"
            whole.mkdir()
            for path in (*(folder / kept for kept in _KEPT), *folder.glob("environment*.json")):
                if path.is_file():
                    shutil.copyfile(path, whole / path.name)
            if not run.is_dir():
                shutil.copyfile(run, whole / "results.csv")
            (whole / _ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            return _placed(whole, home / name)
    except OSError as error:
        raise UsageError(
            f"{baselines}: got {error}, expected a folder that takes a baseline; name one by --to"
        ) from error


def newest(run: Path, records: Sequence[Record], across: Sequence[str] = (), baselines: Path = DEFAULT) -> Baseline:
    """Find the newest baseline of this machine that these rows can be compared with, or say what differs."""
    environment = read_environment(run)
    its = machine(records, environment)
    home = baselines / fingerprint(its)
    reasons = []
    for path in _newest_first(home):
        held = read(path)
        paired = pair(held, records, across)
        if not any(one.base and one.new and one.base.times and one.new.times for one in paired):
            reasons.append(f"{path.name}: it has no case of these results")
            continue
        found = differences(paired, read_environment(path), environment)
        bad = [one for one in found if one.matters and one.name.partition(":")[0] not in across]
        if not bad:
            return Baseline(path, tuple(held))
        reasons.append(f"{path.name}: {_told(bad)}")
    if reasons:
        shown = "\n".join(f"{home}: {reason}" for reason in reasons[:_SHOWN])
        raise UsageError(
            f"{shown}\n{home}: got {len(reasons)} baselines that differ, expected one that fits; "
            f"add one with `collbench baseline add {run}`, or name what is tested with --across"
        )
    raise UsageError(_no_machine(run, its, baselines))


def command_add(run: Path, baselines: Path | None, commit: str | None) -> int:
    """Add a baseline and print its folder."""
    deliver(f"{add(run, baselines or DEFAULT, commit)}\n")
    return 0


def _placed(whole: Path, wanted: Path) -> Path:
    """Rename a complete folder to a name that nothing has: a rename onto a folder with files in it fails."""
    number = 1
    while True:
        target = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            return whole.rename(target)
        except OSError:
            if not target.exists():
                raise
            number += 1


def _newest_first(home: Path) -> list[Path]:
    dated = []
    for path in home.glob(f"*/{_ABOUT}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            dated.append((str(json.loads(path.read_text(encoding="utf-8"))["added_at"]), path.parent))
    return [path for _, path in sorted(dated, reverse=True)]


def _no_machine(run: Path, its: dict[str, str], baselines: Path) -> str:
    others = {}
    for path in sorted(baselines.glob(f"*/*/{_ABOUT}")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            others[path.parent.parent.name] = dict(json.loads(path.read_text(encoding="utf-8"))["machine"])
    lines = [
        f"{baselines / name}: "
        + ", ".join(
            f"{what} is {other.get(what)}, not {value}" for what, value in its.items() if other.get(what) != value
        )
        for name, other in others.items()
    ]
    text = ", ".join(f"{what} {value}" for what, value in its.items())
    last = (
        f"{baselines}: got no baseline of this machine ({text}), expected one; `collbench baseline add {run}` adds it"
    )
    return "\n".join([*lines[:_SHOWN], last])


def _told(bad: Sequence[Difference]) -> str:
    return "; ".join(one.sentence for one in bad[:_SHOWN])


def _head() -> str:
    """The commit of the repository that one is in; where there is none, a word that says so."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, timeout=_GIT_WAIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "nocommit"
    return found.stdout.strip() or "nocommit"


__all__ = ["DEFAULT", "Baseline", "add", "command_add", "fingerprint", "machine", "newest"]
