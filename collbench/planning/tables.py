"""What a plan prints: tables with notes, as text, CSV or JSON."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.planning.costs import Range
from collbench.units import about, format_duration, format_rate

FORMATS = ("text", "csv", "json")


@dataclass(frozen=True)
class Column:
    """A column: `name` carries the unit for CSV and JSON, `title` is what a reader sees above `text` of the value."""

    name: str
    title: str
    text: Callable[[Any], str] = str


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


def spread(name: str, unit: str, value: Range | None) -> dict[str, float | None]:
    """Return the three columns of an estimate, such as step_low_s, step_s, step_high_s."""
    ending = f"_{unit}" if unit else ""
    low, middle, high = (None, None, None) if value is None else (value.low, value.middle, value.high)
    return {f"{name}_low{ending}": low, f"{name}{ending}": middle, f"{name}_high{ending}": high}


def ranged(name: str, unit: str, title: str, text: Callable[[Any], str]) -> list[Column]:
    """Return the columns of what `spread` writes."""
    ending = f"_{unit}" if unit else ""
    return [
        Column(f"{name}_low{ending}", f"{title} low", text),
        Column(f"{name}{ending}", title, text),
        Column(f"{name}_high{ending}", "high", text),
    ]


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
        writer.writerow([table.name, *("" if cell is None else cell for cell in cells)])
    return text.getvalue()


def _text(table: Table) -> str:
    columns = [
        column
        for column in table.columns
        if any(row.get(column.name) not in (None, "") for row in table.rows) or column is table.columns[0]
    ]
    cells = [[_cell(row.get(column.name), column) for column in columns] for row in table.rows]
    lines = [f"# {table.title}"]
    if cells:
        widths = [max(len(column.title), *(len(row[index]) for row in cells)) for index, column in enumerate(columns)]
        words = [all(isinstance(row.get(column.name), str | None) for row in table.rows) for column in columns]
        for row in ([column.title for column in columns], *cells):
            parts = (
                cell.ljust(width) if word else cell.rjust(width)
                for cell, width, word in zip(row, widths, words, strict=True)
            )
            lines.append("  ".join(parts).rstrip())
    lines += [f"# {note}" for note in table.notes]
    return "\n".join(lines) + "\n"


def _cell(value: Any, column: Column) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else column.text(value)
