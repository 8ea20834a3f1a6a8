"""The noise floor: how much slower NEW must be to be told from BASE, by launches of one and the same thing.

Launches of an A/A run are drawn into two sides, again and again, and each pair of sides has the interval that the gate
would make. Where NEW is 1 + d times as slow, all of the interval moves by that factor; so the d from which a draw is
called slower follows from its lower bound, and no search is needed. The floor is what suffices in 95 of 100 draws. It
is also the least threshold at which NEW is called `same` as often where nothing changed: the interval is as wide
upwards as downwards. `docs/gates.md`.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.durable import sentences, write_atomically
from collbench.errors import UsageError
from collbench.readers.gate import Rules, level_of
from collbench.readers.gate_rows import BANDS, Launch, named, pair, words
from collbench.readers.shift import position
from collbench.record import Record
from collbench.results import read
from collbench.units import format_duration

Floats = NDArray[np.float64]

FILE = "noise_floor.json"
POWER = 0.95
_DRAWS = 2000
_SEED = 19471001
"""The same launches have the same floor."""
_LEAST_LAUNCHES = 6
"""Fewer say too little of how launches scatter."""
_PAIRS_AT_ONCE = 1 << 21
_DIGITS = 6


@dataclass(frozen=True)
class Case:
    """One case of the launches: `words` are what `--case` names it by."""

    case_id: str
    words: str
    band: str


@dataclass(frozen=True)
class Noise:
    """Launches of one and the same thing: `times_s` is launches x cases, each a median."""

    source: str
    cases: tuple[Case, ...]
    times_s: Floats

    @property
    def launches(self) -> int:
        """How many there are."""
        return len(self.times_s)


@dataclass(frozen=True)
class Floor:
    """Of a band or a case: `least` and `caught` are shares of the time, None where the launches have no interval.

    `least` is the smallest slowdown that is told from none, `caught` the smallest that is called slower by the rules;
    `time_s` is what the floor in seconds is held against, that of the band's longest case.
    """

    name: str
    least: float | None
    caught: float | None
    time_s: float


def of_rows(rows: Iterable[Record], source: str) -> Noise:
    """Collect the cases that have a time in every launch of these rows."""
    found = [one.base for one in pair(rows, ()) if one.base is not None and one.base.times]
    sides = [side for side in found if not side.oversubscribed]
    if not sides:
        why = "ranks that shared cores, which say nothing of the library" if found else "no row with a time"
        raise UsageError(f"{source}: got {why}, expected launches to know the noise from; measure again")
    launches: list[Launch] = sorted({launch for side in sides for launch in side.times})
    whole = [side for side in sides if len(side.times) == len(launches)]
    if len(launches) < _LEAST_LAUNCHES or not whole:
        got = f"{len(launches)} launches" if whole else f"no case with a time in each of {len(launches)} launches"
        raise UsageError(
            f"{source}: got {got}, expected at least {_LEAST_LAUNCHES} launches that are whole; "
            "start e.g. `collbench launch --aa SCENARIO`"
        )
    rows_of = [side.rows[0] for side in whole]
    bands = [one.band for one in pair(rows_of, ())]
    cases = [Case(row.case_id, words(row), band) for row, band in zip(rows_of, bands, strict=True)]
    times = np.array([[side.times[launch] for side in whole] for launch in launches])
    return Noise(source, tuple(cases), times)


def of(path: Path) -> Noise:
    """Know the noise from the launches of a run, or of both sides of an A/A run, or from more that were kept there."""
    rows = [row for side in _runs(path) for row in read(side)]
    if (kept := path / FILE).is_file():
        known = _load(kept)
        if known.launches >= len({(row.run_id, row.launch) for row in rows}):
            return known
    return of_rows(rows, str(path))


def of_sides(path: Path) -> Noise:
    """Know the noise from the rows alone, whatever was kept before."""
    return of_rows([row for side in _runs(path) for row in read(side)], str(path))


def _runs(path: Path) -> list[Path]:
    return [side for side in (path / "base", path / "new") if (side / "results.csv").is_file()] or [path]


def floors(noise: Noise, rules: Rules, launches: tuple[int, int]) -> tuple[Floor, ...]:
    """The floor of each named case, or else of each band that is there, for so many launches of BASE and NEW."""
    parts = _parts(noise, rules)
    level = level_of(rules, len(parts))
    return tuple(_floor(name, times, time_s, launches, level, rules) for name, times, time_s in parts)


def _parts(noise: Noise, rules: Rules) -> list[tuple[str, Floats, float]]:
    """Name, a time of each launch, and the time in seconds that counts, of what decides."""
    if rules.cases:
        at = {
            index: case
            for index, case in enumerate(noise.cases)
            if any(named(case.case_id, case.words, pattern) for pattern in rules.cases)
        }
        found = [
            (case.words, noise.times_s[:, index], float(np.median(noise.times_s[:, index])))
            for index, case in at.items()
        ]
    else:
        found = []
        for band in (one for one in BANDS if one in rules.bands):
            its = noise.times_s[:, [index for index, case in enumerate(noise.cases) if case.band == band]]
            if its.size:
                found.append((band, np.exp(np.log(its).mean(axis=1)), float(np.median(its, axis=0).max())))
    if not found:
        raise UsageError(
            f"{noise.source}: got nothing of what is compared, expected launches of the same cases; "
            "measure the noise by the scenario that is gated"
        )
    return found


def _floor(name: str, times_s: Floats, time_s: float, launches: tuple[int, int], level: float, rules: Rules) -> Floor:
    at = position(*launches, level)
    if at == 0:
        return Floor(name, None, None, time_s)
    lows, middles = _intervals(np.log(times_s), launches, at)
    least = _enough(np.exp(-lows))
    by_threshold = (1 + rules.threshold) * np.exp(-lows)
    by_floor = (1 + rules.floor_s / time_s) * np.exp(-middles)
    return Floor(name, least, _enough(np.maximum(by_threshold, by_floor)), time_s)


def _enough(needed: Floats) -> float:
    return max(0.0, float(np.quantile(needed, POWER, method="higher")) - 1)


def _intervals(logs: Floats, launches: tuple[int, int], at: int) -> tuple[Floats, Floats]:
    """Lower bounds and estimates, as logarithms, of sides that are drawn from the same launches."""
    random = np.random.default_rng(_SEED)
    base, new = launches
    lows, middles = [], []
    for count in _portions(_DRAWS, base * new):
        if base + new <= logs.size:  # a split: no launch is on both sides
            drawn = random.permuted(np.tile(logs, (count, 1)), axis=1)[:, : base + new]
        else:
            drawn = random.choice(logs, (count, base + new))
        apart = np.sort((drawn[:, base:, np.newaxis] - drawn[:, np.newaxis, :base]).reshape(count, -1), axis=1)
        lows.append(apart[:, at - 1])
        middles.append(np.median(apart, axis=1))
    return np.concatenate(lows), np.concatenate(middles)


def _portions(draws: int, pairs: int) -> Iterator[int]:
    at_once = max(1, _PAIRS_AT_ONCE // pairs)
    for first in range(0, draws, at_once):
        yield min(at_once, draws - first)


def sentence(found: Sequence[Floor], noise: Noise, rules: Rules, launches: tuple[int, int]) -> str:
    """Say the floors in one line."""
    if all(one.least is None for one in found):
        return f"noise floor: none at {_side(launches)}, which have no interval at this level"
    least = ", ".join(f"{one.name} {_percent(one.least)}" for one in found)
    caught = ", ".join(_percent(one.caught) for one in found)
    return (
        f"noise floor: {least} at {_side(launches)} ({noise.launches} launches in {noise.source}); a threshold of "
        f"{rules.threshold * 100:.4g} % and a floor of {format_duration(rules.floor_s)} catch {caught} more time "
        f"{POWER * 100:.0f} times in 100"
    )


def refused(found: Sequence[Floor], noise: Noise, rules: Rules, launches: tuple[int, int]) -> str:
    """Say why a threshold cannot be held here; empty where it can.

    The floor in seconds is a threshold too: what adds less is never called slower.
    """
    above = [
        (one.least, one.name)
        for one in found
        if one.least is not None and max(rules.threshold, rules.floor_s / one.time_s) < one.least
    ]
    if not above:
        return ""
    least, name = max(above)
    return (
        f"--threshold: got {rules.threshold * 100:.4g} %, expected at least {_percent(least)}, the noise floor of "
        f"{name} at {_side(launches)} ({noise.source}); start more launches, raise the threshold, "
        "or insist with --force"
    )


def keep(noise: Noise, found: Sequence[Floor], launches: tuple[int, int], folders: Iterable[Path]) -> None:
    """Write the launches and their floors into folders, where a comparison finds them."""
    content = {
        "schema": 1,
        "source": noise.source,
        "launches_a_side": list(launches),
        "floors": {one.name: one.least for one in found},
        "cases": [[case.case_id, case.words, case.band] for case in noise.cases],
        "times_s": [[float(f"{time:.{_DIGITS}g}") for time in of_launch] for of_launch in noise.times_s],
    }
    for folder in folders:
        with sentences(folder / FILE, "write it"):
            write_atomically(folder / FILE, json.dumps(content, allow_nan=False) + "\n", False)


def _load(path: Path) -> Noise:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        cases = tuple(Case(*map(str, words)) for words in content["cases"])
        times = np.array(content["times_s"], dtype=np.float64)
        if times.shape != (len(times), len(cases)) or not times.size or not (times > 0).all():
            raise ValueError(f"got times of shape {times.shape}, expected launches x {len(cases)} cases, all above 0")
        return Noise(str(path.parent), cases, times)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{path}: got {type(error).__name__} ({error}), expected what an A/A run wrote; delete it, or measure again"
        ) from error


def _side(launches: tuple[int, int]) -> str:
    base, new = launches
    return f"{base} launches a side" if base == new else f"{base} launches of BASE and {new} of NEW"


def _percent(share: float | None) -> str:
    if share is None or not math.isfinite(share):
        return "unknown"
    if share >= 9.995:
        return f"{share * 100:.0f} %"
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.3g} %"
