"""What a collective will take at a size and on a number of ranks, with an interval that owns up to the model's error.

A forecast is the fit's shape carried through what was measured: between sizes by how the neighbours lie off the line,
between numbers of ranks by how the curves lie off the law. What that is worth is tried on the results themselves: each
size, and each number of ranks, is forecast from the others; beyond the last ones, from those before.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from collbench.errors import UsageError
from collbench.readers.bootstrap import student
from collbench.readers.fit import Fit, byte_share, carried, drawn, fit, line, root_mean_square, solve
from collbench.readers.fit_rows import Curve, Family, Floats, families
from collbench.readers.laws import fit_law, laws_of
from collbench.readers.over_ranks import NEAR, Support, anchored, as_good, rank_error, support
from collbench.record import Record
from collbench.units import about, format_size

UNTRIED = "not known"
"""In place of a law, where one number of ranks was measured."""
_SAME_SIZE = 0.01
"""Sizes are rounded to what divides by the ranks: what is nearer than this is the same size."""
_WANDERS = 0.13
"""Standard deviation of what a bandwidth changes by (its logarithm) from a size to its double, however steady it was:
from 2 MiB to 32 MiB, from memory, six collectives of each of two libraries on one host, by their median."""
_NORMAL = 1.96
_BEYOND_CACHES = 128 << 20
"""Bytes of buffers on a host from which on the data come from memory."""
_SLOWER_THAN_CACHE = 4.0
"""How much slower memory may be. From 1 MiB to 16 MiB, 4 MiB to 64 MiB of buffers, six collectives of each of two
libraries took 1.2 to 5 times as long for a byte on a host with 32 MiB of cache, all but one up to 3.4 times."""
_ON_BANDWIDTH = 0.5
"""Part of a time that grows with the size, from which bandwidth decides it."""


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
    least: float = -math.inf
    """Logarithm of a time that it cannot be below."""
    most: float = math.inf
    """And of one that it cannot be above, but for `slower`."""
    slower: float = 0.0
    """Logarithm of how much slower a cause makes it that cannot have been seen."""


def fitted(records: Iterable[Record]) -> tuple[Fitted, ...]:
    """Fit all families of the rows."""
    return tuple(fit_family(one) for one in families(records))


def fit_family(family: Family) -> Fitted:
    """Fit a family's curves, and find the law that its numbers of ranks support."""
    fits = tuple(fit(one) for one in family.curves)
    laws = laws_of(family.value("collective"), family.curves)
    several = [one for one in fits if one.curve.ranks > 1]
    found = [support(fit_law(law, [one.curve for one in several]), several) for law in laws]
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
        part = _over_ranks(its, size_bytes, ranks, hosts)
        law = its.laws[0].fitted.law.name if its.laws[0].error is not None else UNTRIED
    half = None if part.model is None else math.hypot(part.model, part.launches or 0.0)
    marks = (*beyond, *part.marks)
    if part.launches is None:
        marks = (*marks, "from one launch: what launches differ by is not in the interval")
    if any(one.curve.oversubscribed for one in (same or its.fits)):
        marks = (*marks, "measured in a launch of more ranks than cores")
    return Forecast(
        size_bytes,
        ranks,
        hosts,
        math.exp(part.value),
        None if half is None else math.exp(max(part.value - half, min(part.least, part.value))),
        None if half is None else math.exp(min(part.value + math.hypot(half, part.slower), _top(part))),
        law,
        bool(beyond),
        marks,
    )


def _top(part: _Part) -> float:
    return max(part.most + part.slower, part.value)


def _hosts(its: Fitted, ranks: int) -> int:
    """Of the curve with that many ranks, or the nearest."""
    nearest = min(its.fits, key=lambda one: (abs(math.log(one.curve.ranks / ranks)), one.curve.hosts))
    return nearest.curve.hosts


def _beyond(its: Fitted, size: int, ranks: int, hosts: int, extrapolate: bool) -> tuple[str, ...]:
    """What is asked for beyond what was measured; raise where that is not to be, or cannot be, forecast."""
    where = its.family.value("collective")
    if size < 1:
        raise UsageError(f"forecast: {where}: size: got {size} B, expected at least 1 B")
    same = [one for one in its.fits if (one.curve.ranks, one.curve.hosts) == (ranks, hosts)]
    if not same and (not its.laws or ranks < 2):
        raise UsageError(
            f"forecast: {where}: ranks: got {ranks}, expected {_listed(its.ranks)} as measured: no law over ranks "
            "tells of others; measure them"
        )
    if hosts > 1 and max(its.hosts) == 1:
        raise UsageError(
            f"forecast: {where}: got {hosts} hosts, expected 1 as measured: nothing is known of the way between "
            "hosts; measure on 2 hosts at least"
        )
    beside = same or _beside(its, ranks)
    low = int(max(one.curve.sizes[0] for one in beside))
    high = int(min(one.curve.sizes[-1] for one in beside))
    over = []
    if not low * (1 - _SAME_SIZE) <= size <= high * (1 + _SAME_SIZE):
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


def _beside(its: Fitted, ranks: int) -> list[Fit]:
    """The fits on the nearest numbers of ranks below and above."""
    counts = [count for count in its.ranks if count > 1]
    below = max((count for count in counts if count <= ranks), default=counts[0])
    above = min((count for count in counts if count >= ranks), default=counts[-1])
    return [one for one in its.fits if one.curve.ranks in (below, above)]


def _over_sizes(its: Fit, size: int) -> _Part:
    curve = its.curve
    at, times = np.array([float(size)]), np.log(curve.times)
    value = float(carried(its.segments, curve.sizes, times, at)[0])
    launches = _launch_error(its, at)
    if np.abs(np.log(curve.sizes / size)).min() < _SAME_SIZE:
        return _Part(value, launches, 0.0 if launches is not None else None)
    octaves = math.log2(size / curve.sizes[-1])
    if octaves > 0:
        least = float(times[-1]) - (launches or 0.0)  # a larger size takes no less
        marks, slower = _caches(curve, octaves)
        return _Part(value, launches, _ahead_error(its, octaves), marks, least, slower=slower)
    held_out = its.carried
    if held_out is None:
        return _Part(value, launches, None, ("too few sizes to say how far off it may be",))
    below = math.log2(curve.sizes[0] / size)
    # Between measured sizes it is worth what it was between others, not what it was at the ends.
    inner = slice(1, -1) if below < 0 else slice(None)
    near = np.argsort(np.abs(np.log(curve.sizes[inner] / size)), kind="stable")[:NEAR]
    wide = student(max(len(near), 2)) * root_mean_square(held_out[inner][near])
    if below <= 0:
        return _Part(value, launches, wide)
    # A smaller size takes no longer, and is carried no faster but for caches.
    end = _launch_error(its, curve.sizes[:1]) or 0.0
    most = float(times[0]) + end
    least = float(times[0]) - end - math.log(2.0**below * min(2.0**below, _SLOWER_THAN_CACHE))
    return _Part(value, launches, wide * (1 + below), least=least, most=most)


def _caches(curve: Curve, octaves: float) -> tuple[tuple[str, ...], float]:
    """What to say of caches, and how much slower the end of one may make it (a logarithm): no smaller size can tell."""
    touched = curve.touched_bytes
    if touched is None or touched >= _BEYOND_CACHES:
        return (), 0.0
    slower = min(2.0**octaves, _SLOWER_THAN_CACHE)
    said = f"measured on {about(touched)} of buffers, which a cache may hold: the upper end allows for "
    return (f"{said}{slower:.2g} times the time",), math.log(slower)


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
    columns = [curve.log_times[:, place] for place in _around(near, len(curve.sizes))]
    whole = [its[~np.isnan(its)] for its in columns]
    scatter = [float(np.var(its, ddof=1)) for its in whole if len(its) > 1]
    if not scatter:
        return None
    count = curve.launches
    mean = float(np.var(values)) * count / (count - 1) if values else float(np.mean(scatter))
    return student(count - 1) * math.sqrt(mean + float(np.mean(scatter)))


def _around(place: int, count: int) -> range:
    return range(max(place - 1, 0), min(place + 2, count))


def _ahead_error(its: Fit, octaves: float) -> float | None:
    """Half the interval by how the results forecast themselves ahead: squares of errors over octaves, as a variogram.

    Noise makes a constant of them, a bandwidth that wanders a line, and one that drifts a square; their sum goes on
    beyond the octaves that could be tried, and with it what any bandwidth changes by. Only where the last size that was
    used stood on bandwidth as the last one of all does, as far as there are such. N. Cressie, "Statistics for Spatial
    Data", 1993, section 2.4.
    """
    here = min(byte_share(its.segments[-1], its.curve.sizes[-1]), _ON_BANDWIDTH)
    alike = [one for one in its.ahead if one.byte_share >= here]
    tried = alike if len(alike) > 1 else its.ahead
    if not tried:
        return None
    distances = np.array([one.octaves for one in tried])
    squares = np.square([one.error for one in tried])
    # What is tried far ahead is far off: weighted by the distance, so that it does not decide alone.
    powers, _ = solve()(np.stack([1 / distances, np.ones(len(tried)), distances], axis=1), squares / distances)
    square = powers[0] + powers[1] * octaves + powers[2] * octaves**2
    origins = len({one.byte_share for one in tried})
    unseen = _NORMAL * _WANDERS * math.sqrt(octaves)
    return math.hypot(student(max(origins, 2)) * math.sqrt(square), unseen)


def _over_ranks(its: Fitted, size: int, ranks: int, hosts: int) -> _Part:
    """By the best-supported law; those that are as well supported widen the interval to their forecasts."""
    per_host = -(-ranks // hosts)
    best = its.laws[0]
    values = {
        one.fitted.law.name: float(anchored(one.fitted, its.fits, np.array([float(size)]), ranks, hosts, per_host)[0])
        for one in its.laws
        if as_good(one, best)
    }
    # Where nothing tells the laws apart, it is in the middle of them.
    value = values[best.fitted.law.name] if best.error is not None else float(np.median(list(values.values())))
    spread = max(abs(other - value) for other in values.values())
    nearest = min(_beside(its, ranks), key=lambda one: abs(math.log(one.curve.ranks / ranks)))
    part = _over_sizes(nearest, size)
    marks = part.marks
    if len(values) > 1 and best.error is not None:
        marks = (*marks, f"as well supported: {', '.join(name for name in values if name != best.fitted.law.name)}")
    model = rank_error(best, float(size), ranks, its.ranks[-1])
    if best.error is None:
        marks = (*marks, f"which law over ranks holds was not tried: it is in the middle of {', '.join(values)}")
    if part.model is None and part.launches is not None:
        return _Part(value, part.launches, None, marks)
    least, most = -math.inf, math.inf
    if ranks > its.ranks[-1]:
        # Among more ranks it takes no less, and no law grows faster than their number, or twice that by rounding.
        error = math.hypot(part.model or 0.0, part.launches or 0.0)
        least, most = part.value - error, part.value + error + math.log(2 * ranks / its.ranks[-1])
    half = math.hypot(part.model or 0.0, model, spread)
    return _Part(value, part.launches, half, marks, least, most, part.slower)


def _listed(numbers: Sequence[int]) -> str:
    return " or ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])] if len(numbers) > 1 else map(str, numbers))
