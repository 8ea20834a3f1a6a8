"""Which of many cases is slower, when most are not: a permutation test of the largest difference.

Westfall and Young's maxT ("Resampling-Based Multiple Testing", 1993): the launches change sides, whole, so that what
the cases of a launch have in common stays, and each case is held against the largest that any reaches by chance. So the
chance that any case is falsely named is the level, be they two or two hundred, where a correction by their number
would need more launches than anybody starts.
"""

import functools
import itertools
import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MOST_EXACT = 10_000
"""Up to so many ways to share out the launches each of them is taken; beyond, so many at random."""
_SEED = 20100521
"""The same launches have the same answer."""
_ROUNDING = 1e-9
_CELLS_AT_ONCE = 1 << 18
"""Ways x cases: a thousand cases would else take a gigabyte."""
_LEAST_SPREAD = 1e-9
"""Of logarithms: launches that agree to the last digit have no spread to divide by."""


def adjusted(base: Floats, new: Floats, shift: float) -> Floats:
    """The chance, for each case, that any case differs as much where none is slower than by `shift`.

    `base` and `new` are logarithms of times, launches x cases; `shift` is the logarithm of the ratio that is allowed.
    """
    both = np.concatenate([base, new - shift])
    sides = _sides(len(base), len(new))
    measured = _differences(both, sides[:1])[0]
    # The first way to share them out is the one that was measured; rounding must not tell it from itself.
    enough = measured - _ROUNDING * (1 + np.abs(measured))
    counts = np.zeros(both.shape[1])
    at_once = max(1, _CELLS_AT_ONCE // both.shape[1])
    for first in range(0, len(sides), at_once):
        largest = _differences(both, sides[first : first + at_once]).max(axis=1)
        counts += (largest[:, np.newaxis] >= enough).sum(axis=0)
    return np.asarray(counts / len(sides), dtype=np.float64)


def least(base: int, new: int) -> float:
    """The smallest chance that so many launches can show."""
    return 1 / min(math.comb(base + new, new), _MOST_EXACT)


@functools.cache
def _sides(base: int, new: int) -> NDArray[np.bool_]:
    """Which launches are new: one row for each way to share them out, the measured one first."""
    total = base + new
    measured = np.arange(total) >= base
    if math.comb(total, new) <= _MOST_EXACT:
        ways = np.zeros((math.comb(total, new), total), dtype=np.bool_)
        for row, chosen in zip(ways, itertools.combinations(range(total - 1, -1, -1), new), strict=True):
            row[list(chosen)] = True
        return ways
    shuffled = np.random.default_rng(_SEED).permuted(np.tile(measured, (_MOST_EXACT, 1)), axis=1)
    shuffled[0] = measured
    return shuffled


def _differences(both: Floats, sides: NDArray[np.bool_]) -> Floats:
    """Student's t of the new against the base: ways x cases."""
    new = sides.astype(np.float64)
    count, total = new[0].sum(), len(both)
    centred = both - both.mean(axis=0)
    apart = (new @ centred) * (1 / count + 1 / (total - count))  # the sums of both sides cancel
    within = (centred**2).sum(axis=0) - apart**2 * count * (total - count) / total
    spread = np.sqrt(np.maximum(within, 0) / max(total - 2, 1) * (1 / count + 1 / (total - count)))
    return np.asarray(apart / np.maximum(spread, _LEAST_SPREAD), dtype=np.float64)
