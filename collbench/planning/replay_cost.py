"""What a bucket costs: by the fit of the all_reduce that were measured where the replay was."""

from collections.abc import Callable, Sequence
from functools import cache

from collbench.errors import UsageError
from collbench.planning.costs import Cost, Range
from collbench.readers.forecast import Fitted, fitted, forecast
from collbench.record import Record

_SAME = (
    "variant", "backend", "library", "dtype", "operation", "topology", "group", "ranks", "hosts", "buffer",
    "neighbour",
)  # fmt: skip
"""What rows must have in common with the replay."""
_ALIKE = ("placement", "mode", "call", "sync", "buffers", "pages", "caller")
"""What they have in common where they can, the first before the others."""


def by_fit(extrapolate: bool = False) -> Callable[[Sequence[Record], Record], Cost]:
    """Return what makes the cost of collectives, of all rows, in the setting of one of them.

    A cost raises a UsageError outside of what was measured, unless it may extrapolate. Where nothing says how far off
    it may be, its bounds are the time itself.
    """

    def cost_of(rows: Sequence[Record], like: Record) -> Cost:
        same = [row for row in rows if all(getattr(row, name) == getattr(like, name) for name in _SAME)]

        @cache
        def fit(collective: str) -> Fitted:
            its = [row for row in same if row.collective == collective and row.status == "ok"]
            if not its:
                raise UsageError(
                    f"forecast: --replay: got no {collective} of {like.dtype} by {like.backend} on {like.ranks} ranks "
                    f"where {like.scenario} was replayed, expected some; measure them, as scenario replay does"
                )
            nearest = max(its, key=lambda row: _alike(row, like))
            return fitted(row for row in its if all(_alike(row, nearest)))[0]

        @cache
        def cost(collective: str, size_bytes: int, ranks: int) -> Range:
            answer = forecast(fit(collective), size_bytes, ranks, like.hosts, extrapolate)
            if answer.low_s is None or answer.high_s is None:
                return Range(answer.time_s, answer.time_s, answer.time_s)
            return Range(answer.low_s, answer.time_s, answer.high_s)

        return cost

    return cost_of


def _alike(row: Record, like: Record) -> tuple[bool, ...]:
    return tuple(getattr(row, name) == getattr(like, name) for name in _ALIKE)
