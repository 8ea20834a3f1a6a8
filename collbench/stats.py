"""Statistics of durations: medians with distribution-free intervals, and only the percentiles that a sample carries."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_Z95 = 1.96
_LEAST_FOR_INTERVAL = 6
"""Below six samples no pair of order statistics covers the median with 95 % (1 - 2 x 0.5^n >= 0.95 needs n >= 6)."""


@dataclass(frozen=True)
class Summary:
    """Of one case on one group, in seconds; None is what the sample is too small to say."""

    count: int
    minimum_s: float
    median_s: float
    low_s: float | None
    high_s: float | None
    p95_s: float | None
    p99_s: float | None
    maximum_s: float
    mean_s: float


def median_interval_ranks(count: int) -> tuple[int, int] | None:
    """Positions (from 0, both included) of the order statistics that bound the median with 95 % confidence.

    Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems", SC'15, section 3.1.3 (after Le Boudec):
    the ranks from 1 are floor((n - 1.96 sqrt n) / 2) and ceil(1 + (n + 1.96 sqrt n) / 2), kept within the sample. It
    needs n > 5, and assumes independent samples: it is the interval within one launch.
    """
    if count < _LEAST_FOR_INTERVAL:
        return None
    spread = _Z95 * math.sqrt(count)
    low = max(1, math.floor((count - spread) / 2))
    high = min(count, math.ceil(1 + (count + spread) / 2))
    return low - 1, high - 1


def median_interval(ordered: Floats, step_s: float = 0.0) -> tuple[float, float] | None:
    """Bounds of the median of an ascending sample, never closer together than one step of the clock."""
    positions = median_interval_ranks(ordered.size)
    if positions is None:
        return None
    low, high = float(ordered[positions[0]]), float(ordered[positions[1]])
    if high - low < step_s:
        middle = float(median_of(ordered))
        low, high = min(low, middle - step_s / 2), max(high, middle + step_s / 2)
    return max(low, 0.0), high


def median_of(ordered: Floats) -> float:
    """Median of an ascending sample."""
    half = ordered.size // 2
    return float(ordered[half]) if ordered.size % 2 else float(ordered[half - 1] + ordered[half]) / 2


def percentile(ordered: Floats, share: float) -> float | None:
    """Nearest-rank percentile of an ascending sample; None where the sample cannot tell it from its maximum."""
    if ordered.size * (1 - share) < 1 - 1e-9:
        return None
    return float(ordered[math.ceil(share * ordered.size - 1e-9) - 1])


def relative_half_width(ordered: Floats, step_s: float) -> float | None:
    """Half the width of the median's interval as a share of the median; None where there is no interval."""
    bounds = median_interval(ordered, step_s)
    middle = median_of(ordered)
    if bounds is None or middle <= 0:
        return None
    return (bounds[1] - bounds[0]) / 2 / middle


def summarise(durations: Floats, step_s: float = 0.0) -> Summary:
    """Summarise a sample of durations in seconds (any order, at least one)."""
    if durations.size == 0:
        raise ValueError("summarise: got no durations, expected at least one")
    ordered = np.sort(durations)
    bounds = median_interval(ordered, step_s)
    return Summary(
        count=int(ordered.size),
        minimum_s=float(ordered[0]),
        median_s=median_of(ordered),
        low_s=bounds[0] if bounds else None,
        high_s=bounds[1] if bounds else None,
        p95_s=percentile(ordered, 0.95),
        p99_s=percentile(ordered, 0.99),
        maximum_s=float(ordered[-1]),
        mean_s=float(np.mean(ordered)),
    )


@dataclass(frozen=True)
class Slowest:
    """The rank that most often took longest, and in what share of the samples (ties are shared out)."""

    rank: int
    share: float


def slowest_rank(durations: Floats) -> Slowest | None:
    """Find it in an array (ranks x samples); None for one rank alone."""
    if durations.shape[0] < 2:
        return None
    longest = durations == durations.max(axis=0)
    shares = (longest / longest.sum(axis=0)).mean(axis=1)
    rank = int(np.argmax(shares))
    return Slowest(rank, float(shares[rank]))
