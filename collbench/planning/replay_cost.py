"""What a bucket costs: by the fit of the all_reduce that were measured where the replay was."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from collbench.errors import UsageError
from collbench.planning.costs import Cost, Range
from collbench.readers.fitted import Fitted, fitted
from collbench.readers.forecast import forecast
from collbench.record import Record
from collbench.replay import parse

_SAME = (
    "variant", "backend", "library", "dtype", "operation", "topology", "group", "ranks", "hosts", "buffer",
    "neighbour",
)  # fmt: skip
"""What rows must have in common with the replay."""
_ALIKE = ("mode", "placement", "call", "sync", "buffers", "pages", "caller")
"""What they have in common where they can, the first before the others."""


def by_fit(extrapolate: bool = False) -> Callable[[Sequence[Record], Record], Cost]:
    """Return what makes the cost of collectives, of all rows, in the setting of one of them.

    A cost raises a UsageError outside of what was measured, unless it may extrapolate. Where nothing says how far off
    it may be, its bounds are the time itself.
    """

    def cost_of(rows: Sequence[Record], like: Record) -> Cost:
        @cache
        def fit(collective: str) -> Fitted:
            its = chosen(rows, like, collective)
            if not its:
                raise UsageError(
                    f"forecast: --replay: got no {collective} of {like.dtype} by {like.backend} on {like.ranks} ranks "
                    f"where {like.scenario} was replayed, expected some; measure them, as scenario replay does"
                )
            return fitted(its)[0]

        @cache
        def cost(collective: str, size_bytes: int, ranks: int) -> Range:
            answer = forecast(fit(collective), size_bytes, ranks, like.hosts, extrapolate)
            if answer.low_s is None or answer.high_s is None:
                return Range(answer.time_s, answer.time_s, answer.time_s, extrapolated=answer.extrapolated)
            return Range(answer.low_s, answer.time_s, answer.high_s, extrapolated=answer.extrapolated)

        return cost

    return cost_of


def chosen(rows: Sequence[Record], like: Record, collective: str = "all_reduce") -> list[Record]:
    """Return the rows of a collective that were measured most like a replay; none where none fits it."""
    its = [
        row
        for row in rows
        if row.collective == collective
        and row.status == "ok"
        and all(getattr(row, name) == getattr(like, name) for name in _SAME)
    ]
    if not its:
        return []
    wanted = replace(like, mode=_mode(like))
    nearest = max(its, key=lambda row: _alike(row, wanted))
    return [row for row in its if all(_alike(row, nearest))]


def _mode(like: Record) -> str | None:
    """The mode whose rows begin as the replay's buckets do.

    Buckets back to back begin when the one before has ended on this rank, as operations do in mode throughput; in mode
    latency the ranks meet before each. The difference is not small: over TCP a rank that is ahead sends while the
    others do not yet, and a link that could carry both directions at once carries one after the other.
    """
    back_to_back = like.call == "blocking" and not parse(like.pattern or "").compute_s
    return "throughput" if back_to_back else like.mode


def _alike(row: Record, like: Record) -> tuple[bool, ...]:
    return tuple(getattr(row, name) == getattr(like, name) for name in _ALIKE)
