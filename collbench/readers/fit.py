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
from collbench.readers.bootstrap import Estimate, interval, replicates
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
    sizes, times = curve.sizes, curve.times
    lines = Lines(sizes, times)
    most = min(MOST_BREAKS, len(sizes) // LEAST_SIZES - 1)
    tried = [_one_out(lines, count) for count in range(max(most, 0) + 1)]
    chosen = _chosen([its for its in tried if its is not None]) if breaks is None else breaks
    segments = lines.best(chosen, range(len(sizes)))
    held_out = tried[chosen] if chosen < len(tried) else None
    return Fit(
        curve,
        segments,
        np.log(line(segments, sizes, sizes)) - np.log(times),
        held_out,
        _carried_out(sizes, times, segments),
        _ahead(lines, chosen),
        replicates(curve.log_times),
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


class Lines:
    """Lines over stretches of sizes, each solved once: the hold-outs share most of them."""

    def __init__(self, sizes: Floats, times: Floats) -> None:
        self.sizes, self.times = sizes, times
        self._known: dict[tuple[int, int, int | None], tuple[float, float, float]] = {}

    def best(self, breaks: int, kept: Sequence[int], out: int | None = None) -> tuple[Segment, ...]:
        """Segments (positions within `kept`) of least squares of relative errors over all places for breakpoints."""
        count = len(kept)
        best, chosen = math.inf, None
        for inner in itertools.combinations(range(LEAST_SIZES, count - LEAST_SIZES + 1), breaks):
            ends = list(itertools.pairwise((0, *inner, count)))
            if breaks and any(after - before < LEAST_SIZES for before, after in ends):
                continue
            cost = sum(self._line(kept[before], kept[after - 1], out)[0] for before, after in ends)
            if cost < best or chosen is None:
                best, chosen = cost, ends
        if chosen is None:
            raise ValueError(f"segments: got {count} sizes, expected {LEAST_SIZES} for each of {breaks + 1} segments")
        return tuple(
            Segment(before, after - 1, *self._line(kept[before], kept[after - 1], out)[1:]) for before, after in chosen
        )

    def _line(self, first: int, last: int, out: int | None) -> tuple[float, float, float]:
        """Cost, alpha and 1 / B of the sizes from `first` to `last` without `out`."""
        inside = out if out is not None and first < out < last else None
        key = first, last, inside
        if key not in self._known:
            its = [place for place in range(first, last + 1) if place != inside]
            alpha, per_byte = _line_of(self.sizes[its], self.times[its])
            errors = (alpha + per_byte * self.sizes[its]) / self.times[its] - 1
            self._known[key] = float(errors @ errors), alpha, per_byte
        return self._known[key]


def segmented(sizes: Floats, times: Floats, breaks: int) -> tuple[Segment, ...]:
    """The best segments for this number of breakpoints."""
    return Lines(sizes, times).best(breaks, range(len(sizes)))


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


@functools.lru_cache(maxsize=1024)
def drawn(found: Fit) -> tuple[tuple[tuple[Segment, ...], Floats], ...]:
    """Segments of each replicate that has all sizes, and how its times lie off them, in logarithms."""
    sizes = found.curve.sizes
    result = []
    for row in found.replicates:
        if not np.isnan(row).any():
            segments = refitted(found, row)
            result.append((segments, row - np.log(line(segments, sizes, sizes))))
    return tuple(result)


def estimates(found: Fit) -> tuple[tuple[Estimate, Estimate, Estimate], ...]:
    """alpha in seconds, B in bytes/s and the half-performance size alpha x B in bytes, of each segment.

    One size tells none of them.
    """
    launches = found.curve.launches
    replicates = [refitted(found, row) for row in found.replicates] if launches > 1 else []
    result = []
    for place, segment in enumerate(found.segments):
        if segment.first == segment.last:
            result.append((Estimate(None), Estimate(None), Estimate(None)))
            continue
        its = [replicate[place] for replicate in replicates]
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


def root_mean_square(errors: Floats | Sequence[float]) -> float:
    """Of errors, as one number."""
    return float(np.sqrt(np.mean(np.square(errors)))) if len(errors) else 0.0


def _at(segment: Segment, size: float) -> float:
    return segment.alpha_s + segment.per_byte_s * size


def _line_of(sizes: Floats, times: Floats) -> tuple[float, float]:
    alpha, per_byte = relative([np.ones(len(sizes)), sizes], times)
    return float(alpha), float(per_byte)


def _one_out(lines: Lines, breaks: int) -> Floats | None:
    """Errors of the line at each size that it was fitted without, its breakpoints too; None with too few sizes."""
    sizes, times = lines.sizes, lines.times
    if len(sizes) <= LEAST_SIZES * (breaks + 1):
        return None
    errors = np.empty(len(sizes))
    for out in range(len(sizes)):
        kept = [place for place in range(len(sizes)) if place != out]
        value = line(lines.best(breaks, kept, out), sizes[kept], sizes[out : out + 1])[0]
        errors[out] = math.log(value / times[out])
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


def _ahead(lines: Lines, breaks: int) -> tuple[Ahead, ...]:
    """Forecast from the smaller sizes alone, for every size that they may end at and every larger one.

    L. J. Tashman, "Out-of-sample tests of forecasting accuracy", International Journal of Forecasting 16(4), 2000: the
    origin is rolled forward, so that what is forecast is never used.
    """
    sizes, times = lines.sizes, lines.times
    found = []
    for last in range(len(sizes) - 2, LEAST_SIZES - 2, -1):
        its = slice(0, last + 1)
        segments = lines.best(min(breaks, (last + 1) // LEAST_SIZES - 1), range(last + 1))
        beyond = carried(segments, sizes[its], np.log(times[its]), sizes[last + 1 :]) - np.log(times[last + 1 :])
        carries = byte_share(segments[-1], sizes[last])
        for target, error in zip(sizes[last + 1 :], beyond, strict=True):
            found.append(Ahead(math.log2(target / sizes[last]), float(error), carries))
    return tuple(found)


def byte_share(segment: Segment, size: float) -> float:
    """The part of the time at a size that grows with it."""
    whole = _at(segment, size)
    return segment.per_byte_s * size / whole if whole > 0 else 0.0


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
