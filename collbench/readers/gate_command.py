"""`collbench compare`: from two results, or from one and its baseline or its guidelines, to a text and an exit code."""

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import UsageError
from collbench.output import deliver
from collbench.readers import baselines, environments, noise_floor
from collbench.readers.gate import Comparison, Rules, compare
from collbench.readers.gate_rows import BANDS, pair
from collbench.readers.gate_text import written
from collbench.record import Record
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
    noise_floor: Path | None = None
    force: bool = False


def options_of(told: argparse.Namespace) -> CompareOptions:
    """What the parser read, with its defaults."""
    given = {"threshold": told.threshold, "floor": told.floor, "form": told.format}
    return CompareOptions(
        results=tuple(getattr(told, "results", ())),
        across=_names(told.across),
        bands=_names(told.bands),
        cases=tuple(told.case or ()),
        baseline=getattr(told, "baseline", False),
        guidelines=getattr(told, "guidelines", False),
        baselines=getattr(told, "baselines", None),
        noise_floor=told.noise_floor,
        force=told.force,
        **{name: value for name, value in given.items() if value is not None},
    )


def _names(texts: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(name for text in texts or () for name in text.split(","))


def command(options: CompareOptions) -> int:
    """Compare, print, and return the exit code."""
    rules = rules_of(options)
    if options.noise_floor is not None and not options.results:
        return _tell_floor(options.noise_floor, rules)
    wanted = ("NEW",) if options.baseline else ("RESULTS",) if options.guidelines else ("BASE", "NEW")
    if options.baseline and options.guidelines:
        raise UsageError("compare: got --baseline and --guidelines, expected one of them")
    if len(options.results) != len(wanted):
        raise UsageError(
            f"compare: got {len(options.results)} results, expected {len(wanted)}: {' '.join(wanted)}; "
            "see collbench compare --help"
        )
    path = options.results[-1]
    new = read(path)
    if options.guidelines:
        without: dict[str, object] = {"--bands": options.bands, "--case": options.cases, "--across": options.across}
        without |= {"--noise-floor": options.noise_floor, "--baselines": options.baselines, "--force": options.force}
        if given := next((name for name, value in without.items() if value), ""):
            raise UsageError(f"compare: got --guidelines and {given}, which changes nothing there; leave it out")
        from collbench.readers import guidelines

        return guidelines.command(path, new, rules, options.form)
    notes, known = [], options.noise_floor
    if options.baseline:
        held = baselines.newest(path, new, rules.across, options.baselines or baselines.DEFAULT)
        base_path, base = held.path, list(held.records)
        notes.append(f"BASE is {held.path}")
        if known is None and (held.path / noise_floor.FILE).is_file():
            known = held.path
    else:
        base_path = options.results[0]
        base = read(base_path)
    if known is not None:
        launches = launches_of(base), launches_of(new)
        notes.append(hold_floor(noise_floor.of(known), rules, launches, options.force))
    if shared := sorted(_started(base) & _started(new)):
        run, launch, *_ = shared[0]
        notes.append(f"BASE and NEW have the same launch {launch} of {run}, which says nothing of a change")
    found = judged((base_path, path), (base, new), rules, notes)
    deliver(written(found, options.form))
    return found.exit_code


def _started(rows: Iterable[Record]) -> set[tuple[str, int, str]]:
    return {(str(one.run_id), one.launch, str(one.started_at)) for one in rows if one.started_at is not None}


def rules_of(options: CompareOptions) -> Rules:
    """The rules of a command line."""
    rules = Rules(
        threshold=parse_percent(options.threshold),
        floor_s=_floor(options.floor),
        across=options.across,
        bands=_bands(options.bands),
        cases=options.cases,
    )
    environments.check_names(rules.across)
    return rules


def judged(
    paths: tuple[Path, Path], rows: tuple[Sequence[Record], Sequence[Record]], rules: Rules, notes: Sequence[str] = ()
) -> Comparison:
    """Compare BASE's and NEW's rows, once it is sure that they may be compared; `paths` are where they were read."""
    known = environments.read(paths[0]), environments.read(paths[1])
    more = [
        f"{name} has no environment.json beside it: driver, cpu, packages and settings were not compared"
        for name, its in zip(("BASE", "NEW"), known, strict=True)
        if its is None
    ]
    paired = pair(*rows, rules.across)
    more += environments.check(environments.differences(paired, *known), rules.across)
    return compare(*rows, rules, [*notes, *more])


def launches_of(rows: Iterable[Record]) -> int:
    """How many launches have a time in these rows."""
    return len({(row.run_id, row.launch) for row in rows if row.status == "ok"})


def hold_floor(noise: noise_floor.Noise, rules: Rules, launches: tuple[int, int], force: bool) -> str:
    """Refuse a threshold below the noise floor, unless forced; the floor in words."""
    found = noise_floor.floors(noise, rules, launches)
    if refusal := noise_floor.refused(found, noise, rules, launches):
        if not force:
            raise UsageError(f"compare: {refusal}")
        refusal = f"; forced, though {refusal}"
    return noise_floor.sentence(found, noise, rules, launches) + refusal


def _tell_floor(path: Path, rules: Rules) -> int:
    """Print the noise floor of a run for half of its launches a side, and keep it there."""
    noise = noise_floor.of(path)
    launches = noise.launches // 2, noise.launches // 2
    found = noise_floor.floors(noise, rules, launches)
    noise_floor.keep(noise, found, launches, [path if path.is_dir() else path.parent])
    deliver(noise_floor.sentence(found, noise, rules, launches) + "\n")
    return 0


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
