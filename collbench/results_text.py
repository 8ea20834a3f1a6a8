"""The text of a run folder's files: a line of cells, JSON, and where the last whole line ends."""

import csv
import io
import json
from collections.abc import Iterable, Mapping


def line_of(row: Iterable[str]) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(row)
    return buffer.getvalue()


def to_json(content: Mapping[str, object]) -> str:
    return json.dumps(content, indent=1, default=str) + "\n"


def whole_length(content: bytes) -> int:
    """Return the length of the content up to the end of its last whole line."""
    length = content.rfind(b"\n") + 1
    start = content.rfind(b"\n", 0, length - 1) + 1 if length else 0
    if start:
        header, last = content[: content.index(b"\n")], content[start:length]
        if len(cells(last)) < len(cells(header)):
            return start
    return length


def cells(line: bytes) -> list[str]:
    """Split one line into cells; no cell of ours holds a line break."""
    return next(csv.reader([line.decode(errors="replace").strip("\r\n")]), [])
