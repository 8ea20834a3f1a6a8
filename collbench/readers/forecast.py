"""What a collective will take at a size and on a number of ranks, with an interval that owns up to the model's error.

A forecast is the fit's shape carried through what was measured: between sizes by how the neighbours lie off the line,
between numbers of ranks by how the curves lie off the law. What that is worth is tried on the results themselves: each
size, and each number of ranks, is forecast from the others; beyond the last ones, from those before.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from collbench.errors import UsageError
from collbench.readers.bootstrap import student
from collbench.readers.fit import Fit, byte_share, carried, drawn, fit, line, root_mean_square
from collbench.readers.fit_rows import Curve, Family, Floats, families
from collbench.readers.laws import LawFit, fit_law, laws_of, misfit
from collbench.record import Record
from collbench.units import format_size

_NEAR = 5
"""Hold-outs nearest to a size whose errors stand for it."""
_ON_BANDWIDTH = 0.5
"""Part of a time that grows with the size, from which bandwidth decides it."""
_ROUNDED = 0.1
"""Sizes that do not divide by the ranks are rounded, which takes them no farther out of a range."""
_SAME_DISTANCE = 0.5
"""Octaves."""
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

    @property
    def error(self) -> float | None:
        """Hold-out error (root mean square); None with one number of ranks."""
        errors = [its for _, _, its in self.held_out]
        return root_mean_square(np.concatenate(errors)) if errors else None


@dataclass(frozen=True, eq=False)
class Fitted:
    """A family with a fit for each of its curves, and the laws over ranks, best supported first."""

    family: Family
    fits: tuple[Fit, ...]
    laws: tuple[Support, ...]

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest and the largest that any curve has."""
        ends = [(one.curve.sizes[0], one.curve.sizes[-1]) for one in self.fits]
        return int(min(low for low, _ in ends)), int(max(high for _, high in ends))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of ranks that were measured."""
        return tuple(sorted({one.curve.ranks for one in self.fits}))

    @property
    def hosts(self) -> tuple[int, ...]:
        """The numbers of hosts that were measured."""
        return tuple(sorted({one.curve.hosts for one in self.fits}))


@dataclass(frozen=True)
class Forecast:
    """A time in seconds with its 95 % interval for one more launch; None where nothing says how far off it may be."""

    size_bytes: int
    ranks: int
    hosts: int
    time_s: float
    low_s: float | None
    high_s: float | None
    law: str = ""
    """Empty where that number of ranks was measured."""
    extrapolated: bool = False
    marks: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class _Part:
    """A logarithm of time, and half the interval that each source of error makes."""

    value: float
    launches: float | None
    model: float | None
    marks: tuple[str, ...] = ()


def fitted(records: Iterable[Record]) -> tuple[Fitted, ...]:
    """Fit all families of the rows."""
    return tuple(fit_family(one) for one in families(records))


def fit_family(family: Family) -> Fitted:
    """Fit a family's curves, and find the law that its numbers of ranks support."""
    fits = tuple(fit(one) for one in family.curves)
    laws = laws_of(family.value("collective"), family.curves)
    found = [_support(fit_law(law, family.curves), fits) for law in laws]
    found.sort(key=lambda one: (one.misfit if one.error is None else one.error, one.misfit))
    return Fitted(family, fits, tuple(found))


def forecast(its: Fitted, size_bytes: int, ranks: int, hosts: int | None = None, extrapolate: bool = False) -> Forecast:
    """Forecast one operation; a UsageError where that was not measured around and `extrapolate` is not given."""
    hosts = _hosts(its, ranks) if hosts is None else hosts
    beyond = _beyond(its, size_bytes, ranks, hosts, extrapolate)
    same = [one for one in its.fits if (one.curve.ranks, one.curve.hosts) == (ranks, hosts)]
    if same:
        part, law = _over_sizes(same[0], size_bytes), ""
    else:
        part, law = _over_ranks(its, size_bytes, ranks, hosts), its.laws[0].fitted.law.name
    half = None if part.model is None else math.hypot(part.model, part.launches or 0.0)
    marks = (*beyond, *part.marks)
    if part.launches is None:
        marks = (*marks, "from one launch: what launches differ by is not in the interval")
    if any(one.curve.oversubscribed for one in (same or its.fits)):
        marks = (*marks, "measured with more ranks than cores")
    return Forecast(
        size_bytes,
        ranks,
        hosts,
        math.exp(part.value),
        None if half is None else math.exp(part.value - half),
        None if half is None else math.exp(part.value + half),
        law,
        bool(beyond),
        marks,
    )


def _hosts(its: Fitted, ranks: int) -> int:
    """Of the curve with that many ranks, or the nearest."""
    nearest = min(its.fits, key=lambda one: (abs(math.log(one.curve.ranks / ranks)), one.curve.hosts))
    return nearest.curve.hosts


def _beyond(its: Fitted, size: int, ranks: int, hosts: int, extrapolate: bool) -> tuple[str, ...]:
    """What is asked for beyond what was measured; raise where that is not to be, or cannot be, forecast."""
    where = its.family.value("collective")
    if size < 1 or ranks < 2:
        raise UsageError(f"forecast: {where}: got {size} B on {ranks} ranks, expected at least 1 B and 2 ranks")
    same = [one for one in its.fits if (one.curve.ranks, one.curve.hosts) == (ranks, hosts)]
    if not same and not its.laws:
        raise UsageError(
            f"forecast: {where}: got {ranks} ranks, expected {_listed(its.ranks)} as measured: no law over ranks is "
            "known for it; measure them"
        )
    if hosts > 1 and max(its.hosts) == 1:
        raise UsageError(
            f"forecast: {where}: got {hosts} hosts, expected 1 as measured: nothing is known of the way between "
            "hosts; measure on 2 hosts at least"
        )
    low, high = (int(same[0].curve.sizes[0]), int(same[0].curve.sizes[-1])) if same else its.sizes
    over = []
    if not low <= size <= high:
        over.append(("size", format_size(size), f"{format_size(low)} to {format_size(high)}"))
    if not its.ranks[0] <= ranks <= its.ranks[-1]:
        over.append(("ranks", str(ranks), _listed(its.ranks)))
    if not its.hosts[0] <= hosts <= its.hosts[-1]:
        over.append(("hosts", str(hosts), _listed(its.hosts)))
    if over and not extrapolate:
        name, got, expected = over[0]
        raise UsageError(
            f"forecast: {where}: {name}: got {got}, expected {expected} as measured; measure it, or allow "
            "--extrapolate and a wider interval"
        )
    return tuple(f"extrapolated: {name} {got} beyond {expected}" for name, got, expected in over)


def _over_sizes(its: Fit, size: int) -> _Part:
    curve = its.curve
    at, times = np.array([float(size)]), np.log(curve.times)
    value = float(carried(its.segments, curve.sizes, times, at)[0])
    launches = _launch_error(its, at)
    if size in curve.sizes:
        return _Part(value, launches, 0.0 if launches is not None else None)
    octaves = math.log2(size / curve.sizes[-1])
    if octaves > 0:
        return _Part(value, launches, _ahead_error(its, octaves))
    held_out = its.carried
    if held_out is None:
        return _Part(value, launches, None, ("too few sizes to say how far off it may be",))
    below = math.log2(curve.sizes[0] / size)
    # Between measured sizes it is worth what it was between others, not what it was at the ends.
    inner = slice(1, -1) if below < 0 else slice(None)
    near = np.argsort(np.abs(np.log(curve.sizes[inner] / size)), kind="stable")[:_NEAR]
    wide = student(max(len(near) - 1, 2)) * root_mean_square(held_out[inner][near])
    return _Part(value, launches, wide * (1 + max(below, 0.0)))


def _launch_error(its: Fit, at: Floats) -> float | None:
    """Half the interval that launches make: that of their mean, and of the one launch that will be measured."""
    curve = its.curve
    if curve.launches < 2:
        return None
    places = np.log(at), np.log(curve.sizes)
    values = [
        math.log(line(segments, curve.sizes, at)[0]) + float(np.interp(*places, off)[0]) for segments, off in drawn(its)
    ]
    near = int(np.argmin(np.abs(np.log(curve.sizes / at[0]))))
    scatter = [float(np.nanvar(curve.log_times[:, place], ddof=1)) for place in _around(near, len(curve.sizes))]
    count = curve.launches
    mean = float(np.var(values)) * count / (count - 1) if values else 0.0
    return student(count - 1) * math.sqrt(mean + float(np.mean(scatter)))


def _around(place: int, count: int) -> range:
    return range(max(place - 1, 0), min(place + 2, count))


def _ahead_error(its: Fit, octaves: float) -> float | None:
    """Half the interval by how the results forecast themselves as far ahead; farther ahead it grows in proportion.

    Only where the last size that was used stood on bandwidth as the last one of all does, as far as there are such.
    """
    here = min(byte_share(its.segments[-1], its.curve.sizes[-1]), _ON_BANDWIDTH)
    alike = [one for one in its.ahead if one.byte_share >= here]
    tried = alike if len(alike) > 1 else its.ahead
    if not tried:
        return None
    nearest = min((one.octaves for one in tried), key=lambda distance: abs(distance - octaves))
    halves = []
    for distance in {one.octaves for one in tried if one.octaves <= nearest}:
        errors = [one.error for one in tried if abs(one.octaves - distance) < _SAME_DISTANCE][:_NEAR]
        halves.append(student(max(len(errors) - 1, 2)) * root_mean_square(errors))
    return max(halves) * max(1.0, octaves / nearest)  # the largest: nothing gets surer by being farther


def _support(law: LawFit, fits: Sequence[Fit]) -> Support:
    curves = [one.curve for one in fits]
    held_out, ahead = [], []
    counts = sorted({one.ranks for one in curves})
    for count in counts if len(counts) > 1 else []:
        rest = [one for one in fits if one.curve.ranks != count]
        its = [one.curve for one in curves_of(fits, count)]
        refit = fit_law(law.law, [one.curve for one in rest])
        held_out.append((count, *_errors(refit, rest, its)))
    for before, count in itertools.pairwise(counts):
        rest = [one for one in fits if one.curve.ranks <= before]
        refit = fit_law(law.law, [one.curve for one in rest])
        its = [one.curve for one in curves_of(fits, count)]
        ahead.append((math.log2(count / before), *_errors(refit, rest, its)))
    return Support(law, misfit(law, curves), tuple(held_out), tuple(ahead))


def curves_of(fits: Sequence[Fit], ranks: int) -> list[Fit]:
    """The fits on that many ranks."""
    return [one for one in fits if one.curve.ranks == ranks]


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


def anchored(law: LawFit, fits: Sequence[Fit], at: Floats, ranks: int, hosts: int, ranks_per_host: int) -> Floats:
    """Logarithms of times by the law, carried by how the curves beside this number of ranks lie off the law."""
    same = [one for one in fits if one.curve.hosts == hosts] or list(fits)
    off: dict[int, list[Floats]] = {}
    for one in same:
        curve = one.curve
        measured = carried(one.segments, curve.sizes, np.log(curve.times), at)
        off.setdefault(curve.ranks, []).append(measured - np.log(law.of(curve, at)))
    counts = sorted(off)
    table = np.array([np.mean(off[count], axis=0) for count in counts])
    place = float(np.interp(math.log(ranks), np.log(counts), np.arange(len(counts))))
    before, share = int(place), place % 1
    between = table[before] if share == 0 else (1 - share) * table[before] + share * table[before + 1]
    return np.asarray(np.log(law.times(at, ranks, hosts, ranks_per_host)) + between, dtype=np.float64)


def _over_ranks(its: Fitted, size: int, ranks: int, hosts: int) -> _Part:
    """By the best-supported law; those that are as well supported widen the interval to their forecasts."""
    per_host = -(-ranks // hosts)
    best = its.laws[0]
    values = {
        one.fitted.law.name: float(anchored(one.fitted, its.fits, np.array([float(size)]), ranks, hosts, per_host)[0])
        for one in its.laws
        if one.error is None or best.error is None or one.error <= max(_AS_GOOD * best.error, best.error + _ALIKE)
    }
    value = values[best.fitted.law.name]
    spread = max(abs(other - value) for other in values.values())
    nearest = min(its.fits, key=lambda one: abs(math.log(one.curve.ranks / ranks)))
    part = _over_sizes(nearest, size)
    marks = part.marks
    if len(values) > 1:
        marks = (*marks, f"as well supported: {', '.join(name for name in values if name != best.fitted.law.name)}")
    model = _rank_error(its, best, float(size), ranks)
    if best.error is None:
        marks = (*marks, "one number of ranks was measured: which law holds is not known")
    if part.model is None and not np.isin(size, nearest.curve.sizes):
        return _Part(value, part.launches, None, marks)
    return _Part(value, part.launches, math.hypot(part.model or 0.0, model, spread), marks)


def _rank_error(its: Fitted, best: Support, size: float, ranks: int) -> float:
    """Half the interval by how the law forecast other numbers of ranks at the sizes nearest to this one."""
    octaves = math.log2(ranks / its.ranks[-1])
    tried = [(distance, sizes, errors) for distance, sizes, errors in best.ahead]
    if octaves <= 0 or not tried:
        tried = [(0.0, sizes, errors) for _, sizes, errors in best.held_out]
    tried = [one for one in tried if len(one[1])]
    if not tried:
        return 0.0
    squares = []
    for distance, sizes, errors in tried:
        near = np.argsort(np.abs(np.log(sizes / size)), kind="stable")[:_NEAR]
        farther = max(1.0, octaves / distance) if distance and octaves > 0 else 1.0
        squares.append(farther**2 * float(np.mean(np.square(errors[near]))))
    return student(max(len(tried) - 1, 2)) * math.sqrt(float(np.mean(squares)))


def _listed(numbers: Sequence[int]) -> str:
    return " or ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])] if len(numbers) > 1 else map(str, numbers))
