"""The rows of several results, each launch once however often it was given."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.record import Record
from collbench.results import RESULTS, read


@dataclass(frozen=True)
class Gathered:
    """Rows, each with the place of its launch as `run_id`: launches of two folders are two. `notes` are sentences."""

    rows: tuple[Record, ...]
    notes: tuple[str, ...] = ()


def gather(paths: Sequence[Path]) -> Gathered:
    """Read all results. A launch is known by its run, its number and when it began, wherever its rows lie.

    A row that another place has in full is left out; rows of a launch that only one place has stay with that launch.
    """
    rows: list[Record] = []
    notes: list[str] = []
    homes: dict[tuple[str, int, str], Path] = {}
    places: list[Path] = []
    for path in paths:
        place = _place(path)
        if place in places:
            notes.append(f"{path}: given more than once, counted once")
            continue
        places.append(place)
        its = read(place)
        begun: dict[tuple[str, int], str] = {}
        for row in its:
            key = row.run_id or "", row.launch
            begun[key] = min(begun.get(key) or row.started_at or "", row.started_at or "")
        known, again = set(rows), set()
        for row in its:
            number = row.run_id or "", row.launch
            # Without a time nothing tells a copy from another run of the same name.
            home = homes.setdefault((*number, begun[number]), place) if begun[number] else place
            named = dataclasses.replace(row, run_id=str(home))
            if home != place and named in known:
                again.add((home, number))
                continue
            rows.append(named)
        for home in dict.fromkeys(home for home, _ in sorted(again)):
            count = len({number for its_home, number in again if its_home == home})
            what = f"{count} launches" if count > 1 else "a launch"
            notes.append(f"{path}: has {what} of {home} again, counted once")
    return Gathered(tuple(rows), tuple(dict.fromkeys(notes)))


def _place(path: Path) -> Path:
    """A run folder for its results.csv, so that both are one."""
    whole = path.resolve()
    return whole.parent if whole.name == RESULTS and whole.is_file() else whole
