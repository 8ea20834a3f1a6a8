"""The live table: one line a row, as rank 0 prints it while the run goes on.

Lines that are not rows begin with `#`, so that a pipe can leave them out. Terminals get a progress line besides.
"""

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from collbench.output import silence
from collbench.record import STATUSES, Record
from collbench.replay import short
from collbench.units import format_duration, format_rate, format_size

PROGRESS_EVERY_S = 0.1
"""A progress line is for eyes: more often than this costs time and shows nothing."""

_SHORT = {"out_of_place": "out", "in_place": "in"}


@dataclass(frozen=True)
class _Column:
    title: str
    unit: str
    width: int
    text: Callable[[Record], str]
    left: bool = False

    def cell(self, text: str) -> str:
        return text.ljust(self.width) if self.left else text.rjust(self.width)


def _attribute(name: str, width: int, title: str = "", left: bool = True) -> _Column:
    def text(record: Record) -> str:
        value = getattr(record, name)
        return "-" if value is None or value == "" else _SHORT.get(str(value), str(value))

    return _Column(title or name, "", width, text, left)


def _duration(title: str, name: str) -> _Column:
    def text(record: Record) -> str:
        seconds: float | None = getattr(record, name)
        return "-" if seconds is None else format_duration(seconds)

    return _Column(title, "", 9, text)


def _bandwidth(title: str, name: str) -> _Column:
    def text(record: Record) -> str:
        gigabytes: float | None = getattr(record, name)
        return "-" if gigabytes is None else format_rate(gigabytes * 1e9).removesuffix(" GB/s")

    return _Column(title, "GB/s", 8, text)


def _size(record: Record) -> str:
    size = record.requested_bytes if record.size_bytes is None else record.size_bytes
    return "-" if size is None else format_size(size)


def _interval(record: Record) -> str:
    """Return the half-width of the median's interval, its wider side, as a part of the median."""
    median, low, high = record.time_p50_s, record.time_p50_low_s, record.time_p50_high_s
    if median is None or low is None or high is None or median <= 0:
        return ""
    part = 100 * max(high - median, median - low) / median
    return f"±{part:.1f}%" if part < 100 else f"±{part:.0f}%"


_ALWAYS = (
    _Column("size", "", 11, _size),
    _attribute("count", 11, left=False),
    _attribute("dtype", 11),
    _attribute("operation", 4, "op"),
)
_WHERE_VARYING = {
    "collective": _attribute("collective", 15),
    "backend": _attribute("backend", 9),
    "variant": _attribute("variant", 12),
    "topology": _attribute("topology", 14),
    "group": _attribute("group", 10),
    "ranks": _attribute("ranks", 5, left=False),
    "call": _attribute("call", 12),
    "caller": _attribute("caller", 8),
    "mode": _attribute("mode", 10),
    "sync": _attribute("sync", 13),
    "placement": _attribute("placement", 5, "place"),
    "root": _attribute("root", 4, left=False),
    "buffer": _attribute("buffer", 8),
    "buffers": _attribute("buffers", 7, left=False),
    "pages": _attribute("pages", 8),
    "pattern": _Column("pattern", "", 16, lambda record: short(record.pattern or "-"), left=True),
    "neighbour": _attribute("neighbour", 11),
    "transport": _attribute("transport", 12),
}
_MEASURED = (
    _duration("time", "time_p50_s"),
    _Column("95 %", "", 7, _interval),
    _duration("p99", "time_p99_s"),
    _bandwidth("algbw", "algbw_GBps"),
    _bandwidth("busbw", "busbw_GBps"),
    _Column("wrong", "", 6, lambda record: "-" if record.wrong is None else str(record.wrong)),
)


def varying(cases: Iterable[object]) -> tuple[str, ...]:
    """Return the names of the columns that a table of these cases (or records) needs besides the usual ones."""
    cases = list(cases)
    return tuple(name for name in _WHERE_VARYING if len({getattr(case, name, None) for case in cases}) > 1)


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody watches: a launcher may give its ranks a terminal of no width that ends in a file."""
    try:
        return stream.isatty() and os.get_terminal_size(stream.fileno()).columns > 0
    except (OSError, ValueError):
        return False


class Table:
    """A table on a stream.

    `varying` names the columns that are shown since they differ between rows. A `quiet` table prints
    nothing. A stream that breaks (a pipe into `head`) ends the table and not the run.
    """

    def __init__(
        self, stream: TextIO, varying: Sequence[str] = (), *, quiet: bool = False, terminal: bool | None = None
    ) -> None:
        self._stream: TextIO | None = stream
        self._quiet = quiet
        self._terminal = is_terminal(stream) if terminal is None else terminal
        self._identity = (*(_WHERE_VARYING[name] for name in varying), *_ALWAYS)
        self._header_due = True
        self._progress = ""
        self._progress_at = -PROGRESS_EVERY_S
        self._started = time.monotonic()
        self.counts: Counter[str] = Counter()

    def line(self, text: str) -> None:
        """Print a line of comment."""
        if not self._quiet:
            self._print(f"# {text}".rstrip())

    def rule(self) -> None:
        """Print a line across, between two parts of a table."""
        if not self._quiet:
            self._print("#" + "-" * (len(self._join("", self._identity + _MEASURED)) - 1))

    def row(self, record: Record) -> None:
        """Print one row; one that is not ok says why, behind what names it."""
        self.counts[record.status] += 1
        if self._quiet:
            return
        if self._header_due:
            self._header_due = False
            columns = self._identity + _MEASURED
            self._print(self._join("#", columns, [column.title for column in columns]))
            self._print(self._join("#", columns, [column.unit for column in columns]).rstrip())
        shown = self._identity + (_MEASURED if record.status in ("ok", "wrong") else ())
        text = self._join(" ", shown, [column.text(record) for column in shown])
        self._print(f"{text}  {_remark(record)}".rstrip())

    def progress(self, done: int, total: int, remaining_s: float | None = None, case: str = "") -> None:
        """Show how far the run is, on a terminal; `remaining_s` is an estimate."""
        now = time.monotonic()
        if self._quiet or not self._terminal or now - self._progress_at < PROGRESS_EVERY_S:
            return
        left = "" if remaining_s is None else f", about {format_duration(max(0.0, round(remaining_s)))} left"
        text = f"{done}/{total}{left}{f'  {case}' if case else ''}"
        width = max(1, shutil.get_terminal_size().columns - 1)
        text = text if len(text) <= width else text[:width]
        self._write(f"\r{text.ljust(len(self._progress))}")
        self._progress, self._progress_at = text, now

    def close(self, lines: Sequence[str] = ()) -> None:
        """Print how many rows ended how, and the given lines."""
        if self._quiet:
            return
        rows = sum(self.counts.values())
        counts = ", ".join(f"{self.counts[status]} {status}" for status in STATUSES if self.counts[status])
        elapsed = format_duration(round(time.monotonic() - self._started, 1))
        self._print("#")
        self._print(f"# {rows} row{'' if rows == 1 else 's'} in {elapsed}{f': {counts}' if counts else ''}")
        for line in lines:
            self._print(f"# {line}".rstrip())

    def _join(self, start: str, columns: Sequence[_Column], texts: Sequence[str] | None = None) -> str:
        cells = (column.cell(text) for column, text in zip(columns, texts or [""] * len(columns), strict=True))
        return start.ljust(2) + "  ".join(cells)

    def _print(self, text: str) -> None:
        erased = f"\r{' ' * len(self._progress)}\r" if self._progress else ""
        self._progress = ""
        self._write(f"{erased}{text}\n")

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        # The CSV is the product; somebody who stops reading the table must not end the run.
        try:
            encoding = self._stream.encoding or "utf-8"
            with contextlib.suppress(UnicodeEncodeError):
                text.encode(encoding)
                self._stream.write(text)
                self._stream.flush()
                return
            self._stream.write(text.replace(" ±", "+-").encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):
            silence(self._stream)
            self._stream = None


def _remark(record: Record) -> str:
    if record.status == "ok":
        return " ".join(f"{record.notes or ''} {record.reason or ''}".split())
    reason = record.reason or ""
    if record.status == "wrong" and record.first_wrong is not None:
        values = f"got {record.first_got}, expected {record.first_expected}"
        reason = reason or f"first at {record.first_wrong}: {values}"
    return " ".join(f"{record.status}: {reason}".split()).rstrip(":")
