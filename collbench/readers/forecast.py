"""What a collective will take at a size and on a number of ranks, with an interval that owns up to the model's error.

A forecast is the fit's shape carried through what was measured: between sizes by how the neighbours lie off the line,
between numbers of ranks by how the curves lie off the law. What that is worth is tried on the results themselves: each
size, and each number of ranks, is forecast from the others; beyond the last ones, from those before.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from collbench.errors import UsageError
from collbench.readers.bootstrap import student
from collbench.readers.fit import Fit, byte_share, carried, drawn, line, root_mean_square, solve
from collbench.readers.fit_rows import Curve, Floats
from collbench.readers.fitted import Fitted
from collbench.readers.forecast_range import (
    SAME_SIZE,
    beyond,
    distance,
    measured,
    no_slower,
    on_hosts,
    usual_hosts,
    with_more,
)
from collbench.readers.over_ranks import NEAR, anchored, anchors, as_good, rank_error, unlike_powers
from collbench.units import about, format_duration, format_size

UNTRIED = "not known"
"""In place of a law, where one number of ranks was measured and there are several laws."""
_WANDERS = 0.13
"""Standard deviation of what a bandwidth changes by (its logarithm) from a size to its double, however steady it was:
from 2 MiB to 32 MiB, from memory, six collectives of each of two libraries on one host, by their median."""
_NORMAL = 1.96
_BEYOND_CACHES = 128 << 20
"""Bytes of buffers on a host from which on the data come from memory."""
_SLOWER_THAN_CACHE = 4.0
"""How much slower memory may be. From 1 MiB to 16 MiB, 4 MiB to 64 MiB of buffers, six collectives of each of two
libraries took 1.2 to 5 times as long for a byte on a host with 32 MiB of cache, all but one up to 3.4 times."""
TWICE = 2.0
"""How much longer than all others, or shorter, a launch is taken to be: an assumption. Student's t of two or three
launches allows for far more, and of one launch nothing is known (docs/forecast.md has how often two are within it)."""
_ON_BANDWIDTH = 0.5
"""Part of a time that grows with the size, from which bandwidth decides it."""


@dataclass(frozen=True)
class Forecast:
    """A time in seconds with its interval for one more launch: of 95 %, unless the marks have `ONE_LAUNCH`."""

    size_bytes: int
    ranks: int
    hosts: int
    time_s: float
    low_s: float | None
    """None where nothing says how far off it may be."""
    high_s: float | None
    law: str = ""
    """Empty where that number of ranks was measured."""
    extrapolated: bool = False
    marks: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class _Part:
    """A logarithm of time, and half the interval that each source of error makes."""

    value: float
    launches: float
    model: float | None
    """None where nothing tells it."""
    marks: tuple[str, ...] = ()
    least: float = -math.inf
    """Logarithm of a time that it cannot be below."""
    most: float = math.inf
    """And of one that it cannot be above, but for `slower`."""
    slower: float = 0.0
    """Logarithm of how much slower a cause makes it that cannot have been seen."""
    others: tuple[float, ...] = ()
    """Logarithms of times that it may be as well: the errors are about all of them."""

    @property
    def half(self) -> float | None:
        """Half the interval of both sources of error."""
        return None if self.model is None else math.hypot(self.model, self.launches)

    @property
    def low(self) -> float:
        """Logarithm of the lower end."""
        return max(min((self.value, *self.others)) - (self.half or 0.0), min(self.least, self.value))

    @property
    def high(self) -> float:
        """Logarithm of the upper end."""
        high = max((self.value, *self.others)) + math.hypot(self.half or 0.0, self.slower)
        return min(high, max(self.most + self.slower, self.value))


def forecast(its: Fitted, size_bytes: int, ranks: int, hosts: int | None = None, extrapolate: bool = False) -> Forecast:
    """Forecast one operation; a UsageError where that was not measured around and `extrapolate` is not given.

    `hosts` is, where it is not given, what holds the ranks as they were measured.
    """
    hosts = usual_hosts(its, ranks) if hosts is None else hosts
    over = beyond(its, size_bytes, ranks, hosts)
    same = measured(its, ranks, hosts)
    _sizes_told(its, same or anchors(its.several, ranks, hosts), size_bytes)
    if over and not extrapolate:
        raise UsageError(
            f"forecast: {its.family.value('collective')}: {over[0].name}: got {over[0].got}, expected "
            f"{over[0].expected} as measured; measure it, or allow --extrapolate and a wider interval"
        )
    if same:
        part, law = _measured_at(same[0], size_bytes) or _over_sizes(same[0], size_bytes), ""
    else:
        part = _over_ranks(its, size_bytes, ranks, hosts, any(one.name != "size" for one in over))
        law = its.law or UNTRIED
    marks = (*(one.mark for one in over), *part.marks)
    if any(one.curve.oversubscribed for one in (same or its.fits)):
        marks = (*marks, "measured in a launch of more ranks than cores")
    return Forecast(
        size_bytes,
        ranks,
        hosts,
        math.exp(part.value),
        None if part.half is None else math.exp(part.low),
        None if part.half is None else math.exp(part.high),
        law,
        bool(over),
        marks,
    )


def _sizes_told(its: Fitted, fits: Sequence[Fit], size: int) -> None:
    """Refuse a size of which the measured ones tell nothing: beside one alone, and beyond those of times that stay."""
    where, got = f"forecast: {its.family.value('collective')}: size", format_size(size)
    for one in fits:
        largest = float(one.curve.sizes[-1])
        away, most = math.log(size / largest), format_size(round(largest))
        if len(one.curve.sizes) == 1 and abs(away) >= SAME_SIZE:
            raise UsageError(
                f"{where}: got {got}, expected {most} as measured: one size tells neither alpha nor B; measure several"
            )
        if away >= SAME_SIZE and not one.segments[-1].per_byte_s:
            raise UsageError(
                f"{where}: got {got}, expected at most {most} as measured: the times up to there do not grow with the "
                "size, so they tell nothing of the bandwidth; measure larger sizes"
            )


def _measured_at(its: Fit, size: int) -> _Part | None:
    """By the launches of that size alone, where it was measured: what the fit is off by has no part in it."""
    curve = its.curve
    place = int(np.argmin(np.abs(np.log(curve.sizes / size))))
    if abs(math.log(curve.sizes[place] / size)) >= SAME_SIZE:
        return None
    value = float(carried(its.segments, curve.sizes, np.log(curve.times), np.array([float(size)]))[0])
    low, high, marks = _another(curve, place)
    return _Part(value, max(value - low, high - value), 0.0, marks, low, high)


def _over_sizes(its: Fit, size: int) -> _Part:
    curve = its.curve
    at = np.array([float(size)])
    value = float(carried(its.segments, curve.sizes, np.log(curve.times), at)[0])
    launches, marks = _launch_error(its, at)
    if np.abs(np.log(curve.sizes / size)).min() < SAME_SIZE:
        return _Part(value, launches, 0.0, marks)
    octaves, slower = _octaves_beyond(curve.sizes[0], curve.sizes[-1], size), 0.0
    if octaves:
        end = _another(curve, len(curve.sizes) - 1 if octaves > 0 else 0)
        least, most = _bounds(end[0], end[1], octaves)
    else:
        least, most = _between(its, size)
    if octaves > 0:
        model = _ahead_error(its, octaves)
        caches, slower = _caches(curve, octaves)
        marks = (*marks, *caches)
    else:
        model = _held_out_error(its, size, -octaves)
    if model is None and least > -math.inf:
        model = max(most + slower - value, value - least)
        marks = (*marks, "too few sizes to say how far off the fit is: the interval is what the measured ones allow")
    elif model is None:
        marks = (*marks, "too few sizes to say how far off it may be")
    return _Part(value, launches, model, marks, least, most, slower)


def _octaves_beyond(low: float, high: float, size: int) -> float:
    """From the ends of the sizes measured: positive for a larger size, negative for a smaller one, 0 between."""
    return math.log2(size / min(max(size, low), high))


def _bounds(low: float, high: float, octaves: float) -> tuple[float, float]:
    """The least and the most that a size so far beyond an end can take, by those of the end: logarithms all.

    A larger one takes no less, and no more than in proportion but for a bandwidth that changes (and a cache, which is
    `slower`). A smaller one takes no longer, and is carried no faster but for caches.
    """
    if octaves > 0:
        return low, high + octaves * math.log(2) + _wandering(octaves)
    times = 2.0**-octaves
    return low - math.log(times * min(times, _SLOWER_THAN_CACHE)), high


def _held_out_error(its: Fit, size: int, below: float) -> float | None:
    """Half the interval by how the nearest sizes are forecast from the others; for a size so many octaves below all."""
    if its.carried is None:
        return None
    sizes = its.curve.sizes
    # Between measured sizes it is worth what it was between others, not what it was at the ends.
    inner = slice(None) if below else slice(1, -1)
    near = np.argsort(np.abs(np.log(sizes[inner] / size)), kind="stable")[:NEAR]
    off = its.carried
    if not below:
        # What was held out stood so far from others; a size in a gap stands farther.
        off = off * np.maximum(np.abs(np.log2(sizes / size)).min() / _octaves_apart(sizes), 1.0)
    return student(max(len(near), 2)) * root_mean_square(off[inner][near]) * (1 + below)


def _octaves_apart(sizes: Floats) -> Floats:
    """From each size to the nearest other one."""
    steps = np.diff(np.log2(sizes))
    return np.asarray(np.minimum(np.append(steps, np.inf), np.append(np.inf, steps)), dtype=np.float64)


def _between(its: Fit, size: int) -> tuple[float, float]:
    """The logarithms of time that a smaller and a larger measured size allow, each with what its launches differ by.

    No bounds where the smaller one took longer, or where the bandwidth falls: what happens there is not monotone.
    """
    curve = its.curve
    after = int(np.searchsorted(curve.sizes, size))
    low, high = curve.sizes[after - 1], curve.sizes[after]
    ends = np.log(curve.times[[after - 1, after]])
    if ends[0] > ends[1] or any(one.from_bytes < high and one.to_bytes > low for one in its.dips):
        return -math.inf, math.inf
    return _another(curve, after - 1)[0], _another(curve, after)[1]


def _another(curve: Curve, place: int) -> tuple[float, float, tuple[str, ...]]:
    """Logarithms of the least and the most that one more launch takes at a measured size, and what to say of them.

    By Student's t of the launches that have that size, as far as no launch takes twice as long as all others.
    """
    its = curve.log_times[~np.isnan(curve.log_times[:, place]), place]
    count, mean = len(its), float(its.mean())
    half = student(count - 1) * float(np.std(its, ddof=1)) * math.sqrt(1 + 1 / count) if count > 1 else math.inf
    least, most = float(its.min()) - math.log(TWICE), float(its.max()) + math.log(TWICE)
    low, high = max(mean - half, least), min(mean + half, most)
    if (low, high) == (mean - half, mean + half):
        return low, high, ()
    return low, high, (_few(count),)


def _few(launches: int) -> str:
    few = "one launch" if launches == 1 else f"{launches} launches"
    return f"from {few}: another is taken to be within a factor of {TWICE:g} of that, which is an assumption"


ONE_LAUNCH = _few(1)
"""The mark of an interval that is no interval of confidence."""


def _caches(curve: Curve, octaves: float) -> tuple[tuple[str, ...], float]:
    """What to say of caches, and how much slower the end of one may make it (a logarithm): no smaller size can tell."""
    touched = curve.touched_bytes
    if touched is None or touched >= _BEYOND_CACHES:
        return (), 0.0
    slower = min(2.0**octaves, _SLOWER_THAN_CACHE)
    said = f"measured on {about(touched)} of buffers, which a cache may hold: the upper end allows for its end"
    return (f"{said} ({slower:.2g} times the time)",), math.log(slower)


def _launch_error(its: Fit, at: Floats) -> tuple[float, tuple[str, ...]]:
    """Half the interval that launches make, of their mean and of the one that will be measured, and what to say of it.

    By Student's t of the launches that have the sizes beside it. Within the sizes measured no launch is taken to take
    twice as long as all others, as at a measured size.
    """
    curve = its.curve
    near = int(np.argmin(np.abs(np.log(curve.sizes / at[0]))))
    columns = [curve.log_times[:, place] for place in _around(near, len(curve.sizes))]
    whole = [its[~np.isnan(its)] for its in columns]
    scatter = [float(np.var(its, ddof=1)) for its in whole if len(its) > 1]
    most, count = math.log(TWICE) + max(float(np.ptp(its)) for its in whole) / 2, _launches_beside(curve, at[0])
    if count == 1:
        return most, (ONE_LAUNCH,)
    places = np.log(at), np.log(curve.sizes)
    values = [
        math.log(line(segments, curve.sizes, at)[0]) + float(np.interp(*places, off)[0]) for segments, off in drawn(its)
    ]
    mean = float(np.var(values)) * count / (count - 1) if values else float(np.mean(scatter))
    half = student(count - 1) * math.sqrt(mean + float(np.mean(scatter)))
    inside = curve.sizes[0] <= at[0] <= curve.sizes[-1]
    return (most, (_few(count),)) if inside and half > most else (half, ())


def _launches_beside(curve: Curve, size: float) -> int:
    """How many have each of the two sizes around it, or the two at the end that it lies beyond."""
    after = min(max(int(np.searchsorted(curve.sizes, size)), 1), max(len(curve.sizes) - 1, 1))
    return int((~np.isnan(curve.log_times[:, after - 1 : after + 1])).sum(axis=0).min())


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
    return math.hypot(student(max(origins, 2)) * math.sqrt(square), _wandering(octaves))


def _wandering(octaves: float) -> float:
    """Half the interval by what any bandwidth changes over so many octaves."""
    return _NORMAL * _WANDERS * math.sqrt(octaves)


def _over_ranks(its: Fitted, size: int, ranks: int, hosts: int, layout_beyond: bool) -> _Part:
    """By the best-supported law; beyond the sizes measured, within what the last of them allows."""
    part, sizes = _by_law(its, size, ranks, hosts, layout_beyond), _common_sizes(its, ranks, hosts)
    octaves = _octaves_beyond(*sizes, size)
    if abs(octaves) * math.log(2) < SAME_SIZE:
        return part
    end = _by_law(its, sizes[octaves > 0], ranks, hosts, layout_beyond)
    if end.half is None:
        return part
    least, most = _bounds(end.low, end.high, octaves)
    value = max(part.value, end.value) if octaves > 0 else min(part.value, end.value)
    return replace(part, value=value, least=max(part.least, least), most=min(part.most, most))


def _common_sizes(its: Fitted, ranks: int, hosts: int) -> tuple[int, int]:
    """The smallest and the largest that all curves have which the law is carried by."""
    sizes = [one.curve.sizes for one in anchors(its.several, ranks, hosts)]
    return int(max(one[0] for one in sizes)), int(min(one[-1] for one in sizes))


def _by_law(its: Fitted, size: int, ranks: int, hosts: int, layout_beyond: bool) -> _Part:
    """Laws that are as well supported as the best one widen the interval to their forecasts."""
    per_host, best = -(-ranks // hosts), its.laws[0]
    good, at = [one.fitted for one in its.laws if as_good(one, best)], np.array([float(size)])
    values = {one.law.name: float(anchored(one, its.several, at, ranks, hosts, per_host)[0]) for one in good}
    # Where nothing tells the laws apart, it is in the middle of them.
    value = values[best.fitted.law.name] if best.error is not None else float(np.median(list(values.values())))
    spread, names = max(abs(other - value) for other in values.values()), sorted(values)
    unlike = tuple(time for one in good for time in unlike_powers(one, its.several, at, ranks, hosts))
    nearest = min(anchors(its.several, ranks, hosts), key=lambda one: abs(math.log(one.curve.ranks / ranks)))
    part = _over_sizes(nearest, size)
    marks = part.marks
    if len(values) > 1 and best.error is not None:
        marks = (*marks, f"as well supported: {', '.join(name for name in names if name != best.fitted.law.name)}")
    if best.error is None and len(values) == 1:
        marks = (*marks, f"the only law over ranks, {best.fitted.law.name}, was not tried")
    elif best.error is None:
        marks = (*marks, f"which law over ranks holds was not tried: it is in the middle of {', '.join(names)}")
    if unlike:
        said = f"how {ranks} ranks, no power of two, are taken in was not tried: the interval has the usual ways"
        marks = (*marks, said)
    least, most = -math.inf, math.inf
    floor = no_slower(its, ranks, hosts)
    fewer = None if floor is None else _over_sizes(floor, size)
    if floor and fewer and all(_over_sizes(one, size).value >= fewer.value for one in with_more(its, ranks, hosts)):
        # Among more ranks it takes no less, unless some were measured that did.
        least = fewer.low
        if value < fewer.value:
            known, law = on_hosts(floor.curve.ranks, floor.curve.hosts), format_duration(math.exp(value))
            marks = (*marks, f"raised to what {known} take, since more take no less (by the law alone {law})")
            value = fewer.value
    if part.half is None:
        return _Part(value, part.launches, None, marks)
    if ranks > its.ranks[-1] and (hosts == 1 or nearest.curve.hosts > 1):
        # No law grows faster than the number of ranks or hosts, or twice that by rounding.
        grown = part.value + math.log(2 * max(ranks / nearest.curve.ranks, hosts / nearest.curve.hosts))
        most = part.half + max((grown, *unlike))
    half = math.hypot(part.model or 0.0, rank_error(best, float(size), distance(its, ranks, hosts)), spread)
    # The law's own error says what it misses, even where its neighbours hide it.
    own = max(best.misfit, best.error or 0.0) * (_NORMAL if layout_beyond else 1.0)
    return _Part(value, part.launches, max(half, own), marks, least, most, part.slower, unlike)
