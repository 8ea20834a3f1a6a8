"""Pairs as people look at them: a matrix in the terminal with its outliers marked, and matrices in CSV files."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from collbench.errors import UsageError
from collbench.output import deliver
from collbench.readers.pairs import SLOW, Pairs, findings, largest, pairs_of, suspicion
from collbench.record import Record
from collbench.results import read

_WIDEST = 16


def lines(records: Sequence[Record]) -> list[str]:
    """The tables of all pairs, and what was found; empty where the run has none."""
    found = pairs_of(records)
    said = [line for one in found for line in _table(one)]
    for one in largest(found, records):
        said += findings(one)
    return said


def command(path: Path) -> int:
    """Print the tables and findings of a results file or a run folder, and write the matrices beside it."""
    records = read(path)
    said = lines(records)
    if not said:
        raise UsageError(f'{path}: got no rows of pairs, expected the results of topologies = ["pairs"]; run one')
    files = write(records, path if path.is_dir() else path.parent)
    deliver("\n".join([*said, *(f"matrix: {file}" for file in files)]) + "\n")
    return 0


def write(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write the matrices of all pairs beside the results; the files."""
    files = []
    for one in pairs_of(records):
        ranks = [str(rank) for rank in sorted(one.hosts)]
        by_rank = {(str(a), str(b)): value for (a, b), value in one.values.items()}
        files.append(_write(folder / f"pairs-{one.case_id}-ranks.csv", one, ranks, by_rank))
        if one.several_hosts:
            files.append(_write(folder / f"pairs-{one.case_id}-hosts.csv", one, one.places, one.by_place(one.values)))
    return files


def _table(found: Pairs) -> list[str]:
    values = found.by_place(found.values)
    unit = "GB/s" if found.by_rate else "us"
    apart = {ends: value for ends, value in values.items() if ends[0] != ends[1]} or values
    middle = statistics.median(apart.values()) if apart else 0.0
    doubt = suspicion(found)
    usual = found.speed(middle) if doubt is None else doubt.usual
    slow = {ends for ends, value in apart.items() if value and found.speed(value) < SLOW * usual}
    than = f"{'below' if found.by_rate else 'above'} {found.text(found.shown(SLOW * usual))}"
    of = "the median pair" if doubt is None else f"the median of all {found.kind}s' best pairs"
    head = f"pairs: {found.title}, {unit}; * is {than}, {SLOW} of the speed of {of}"
    places = found.places
    if len(places) > _WIDEST:
        return [head, *(f"  {a} - {b}: {found.text(apart[a, b])} *" for a, b in sorted(slow))]
    scale = 1e-9 if found.by_rate else 1e6
    width = max(9, *(len(place) + 2 for place in places))
    rows = [head, "  " + " " * width + "".join(place.rjust(width) for place in places)]
    for number, row in enumerate(places):
        cells = []
        for other, column in enumerate(places):
            ends = (row, column) if number <= other else (column, row)
            value = values.get(ends)
            mark = "*" if ends in slow else " "
            cells.append(("-" if value is None else f"{value * scale:.4g}{mark}").rjust(width))
        rows.append(f"  {row.ljust(width)}{''.join(cells)}")
    return rows


def _write(path: Path, found: Pairs, names: Sequence[str], values: Mapping[tuple[str, str], float]) -> Path:
    corner = "busbw_GBps" if found.by_rate else "time_p50_s"
    scale = 1e-9 if found.by_rate else 1.0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([corner, *names])
        for row in names:
            cells = (values.get((row, column), values.get((column, row))) for column in names)
            writer.writerow([row, *("" if value is None else repr(value * scale) for value in cells)])
    return path
