"""Intervals over launches: a bootstrap that draws launches whole, and owns up to there being few of them."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collbench.readers.fit_rows import Floats

REPLICATES = 200
"""Bootstrap samples: they give a standard error, for which 50 to 200 are enough (Efron and Tibshirani, 1993, 6.4)."""
LEVEL = 0.95
_SEED = 19940301
"""The same rows have the same answer."""


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; None where one launch can give none, or where it has no bound."""

    value: float | None
    low: float | None = None
    high: float | None = None


def replicates(log_times: Floats) -> Floats:
    """Means over launches that are drawn with replacement, whole: what a launch's sizes have in common stays."""
    launches = len(log_times)
    if launches < 2:
        return log_times
    draw = np.random.default_rng(_SEED)
    counts = draw.multinomial(launches, np.full(launches, 1 / launches), size=REPLICATES).astype(np.float64)
    there = ~np.isnan(log_times)
    sums = counts @ np.where(there, log_times, 0.0)
    weights = counts @ there
    return np.asarray(np.where(weights > 0, sums / np.maximum(weights, 1), np.nan), dtype=np.float64)


def interval(value: float, drawn: Sequence[float], launches: int) -> Estimate:
    """The 95 % interval by the bootstrap's standard error and Student's t, in logarithms where none of them is 0.

    A bootstrap over few launches is too narrow by sqrt((n - 1) / n) and by the normal quantile in place of t's; both
    are put right (T. Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69(4),
    2015, section 4.1).
    """
    its = np.asarray(drawn)
    if launches < 2 or not drawn or value == its.max() == 0:  # held at its bound, which is no certainty
        return Estimate(value)
    wide = student(launches - 1) * math.sqrt(launches / (launches - 1))
    if value > 0 and its.min() > 0:
        half = wide * float(np.std(np.log(its)))
        return Estimate(value, value * math.exp(-half), value * math.exp(half))
    half = wide * float(np.std(its))
    return Estimate(value, max(0.0, value - half), value + half)


@functools.cache
def student(degrees: int, level: float = LEVEL) -> float:
    """Student's t for an interval of this level."""
    from scipy.special import stdtrit

    return float(stdtrit(max(degrees, 1), 0.5 + level / 2))
