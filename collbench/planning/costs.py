"""What a collective costs: the question, and the closed forms that answer it for a described link.

With n ranks, a latency of a for each step and B bytes/s for each rank:

    all_reduce, ring          2(n-1) a + 2(n-1)/n S/B
    all_reduce, tree          2 log2(n) a + 2 S/B            (double binary tree, pipelined: the asymptote of large S)
    all_gather, reduce_scatter  (n-1) a + (n-1)/n S/B         (ring)
    all_to_all                (n-1) a + (n-1)/n S/B          (pairwise)

S is the size as collbench's rows have it: a rank's vector for all_reduce, the whole vector for all_gather and
reduce_scatter, a rank's whole send buffer for all_to_all. Ring and tree are equal at S = n(n-1-log2 n) a B.
"""

import math
from dataclasses import dataclass, field
from typing import Protocol

from collbench.errors import UsageError


@dataclass(frozen=True)
class Range:
    """An estimate with its bounds; `extrapolated` where something of it lies beyond what was measured."""

    low: float
    middle: float
    high: float
    extrapolated: bool = field(default=False, kw_only=True)

    def __add__(self, other: "Range") -> "Range":
        return Range(
            *(self.low + other.low, self.middle + other.middle, self.high + other.high),
            extrapolated=self.extrapolated or other.extrapolated,
        )

    def times(self, factor: float) -> "Range":
        """Return it so many times."""
        return Range(self.low * factor, self.middle * factor, self.high * factor, extrapolated=self.extrapolated)

    def of(self, bound: str) -> float:
        """Return one of low, middle, high."""
        return {"low": self.low, "middle": self.middle, "high": self.high}[bound]


BOUNDS = ("low", "middle", "high")
NOTHING = Range(0.0, 0.0, 0.0)


class Cost(Protocol):
    """Answers what a collective of `size_bytes` among so many ranks takes, in seconds.

    It raises a CollbenchError where it does not know, such as outside of what was measured.
    """

    def __call__(self, collective: str, size_bytes: int, ranks: int) -> Range: ...


@dataclass(frozen=True)
class Link:
    """A described link: seconds for each step, bytes/s for each rank, and the relative uncertainty of both together.

    `algorithm` is ring, tree, or best: whichever of the two is quicker, as libraries choose. Only all_reduce has both.
    """

    latency_s: float
    bandwidth: float
    uncertainty: float = 0.0
    algorithm: str = "best"

    def __call__(self, collective: str, size_bytes: int, ranks: int) -> Range:
        """Return the closed form."""
        middle = self.seconds(collective, size_bytes, ranks)
        return Range(middle * (1 - self.uncertainty), middle, middle * (1 + self.uncertainty))

    def seconds(self, collective: str, size_bytes: int, ranks: int) -> float:
        """Return the closed form without its bounds."""
        if ranks < 2:
            return 0.0
        transfer, share = size_bytes / self.bandwidth, (ranks - 1) / ranks
        match collective:
            case "all_reduce":
                ring = 2 * (ranks - 1) * self.latency_s + 2 * share * transfer
                tree = 2 * math.log2(ranks) * self.latency_s + 2 * transfer
                return {"ring": ring, "tree": tree}.get(self.algorithm, min(ring, tree))
            case "all_gather" | "reduce_scatter" | "all_to_all":
                return (ranks - 1) * self.latency_s + share * transfer
        known = "all_reduce, all_gather, reduce_scatter, all_to_all"
        raise UsageError(
            f"fabric: collective: got {collective}, expected one of {known}; a link is described for these"
        )
