"""Laws over ranks tried on what was measured, and carried through it."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collbench.readers.bootstrap import student
from collbench.readers.fit import Fit, carried, root_mean_square
from collbench.readers.fit_rows import Curve, Floats
from collbench.readers.laws import Law, LawFit, fit_law, misfit

NEAR = 5
"""Hold-outs nearest to a size whose errors stand for it."""
_ROUNDED = 0.1
"""Sizes that do not divide by the ranks are rounded, which takes them no farther out of a range."""
_AS_GOOD = 1.5
"""A law whose hold-out error is up to so many times the best one's is as well supported; its forecast is in the
interval."""
_ALIKE = 0.01
"""And so is one that is worse by no more than this."""


@dataclass(frozen=True, eq=False)
class Support:
    """A law on a family: its fit, and how it forecast each number of ranks from the others, by size."""

    fitted: LawFit
    misfit: float
    held_out: tuple[tuple[int, Floats, Floats], ...]
    """Ranks, sizes, errors in logarithms (forecast over measured)."""
    ahead: tuple[tuple[float, Floats, Floats], ...]
    """Octaves from the largest number of ranks before, sizes, errors: forecast from fewer ranks alone."""
    behind: tuple[tuple[float, Floats, Floats], ...] = ()
    """The same from the smallest number of ranks after: forecast from more ranks alone."""
    untried: tuple[tuple[int, Floats, Floats], ...] = ()
    """Ranks, sizes, errors of the law's own fit where nothing else was between hosts, so that none can be held out."""

    @property
    def error(self) -> float | None:
        """Hold-out error (root mean square), and that of the fit where none can be held out; None with one count."""
        if not self.held_out:
            return None
        return root_mean_square(np.concatenate([its for _, _, its in (*self.held_out, *self.untried)]))


@dataclass(frozen=True)
class Distance:
    """How far a layout lies from those measured, by the farthest of ranks, hosts and ranks per host, in octaves."""

    above: float
    """Beyond the most of them."""
    below: float
    """Beyond the least of them."""
    nearest: float
    """From the nearest ranks and hosts."""


def as_good(one: Support, best: Support) -> bool:
    """Whether a law is as well supported as the best one; what nothing could be held out from counts by its fit."""
    if best.error is None:
        return True
    return (one.misfit if one.error is None else one.error) <= max(_AS_GOOD * best.error, best.error + _ALIKE)


def support(law: LawFit, fits: Sequence[Fit]) -> Support:
    """Try a law on the numbers of ranks that were measured, each of them forecast from others."""
    curves = [one.curve for one in fits]
    held_out: list[tuple[int, Floats, Floats]] = []
    ahead: list[tuple[float, Floats, Floats]] = []
    behind: list[tuple[float, Floats, Floats]] = []
    untried: list[tuple[int, Floats, Floats]] = []
    counts = sorted({one.ranks for one in curves})
    for count in counts:
        rest = [one for one in fits if one.curve.ranks != count]
        its = [one for one in curves if one.ranks == count]
        if _known(law.law, rest, its):
            held_out.append((count, *_errors(fit_law(law.law, [one.curve for one in rest]), rest, its)))
        elif rest:
            errors = np.concatenate([np.log(law.of(one)) - np.log(one.times) for one in its])
            untried.append((count, np.concatenate([one.sizes for one in its]), errors))
    for fewer, more in itertools.pairwise(counts):
        octaves = math.log2(more / fewer)
        for trials, count, rest in (
            (ahead, more, [one for one in fits if one.curve.ranks <= fewer]),
            (behind, fewer, [one for one in fits if one.curve.ranks >= more]),
        ):
            its = [one for one in curves if one.ranks == count]
            if _known(law.law, rest, its):
                found = _errors(fit_law(law.law, [one.curve for one in rest]), rest, its)
                trials.append((octaves, *found))
    return Support(law, misfit(law, curves), tuple(held_out), tuple(ahead), tuple(behind), tuple(untried))


def _known(law: Law, rest: Sequence[Fit], its: Sequence[Curve]) -> bool:
    """Whether a law may forecast these from the rest."""
    return all(law.knows(one, [other.curve for other in rest]) for one in its)


def _errors(law: LawFit, rest: Sequence[Fit], measured: Sequence[Curve]) -> tuple[Floats, Floats]:
    """Sizes and errors of what the rest forecasts for curves it was fitted without, at the sizes that it has."""
    low = max(one.curve.sizes[0] for one in rest)
    high = min(one.curve.sizes[-1] for one in rest)
    sizes, errors = [np.empty(0)], [np.empty(0)]
    for curve in measured:
        inside = (curve.sizes >= low * (1 - _ROUNDED)) & (curve.sizes <= high * (1 + _ROUNDED))
        at = curve.sizes[inside]
        if len(at):
            sizes.append(at)
            values = anchored(law, rest, at, curve.ranks, curve.hosts, curve.ranks_per_host)
            errors.append(values - np.log(curve.times[inside]))
    return np.concatenate(sizes), np.concatenate(errors)


def anchors(fits: Sequence[Fit], ranks: int, hosts: int) -> list[Fit]:
    """The fits that a law is carried by: of the nearest ranks below and above, on as many hosts where there are any."""
    same = [one for one in fits if one.curve.hosts == hosts] or fits
    counts = [one.curve.ranks for one in same]
    below = max((count for count in counts if count <= ranks), default=min(counts))
    above = min((count for count in counts if count >= ranks), default=max(counts))
    return [one for one in same if one.curve.ranks in (below, above)]


def anchored(law: LawFit, fits: Sequence[Fit], at: Floats, ranks: int, hosts: int, ranks_per_host: int) -> Floats:
    """Logarithms of times by the law, carried by how the curves beside this number of ranks lie off the law."""
    off: dict[int, list[Floats]] = {}
    for one in anchors(fits, ranks, hosts):
        curve = one.curve
        measured = carried(one.segments, curve.sizes, np.log(curve.times), at)
        off.setdefault(curve.ranks, []).append(measured - np.log(law.of(curve, at)))
    counts = sorted(off)
    table = np.array([np.mean(off[count], axis=0) for count in counts])
    place = float(np.interp(math.log(ranks), np.log(counts), np.arange(len(counts))))
    before, share = int(place), place % 1
    between = table[before] if share == 0 else (1 - share) * table[before] + share * table[before + 1]
    return np.asarray(np.log(law.times(at, ranks, hosts, ranks_per_host)) + between, dtype=np.float64)


def unlike_powers(law: LawFit, fits: Sequence[Fit], at: Floats, ranks: int, hosts: int) -> tuple[float, ...]:
    """Logarithms of times on ranks that are no power of two, where only powers were measured; empty anywhere else.

    What is told alike by those: the time of the next power of two, a line over log2(n) up to it, and what libraries do
    in place of the law.
    """
    if _is_power(ranks) or not all(_is_power(one.curve.ranks) for one in fits):
        return ()
    per_host = -(-ranks // hosts)
    low_hosts, low_per_host = (1 << count.bit_length() - 1 for count in (hosts, per_host))
    high_hosts, high_per_host = (1 << (count - 1).bit_length() for count in (hosts, per_host))
    fewer, more = low_hosts * low_per_host, high_hosts * high_per_host
    low = float(anchored(law, fits, at, fewer, low_hosts, low_per_host)[0])
    high = float(anchored(law, fits, at, more, high_hosts, high_per_host)[0])
    line = float(np.interp(math.log(ranks), np.log([fewer, more]), np.exp([low, high])))
    own = float(anchored(law, fits, at, ranks, hosts, per_host)[0] - np.log(law.times(at, ranks, hosts, per_host)[0]))
    others = [replace(law, law=other).times(at, ranks, hosts, per_host)[0] for other in law.law.otherwise]
    return high, math.log(line), *(own + math.log(other) for other in others)


def _is_power(count: int) -> bool:
    return count.bit_count() == 1


def rank_error(best: Support, size: float, away: Distance) -> float:
    """Half the interval by how the law forecast other numbers of ranks at the sizes nearest to this one.

    Beyond what was measured it is tried from there on the same way, between by what was held out; farther away than
    that was, the error grows in proportion.
    """
    octaves = max(away.above, away.below)
    tried = list(best.behind if away.below > away.above else best.ahead) if octaves > 0 else []
    if not tried:
        octaves = octaves or away.nearest
        counts = [count for count, _, _ in (*best.held_out, *best.untried)]
        tried = [
            (min(abs(math.log2(other / count)) for other in counts if other != count), sizes, errors)
            for count, sizes, errors in best.held_out
        ]
    tried += [(0.0, sizes, errors) for _, sizes, errors in best.untried]
    tried = [one for one in tried if len(one[1])]
    if not tried:
        return 0.0
    squares = []
    for distance, sizes, errors in tried:
        near = np.argsort(np.abs(np.log(sizes / size)), kind="stable")[:NEAR]
        farther = max(1.0, octaves / distance) if distance else 1.0
        squares.append(farther**2 * float(np.mean(np.square(errors[near]))))
    return student(max(len(tried), 2)) * math.sqrt(float(np.mean(squares)))
