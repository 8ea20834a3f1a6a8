"""What a plan prints: tables with notes, as text, CSV or JSON."""

import csv
import io
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.output import complain, deliver
from collbench.planning.costs import Range
from collbench.units import about, format_duration, format_rate

_WIDTH = 120


@dataclass(frozen=True)
class Column:
    """A column: `name` carries the unit for CSV and JSON, `title` is what a reader sees above `text` of the value.

    A column without a title is only for CSV and JSON; `bounds` are the two columns that text shows beside this one.
    """

    name: str
    title: str
    text: Callable[[Any], str] = str
    bounds: tuple[str, str] | None = None


@dataclass(frozen=True)
class Table:
    """Rows by the columns' names; None is unknown. `notes` are sentences, each of its own."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()


def duration(value: float) -> str:
    """Write seconds."""
    return format_duration(value)


def percent(value: float) -> str:
    """Write a share."""
    return f"{value:.1%}"


def size(value: int) -> str:
    """Write bytes with three digits."""
    return about(value)


def rate(value: float) -> str:
    """Write bytes/s."""
    return format_rate(value)


def number(value: float) -> str:
    """Write a number with four digits and no more."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def grouped(value: float) -> str:
    """Write a whole number with its thousands apart."""
    return f"{value:,.0f}"


def minutes(value: float) -> str:
    """Write minutes as benchmarks print them."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def mark(word: str) -> Callable[[bool], str]:
    """Return what writes a word where something holds, and nothing where it does not."""
    return lambda value: word if value else ""


def beyond(name: str = "extrapolated", title: str = "beyond what was measured") -> Column:
    """Return the column that marks what rests on a fit beyond what was measured."""
    return Column(name, title, mark("EXTRAPOLATED"))


def spread(name: str, unit: str, value: Range | None) -> dict[str, float | None]:
    """Return the three columns of an estimate, such as step_low_s, step_s, step_high_s."""
    ending = f"_{unit}" if unit else ""
    low, middle, high = (None, None, None) if value is None else (value.low, value.middle, value.high)
    return {f"{name}_low{ending}": low, f"{name}{ending}": middle, f"{name}_high{ending}": high}


def ranged(name: str, unit: str, title: str, text: Callable[[Any], str]) -> list[Column]:
    """Return the columns of what `spread` writes: one to read, with its bounds behind it."""
    ending = f"_{unit}" if unit else ""
    low, high = f"{name}_low{ending}", f"{name}_high{ending}"
    return [Column(f"{name}{ending}", title, text, (low, high)), Column(low, ""), Column(high, "")]


def alike(refused: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Put together reasons that differ only in what they got: all that each of them refuses, and the sentence."""
    found: dict[tuple[str, str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for what, reason in refused:
        where, _, rest = reason.partition("got ")
        got, _, expected = rest.partition(", expected ")
        key = (where, expected, "") if expected else ("", "", reason)
        everything, each = found.setdefault(key, ({}, {}))
        everything[what], each[got] = None, None
    return [
        (", ".join(everything), reason or f"{where}got {', '.join(each)}, expected {expected}")
        for (where, expected, reason), (everything, each) in found.items()
    ]


def tell(tables: Sequence[Table], form: str) -> None:
    """Print tables; notes of a CSV, which has no place for them, go to standard error."""
    deliver(written(tables, form))
    if form == "csv":
        for note in dict.fromkeys(note for table in tables for note in table.notes):
            complain(f"note: {note}")


def written(tables: Sequence[Table], form: str) -> str:
    """Return tables as text, CSV (one below the other, an empty line between, notes left out) or JSON."""
    if form == "json":
        return json.dumps({"tables": [_plain(table) for table in tables]}, indent=2, allow_nan=False) + "\n"
    if form == "csv":
        return "\n".join(_csv(table) for table in tables if table.columns)
    return "\n".join(_text(table) for table in tables)


def _plain(table: Table) -> dict[str, Any]:
    names = [column.name for column in table.columns]
    rows = [{name: row.get(name) for name in names} for row in table.rows]
    return {"name": table.name, "title": table.title, "rows": rows, "notes": list(table.notes)}


def _csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", *(column.name for column in table.columns)])
    for row in table.rows:
        cells = (row.get(column.name) for column in table.columns)
        writer.writerow([table.name, *map(_plainly, cells)])
    return text.getvalue()


def _plainly(cell: object) -> object:
    if isinstance(cell, bool):
        return int(cell)  # as in results.csv
    return "" if cell is None else cell


def _text(table: Table) -> str:
    columns = [
        column
        for column in table.columns
        if column.title and any(_cell(row, column) not in ("-", "") for row in table.rows)
    ]
    cells = [[_cell(row, column) for column in columns] for row in table.rows]
    lines = [f"# {table.title}"]
    if cells:
        widths = [max(len(column.title), *(len(row[index]) for row in cells)) for index, column in enumerate(columns)]
        words = [all(isinstance(row.get(column.name), str | bool | None) for row in table.rows) for column in columns]
        for row in ([column.title for column in columns], *cells):
            parts = (
                cell.ljust(width) if word else cell.rjust(width)
                for cell, width, word in zip(row, widths, words, strict=True)
            )
            lines.append("  ".join(parts).rstrip())
    for note in table.notes:
        lines += textwrap.wrap(note, _WIDTH, initial_indent="# - ", subsequent_indent="#   ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _cell(row: Mapping[str, Any], column: Column) -> str:
    value = row.get(column.name)
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    low, high = (None, None) if column.bounds is None else (row.get(bound) for bound in column.bounds)
    if low is None or high is None or low == high:
        return column.text(value)
    return f"{column.text(value)} ({column.text(low)} to {column.text(high)})"
