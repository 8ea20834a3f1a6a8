"""What a collective costs by the rows of results: measured medians, and in between a straight line in logarithms."""

import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from collbench.errors import UsageError
from collbench.planning.costs import BOUNDS, Cost, Range
from collbench.record import Record
from collbench.units import format_size

_SAME = (
    "variant", "backend", "library", "dtype", "operation", "topology", "group", "ranks", "hosts", "buffer",
    "neighbour",
)  # fmt: skip
"""What rows must have in common with the one whose cost is asked for."""
_ALIKE = ("placement", "mode", "call", "sync", "buffers", "pages")
"""What they have in common where they can, the first before the others."""
_SAME_SIZE = 0.01
"""A size this near the smallest or the largest measured is that size."""


def cost(rows: Iterable[Record], like: Record) -> Cost:
    """Return the cost of collectives where the row `like` was measured; it raises outside of what the rows have."""
    there = [row for row in rows if row.status == "ok" and row.time_p50_s and row.size_bytes]
    there = [row for row in there if all(getattr(row, name) == getattr(like, name) for name in _SAME)]

    def asked(collective: str, size_bytes: int, ranks: int) -> Range:
        its = [row for row in there if row.collective == collective and row.ranks == ranks]
        if not its:
            raise UsageError(
                f"forecast: got no rows of {collective} of {like.dtype} on {ranks} ranks by {like.backend} beside "
                f"{like.scenario}, expected some to forecast from; measure them, as scenario replay does"
            )
        nearest = max(its, key=lambda row: _alike(row, like))
        its = [row for row in its if _alike(row, nearest) == (True,) * len(_ALIKE)]
        points = {size: middle([row for row in its if row.size_bytes == size]) for size in {_size(row) for row in its}}
        sizes = sorted(points)
        if not sizes[0] * (1 - _SAME_SIZE) <= size_bytes <= sizes[-1] * (1 + _SAME_SIZE):
            raise UsageError(
                f"forecast: {collective}: got a size of {size_bytes} B, expected {format_size(sizes[0])} to "
                f"{format_size(sizes[-1])} as measured; measure it"
            )
        at, known = np.log(size_bytes), np.log(sizes)
        return Range(*(float(np.exp(np.interp(at, known, np.log([points[s].of(b) for s in sizes])))) for b in BOUNDS))

    return asked


def middle(rows: Sequence[Record]) -> Range:
    """Return the median over launches of one point; its bounds are the outermost of the launches' own intervals."""
    medians = [row.time_p50_s or 0.0 for row in rows]
    return Range(
        min(row.time_p50_low_s or row.time_p50_s or 0.0 for row in rows),
        statistics.median(medians),
        max(row.time_p50_high_s or row.time_p50_s or 0.0 for row in rows),
    )


def _size(row: Record) -> int:
    return row.size_bytes or 0


def _alike(row: Record, like: Record) -> tuple[bool, ...]:
    return tuple(getattr(row, name) == getattr(like, name) for name in _ALIKE)
