"""Time over size as start-up and bandwidth, T(S) = alpha + S / B, in up to three segments.

Fitted to relative errors (weights 1/t), alpha >= 0 and 1/B >= 0, by scipy's non-negative least squares (Lawson and
Hanson): an absolute fit lets the largest size decide alone, and may give a negative alpha. The number of segments is
chosen by cross-validation, one size out at a time. R. W. Hockney, "The communication challenge for MPP", Parallel
Computing 20(3), 1994.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from collbench.errors import CannotRun
from collbench.readers.fit_rows import Curve, Floats

MOST_BREAKS = 2
LEAST_SIZES = 3
"""Sizes of a segment: two give a line through both, and no error."""
_BETTER = 0.85
"""A further breakpoint must bring the hold-out error down to this share, and by so many of its standard
errors as a one-sided test at 10 % asks for."""
_SURE = 1.28
_NO_ERROR = 1e-9
"""Relative; what is below fits exactly, up to rounding."""
DIP = 0.05
"""Least fall of the bandwidth from one size to the next that is named."""
_DIP_SURE = 2.0
"""Standard errors over launches that it must exceed."""
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


@dataclass(frozen=True)
class Segment:
    """One line over the sizes from `first` to `last` (positions, both included)."""

    first: int
    last: int
    alpha_s: float
    per_byte_s: float

    @property
    def bandwidth(self) -> float:
        """B in bytes/s; infinite where the time does not grow with the size."""
        return 1 / self.per_byte_s if self.per_byte_s > 0 else math.inf


@dataclass(frozen=True)
class Dip:
    """The bandwidth falls while the size grows: no sum of start-up and bandwidth does that."""

    from_bytes: int
    to_bytes: int
    fall: float


@dataclass(frozen=True)
class Ahead:
    """A larger size forecast from smaller ones alone: how many octaves beyond the last of them, and the error."""

    octaves: float
    error: float
    byte_share: float
    """The part of the time at that last size that grows with it: a start-up alone says nothing of larger sizes."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A curve with its segments; errors are logarithms of fit over measured, by size."""

    curve: Curve
    segments: tuple[Segment, ...]
    errors: Floats
    held_out: Floats | None
    """Of the fit without that size; None below four sizes."""
    carried: Floats | None
    """Of what is forecast at that size without it: the fit, carried by the measured sizes beside it."""
    ahead: tuple[Ahead, ...]
    """From the most sizes to the fewest."""
    replicates: Floats
    """Logarithms of times, replicates x sizes; one row where there is one launch."""
    by_breaks: tuple[float, ...]
    """Hold-out error (mean absolute, in logarithms) with 0, 1, ... breakpoints."""
    dips: tuple[Dip, ...]


def fit(curve: Curve, breaks: int | None = None) -> Fit:
    """Fit a curve; the number of breakpoints is found where it is not given."""
    solve()
    sizes, times = curve.sizes, curve.times
    most = min(MOST_BREAKS, len(sizes) // LEAST_SIZES - 1)
    tried = [_one_out(sizes, times, count) for count in range(max(most, 0) + 1)]
    chosen = _chosen([its for its in tried if its is not None]) if breaks is None else breaks
    segments = segmented(sizes, times, chosen)
    held_out = tried[chosen] if chosen < len(tried) else None
    return Fit(
        curve,
        segments,
        np.log(line(segments, sizes, sizes)) - np.log(times),
        held_out,
        _carried_out(sizes, times, segments),
        _ahead(sizes, times, chosen),
        _replicates(curve.log_times),
        tuple(float(np.abs(its).mean()) for its in tried if its is not None),
        _dips(curve),
    )


@functools.cache
def solve() -> Callable[[Floats, Floats], tuple[Floats, float]]:
    """scipy's non-negative least squares; CannotRun where scipy is missing."""
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise CannotRun(
            "forecast: scipy: got none, expected it to fit with; pip install 'collbench[forecast]'"
        ) from None
    solver: Callable[[Floats, Floats], tuple[Floats, float]] = nnls
    return solver


def relative(columns: Sequence[Floats], times: Floats) -> Floats:
    """Non-negative factors of the columns whose sum is nearest to the times, in relative errors."""
    weighted = np.stack(columns, axis=1) / times[:, np.newaxis]
    scale = weighted.max(axis=0)
    scale[scale <= 0] = 1.0  # of a column of zeros; its factor is 0
    found, _ = solve()(weighted / scale, np.ones(len(times)))
    return np.asarray(found / scale, dtype=np.float64)


def segmented(sizes: Floats, times: Floats, breaks: int) -> tuple[Segment, ...]:
    """The best segments for this number of breakpoints: least squares of relative errors over all places for them."""
    count = len(sizes)
    lines: dict[tuple[int, int], tuple[float, Segment]] = {}

    def costs(first: int, last: int) -> tuple[float, Segment]:
        if (first, last) not in lines:
            its = slice(first, last + 1)
            alpha, per_byte = _line_of(sizes[its], times[its])
            errors = (alpha + per_byte * sizes[its]) / times[its] - 1
            lines[first, last] = float(errors @ errors), Segment(first, last, alpha, per_byte)
        return lines[first, last]

    best: tuple[float, tuple[Segment, ...]] | None = None
    for inner in itertools.combinations(range(LEAST_SIZES, count - LEAST_SIZES + 1), breaks):
        starts = (0, *inner, count)
        if any(after - before < LEAST_SIZES for before, after in itertools.pairwise(starts)) and breaks:
            continue
        parts = [costs(before, after - 1) for before, after in itertools.pairwise(starts)]
        total = sum(cost for cost, _ in parts)
        if best is None or total < best[0]:
            best = total, tuple(segment for _, segment in parts)
    if best is None:
        raise ValueError(f"segmented: got {count} sizes, expected {LEAST_SIZES} for each of {breaks + 1} segments")
    return best[1]


def line(segments: Sequence[Segment], sizes: Floats, at: Floats) -> Floats:
    """The fitted time at any sizes; between two segments it goes from one line to the other, in logarithms."""
    ends = [sizes[[segment.first, segment.last]] for segment in segments]
    values = np.empty(len(at))
    for place, size in enumerate(at):
        after = next((i for i, (_, last) in enumerate(ends) if size <= last), len(ends) - 1)
        own = _at(segments[after], size)
        if after and size < ends[after][0]:
            low, high = ends[after - 1][1], ends[after][0]
            share = math.log(size / low) / math.log(high / low)
            own = math.exp((1 - share) * math.log(_at(segments[after - 1], size)) + share * math.log(own))
        values[place] = own
    return values


def carried(segments: Sequence[Segment], sizes: Floats, log_times: Floats, at: Floats) -> Floats:
    """Logarithms of what is forecast: the line, carried by how the measured sizes beside it lie off the line."""
    off = log_times - np.log(line(segments, sizes, sizes))
    return np.asarray(np.log(line(segments, sizes, at)) + np.interp(np.log(at), np.log(sizes), off), dtype=np.float64)


def refitted(found: Fit, log_times: Floats) -> tuple[Segment, ...]:
    """The same segments for other times of the same sizes; sizes that are nan there are left out."""
    segments = []
    for segment in found.segments:
        its = slice(segment.first, segment.last + 1)
        there = ~np.isnan(log_times[its])
        if there.any():
            alpha, per_byte = _line_of(found.curve.sizes[its][there], np.exp(log_times[its][there]))
            segment = Segment(segment.first, segment.last, alpha, per_byte)
        segments.append(segment)
    return tuple(segments)


def estimates(found: Fit) -> tuple[tuple[Estimate, Estimate, Estimate], ...]:
    """alpha in seconds, B in bytes/s and the half-performance size alpha x B in bytes, of each segment."""
    launches = found.curve.launches
    drawn = [refitted(found, row) for row in found.replicates] if launches > 1 else []
    result = []
    for place, segment in enumerate(found.segments):
        its = [replicate[place] for replicate in drawn]
        per_byte = interval(segment.per_byte_s, [one.per_byte_s for one in its], launches)
        bandwidth = Estimate(*(1 / x if x else None for x in (per_byte.value, per_byte.high, per_byte.low)))
        half = None if not segment.per_byte_s else segment.alpha_s / segment.per_byte_s
        halves = [one.alpha_s / one.per_byte_s for one in its if one.per_byte_s > 0]
        unbounded = half is None or len(halves) < len(its)
        result.append(
            (
                interval(segment.alpha_s, [one.alpha_s for one in its], launches),
                bandwidth,
                Estimate(half) if unbounded or half is None else interval(half, halves, launches),
            )
        )
    return tuple(result)


def interval(value: float, drawn: Sequence[float], launches: int) -> Estimate:
    """The 95 % interval by the bootstrap's standard error and Student's t, in logarithms where none of them is 0.

    A bootstrap over few launches is too narrow by sqrt((n - 1) / n) and by the normal quantile in place of t's; both
    are put right (T. Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69(4),
    2015, section 4.1).
    """
    if launches < 2 or not drawn:
        return Estimate(value)
    its = np.asarray(drawn)
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


def root_mean_square(errors: Floats | Sequence[float]) -> float:
    """Of errors, as one number."""
    return float(np.sqrt(np.mean(np.square(errors)))) if len(errors) else 0.0


def _at(segment: Segment, size: float) -> float:
    return segment.alpha_s + segment.per_byte_s * size


def _line_of(sizes: Floats, times: Floats) -> tuple[float, float]:
    alpha, per_byte = relative([np.ones(len(sizes)), sizes], times)
    return float(alpha), float(per_byte)


def _one_out(sizes: Floats, times: Floats, breaks: int) -> Floats | None:
    """Errors of the line at each size that it was fitted without, its breakpoints too; None with too few sizes."""
    if len(sizes) <= LEAST_SIZES * (breaks + 1):
        return None
    errors = np.empty(len(sizes))
    for out in range(len(sizes)):
        rest, its = np.delete(sizes, out), np.delete(times, out)
        errors[out] = math.log(line(segmented(rest, its, breaks), rest, sizes[out : out + 1])[0] / times[out])
    return errors


def _chosen(tried: Sequence[Floats]) -> int:
    """By absolute errors: the sizes beside a breakpoint are far off without each other, and would decide squares."""
    best = 0
    for breaks in range(1, len(tried)):
        before, after = np.abs(tried[best]), np.abs(tried[breaks])
        gain = before - after
        sure = float(np.std(gain, ddof=1)) / math.sqrt(len(gain))
        if before.mean() > _NO_ERROR and after.mean() < _BETTER * before.mean() and gain.mean() > _SURE * sure:
            best = breaks
    return best


def _carried_out(sizes: Floats, times: Floats, segments: Sequence[Segment]) -> Floats | None:
    """Errors of what is forecast at each size without it, at the same breakpoints."""
    if len(sizes) <= LEAST_SIZES:
        return None
    errors = np.empty(len(sizes))
    for out in range(len(sizes)):
        rest, its = np.delete(sizes, out), np.delete(times, out)
        kept = []
        for segment in segments:
            first, last = segment.first - (segment.first > out), segment.last - (segment.last >= out)
            part = slice(first, last + 1)
            kept.append(Segment(first, last, *_line_of(rest[part], its[part])))
        errors[out] = carried(kept, rest, np.log(its), sizes[out : out + 1])[0] - math.log(times[out])
    return errors


def _ahead(sizes: Floats, times: Floats, breaks: int) -> tuple[Ahead, ...]:
    """Forecast from the smaller sizes alone, for every size that they may end at and every larger one.

    L. J. Tashman, "Out-of-sample tests of forecasting accuracy", International Journal of Forecasting 16(4), 2000: the
    origin is rolled forward, so that what is forecast is never used.
    """
    found = []
    for last in range(len(sizes) - 2, LEAST_SIZES - 2, -1):
        its = slice(0, last + 1)
        segments = segmented(sizes[its], times[its], min(breaks, (last + 1) // LEAST_SIZES - 1))
        beyond = carried(segments, sizes[its], np.log(times[its]), sizes[last + 1 :]) - np.log(times[last + 1 :])
        carries = byte_share(segments[-1], sizes[last])
        for target, error in zip(sizes[last + 1 :], beyond, strict=True):
            found.append(Ahead(math.log2(target / sizes[last]), float(error), carries))
    return tuple(found)


def byte_share(segment: Segment, size: float) -> float:
    """The part of the time at a size that grows with it."""
    whole = _at(segment, size)
    return segment.per_byte_s * size / whole if whole > 0 else 0.0


def _replicates(log_times: Floats) -> Floats:
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


def _dips(curve: Curve) -> tuple[Dip, ...]:
    """Where the bandwidth S / t falls from one size to the next, runs of falls together."""
    rates = np.log(curve.sizes) - curve.log_times
    falls = rates[:, :-1] - rates[:, 1:]
    found: list[Dip] = []
    for place in range(len(curve.sizes) - 1):
        its = falls[~np.isnan(falls[:, place]), place]
        if not len(its):
            continue
        mean = float(its.mean())
        sure = float(np.std(its, ddof=1)) / math.sqrt(len(its)) if len(its) > 1 else 0.0
        if 1 - math.exp(-mean) < DIP or mean <= _DIP_SURE * sure:
            continue
        ends = int(curve.sizes[place]), int(curve.sizes[place + 1])
        fall = 1 - math.exp(-mean)
        if found and found[-1].to_bytes == ends[0]:
            before = found.pop()
            ends, fall = (before.from_bytes, ends[1]), 1 - (1 - before.fall) * (1 - fall)
        found.append(Dip(*ends, fall))
    return tuple(found)
