"""Who came late to an operation, and how long the others waited: from every rank's entry and exit on one clock."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CHANCE = 0.001
"""A rank that would have been last so often by chance, with at most this probability, is named."""


@dataclass(frozen=True)
class Last:
    """The rank that arrived last most often, in what share of the samples (ties are shared out), and how late it was.

    `delay_s` is the median over samples of its entry less the median entry of the other ranks.
    """

    rank: int
    share: float
    delay_s: float


@dataclass(frozen=True)
class Arrivals:
    """Of one case on one group.

    `skew_s` is the median over samples of the last entry less the first. `wait_share` is the part of the time between
    entry and exit, summed over ranks and samples, that lies before the last rank's entry. `last` is None where it
    cannot be told.
    """

    skew_s: float
    wait_share: float
    last: Last | None


def arrivals(entries: Floats, exits: Floats, *, error_s: float) -> Arrivals:
    """Look at entries and exits (ranks x samples, seconds; at least two ranks and one sample).

    `error_s` is what two entries may be wrong by: a delay within it names nobody. Nor is a rank named that was last
    hardly more often than any of them would be by chance.
    """
    ranks, samples = entries.shape
    final = entries.max(axis=0)
    # A rank may leave before the last one enters: a broadcast's root, for one.
    waited = np.minimum(final, exits) - entries
    spent = float((exits - entries).sum())
    skew_s = float(np.median(final - entries.min(axis=0)))
    share = float(waited.sum()) / spent if spent > 0 else 0.0
    latest = entries == final
    shares = (latest / latest.sum(axis=0)).mean(axis=1)
    rank = int(np.argmax(shares))
    delay_s = float(np.median(entries[rank] - np.median(np.delete(entries, rank, axis=0), axis=0)))
    told = delay_s > error_s and by_chance(float(shares[rank]), ranks, samples) < _CHANCE
    last = Last(rank, float(shares[rank]), delay_s) if told else None
    return Arrivals(skew_s, share, last)


def by_chance(share: float, ranks: int, samples: int) -> float:
    """Bound on the probability that some rank is last in such a share of the samples though all are alike.

    Chernoff's bound for one rank's count, which is binomial with 1/ranks a sample, times the number of ranks (Boole).
    """
    fair = 1 / ranks
    if share <= fair:
        return 1.0
    distance = share * math.log(share / fair)
    if share < 1:
        distance += (1 - share) * math.log((1 - share) / (1 - fair))
    return min(1.0, ranks * math.exp(-samples * distance))
