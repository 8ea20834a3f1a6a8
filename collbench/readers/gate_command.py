"""`collbench compare`: from two results, or from one and its baseline or its guidelines, to a text and an exit code."""

import re
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import UsageError
from collbench.output import deliver
from collbench.readers import baselines, environments
from collbench.readers.gate import Rules, compare
from collbench.readers.gate_rows import BANDS, pair
from collbench.readers.gate_text import written
from collbench.results import read
from collbench.units import parse_duration

_PERCENT = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,6})?) ?%")


@dataclass(frozen=True)
class CompareOptions:
    """The command line; `results` are BASE and NEW, or NEW alone."""

    results: tuple[Path, ...]
    threshold: str = "10%"
    floor: str = "1us"
    across: tuple[str, ...] = ()
    bands: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    form: str = "text"
    baseline: bool = False
    guidelines: bool = False
    baselines: Path | None = None


def command(options: CompareOptions) -> int:
    """Compare, print, and return the exit code."""
    wanted = ("NEW",) if options.baseline else ("RESULTS",) if options.guidelines else ("BASE", "NEW")
    if options.baseline and options.guidelines:
        raise UsageError("compare: got --baseline and --guidelines, expected one of them")
    if len(options.results) != len(wanted):
        raise UsageError(
            f"compare: got {len(options.results)} results, expected {len(wanted)}: {' '.join(wanted)}; "
            "see collbench compare --help"
        )
    rules = Rules(
        threshold=parse_percent(options.threshold),
        floor_s=_floor(options.floor),
        across=options.across,
        bands=_bands(options.bands),
        cases=options.cases,
    )
    environments.check_names(rules.across)
    path = options.results[-1]
    new = read(path)
    if options.guidelines:
        from collbench.readers import guidelines

        return guidelines.command(path, new, rules, options.form)
    notes = []
    if options.baseline:
        held = baselines.newest(path, new, rules.across, options.baselines or baselines.DEFAULT)
        base_path, base = held.path, list(held.records)
        notes.append(f"BASE is {held.path}")
    else:
        base_path = options.results[0]
        base = read(base_path)
    known = environments.read(base_path), environments.read(path)
    notes += [
        f"{name} has no environment.json beside it: driver, cpu, packages and settings were not compared"
        for name, its in zip(("BASE", "NEW"), known, strict=True)
        if its is None
    ]
    paired = pair(base, new, rules.across)
    notes += environments.check(environments.differences(paired, *known), rules.across)
    found = compare(base, new, rules, notes)
    deliver(written(found, options.form))
    return found.exit_code


def parse_percent(text: str) -> float:
    """Return the share that a percentage is of the time: "10%" is 0.1."""
    parts = _PERCENT.fullmatch(text.strip())
    if parts is None:
        raise UsageError(f'compare: --threshold: got "{text}", expected a percentage of time; write e.g. "10%"')
    return float(parts[1]) / 100


def _floor(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"compare: --floor: {error}") from error


def _bands(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in BANDS:
            raise UsageError(f'compare: --bands: got "{name}", expected some of {", ".join(BANDS)}')
    return tuple(band for band in BANDS if band in names) or BANDS
