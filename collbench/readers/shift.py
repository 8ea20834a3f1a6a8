"""How much slower one set of launches is than another: the Hodges-Lehmann ratio with its exact rank-sum interval.

Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods", 3rd edition, section 4.3 (after Moses). The interval
is made of the ratios of all pairs of launches. It holds its level for any distribution, bimodal ones too, and for any
number of launches, in that it has no bounds where there are too few. A bootstrap has bounds for three launches at any
level, which they cannot hold (`docs/gates.md`).
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ratio:
    """New over base; the bounds are None where the launches are too few for the level."""

    middle: float
    low: float | None
    high: float | None


def ratio(base: Sequence[float], new: Sequence[float], level: float) -> Ratio:
    """Compare positive times, one of each launch; `level` is the chance of a miss on either side of the interval."""
    if not base or not new or min(*base, *new) <= 0:
        raise ValueError("ratio: got no times or one that is not above 0, expected positive times on both sides")
    apart = np.sort(np.subtract.outer(np.log(np.asarray(new)), np.log(np.asarray(base))), axis=None)
    middle = math.exp(float(np.median(apart)))
    at = position(len(base), len(new), level)
    if at == 0:
        return Ratio(middle, None, None)
    return Ratio(middle, math.exp(float(apart[at - 1])), math.exp(float(apart[-at])))


def least_level(base: int, new: int) -> float:
    """The smallest level at which so many launches have an interval: all of one side are beyond all of the other."""
    return 1 / math.comb(base + new, new)


def launches_needed(level: float) -> int:
    """How many launches a side have an interval at this level."""
    return next(count for count in itertools.count(1) if least_level(count, count) <= level)


@functools.cache
def position(base: int, new: int, level: float) -> int:
    """Which of the ordered ratios, from 1, is the lower bound: the largest k with P(U < k) <= level; 0 for none."""
    ways = _rank_sums(base, new)
    total = math.comb(base + new, new)
    below = 0
    for at, count in enumerate(ways):
        below += count
        if below > level * total * (1 + 1e-12):
            return at
    raise ValueError(f"level: got {level}, expected one below 1")


@functools.cache
def _rank_sums(base: int, new: int) -> tuple[int, ...]:
    """In how many orders of base + new launches U pairs have the new one first, for U from 0 to base x new."""
    # The Gaussian binomial coefficient: a product of (1 - q^(base + i)) / (1 - q^i).
    ways = [1] + [0] * (base * new)
    for factor in range(1, new + 1):
        for power in range(len(ways) - 1, base + factor - 1, -1):
            ways[power] -= ways[power - base - factor]
        for power in range(factor, len(ways)):
            ways[power] += ways[power - factor]
    return tuple(ways)
