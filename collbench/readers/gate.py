"""The gate: is NEW slower than BASE, by the launches of both and at a stated error rate?

The unit is the launch. A case, or a size band (the geometric mean over its cases, launch by launch), is `slower` where
the lower bound of its ratio is above the threshold and what that adds is above the floor, `same` where the upper bound
is not above the threshold, or adds no more than the floor, `faster` where the upper bound is below the threshold's
inverse, and else `unclear`. Bands share half of the chance of a false alarm; the other half is for one slow case among
many that are not (`standing_out`). `docs/gates.md` says which error rate is controlled, and what it comes to.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collbench.errors import Ambiguous, ExpectationFailed, UsageError
from collbench.readers.gate_rows import BANDS, Launch, Paired, Side, matching, pair
from collbench.readers.inequalities import apart, durations, inequality, number, percent
from collbench.readers.shift import launches_needed, least_level, ratio
from collbench.readers.standing_out import Floats, adjusted, least
from collbench.record import Record
from collbench.units import format_size

FALSE_ALARMS = 0.05
"""Chance that at least one decision of a comparison is a false `slower`; each of n decisions has a n-th of it."""
SHARE_OF_ONE_CASE = 0.5
"""Of the false alarms: the search for one slow case among many that are not has it, and the bands share the rest."""
CASE_LEVEL = 0.05
"""Level on either side of a case that is only listed: of twenty such, one looks slower by chance."""
ONE_CASE = "any one case"
_SHOWN = 5
_LEAST_FOR_COMMON = 3
"""Cases of a band whose median says what they have in common: of two, half of what one has."""
_LEAST_FOR_SPREAD = 3
"""Launches of BASE from which its spread is told."""


@dataclass(frozen=True)
class Rules:
    """What is a slowdown: more than `threshold` (0.1 is 10 % more time) and more than `floor_s`."""

    threshold: float = 0.10
    floor_s: float = 1e-6
    across: tuple[str, ...] = ()
    bands: tuple[str, ...] = BANDS
    cases: tuple[str, ...] = ()
    looks: int = 1
    """How often one looks at growing numbers of launches, at the most: each look has that part of the error."""


@dataclass(frozen=True)
class Verdict:
    """On a case or a band: `word` is same, slower, faster, unclear, missing or new; `said` the inequality that made it.

    `ratio` is NEW's time over BASE's, `added_s` what that is in seconds; `level` the chance of a miss on either side.
    """

    name: str
    word: str
    said: str
    band: str
    launches: tuple[int, int] = (0, 0)
    level: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    base_s: float | None = None
    new_s: float | None = None
    added_s: float | None = None
    notes: str = ""
    case_id: str = ""


@dataclass(frozen=True)
class Change:
    """What became of a case of a band: its time in BASE, and NEW's over it, as the gate tells it."""

    size: str
    base_s: float
    ratio: float

    @property
    def added_s(self) -> float:
        """By how much it is longer, in seconds."""
        return self.base_s * (self.ratio - 1)


@dataclass(frozen=True)
class Comparison:
    """The decisions that make the overall verdict, and all cases as where to look."""

    rules: Rules
    by: str
    decisions: tuple[Verdict, ...]
    cases: tuple[Verdict, ...]
    level: float
    """Of each decision, on either side."""
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[Verdict, ...]:
        """Cases that BASE has and NEW has not."""
        return tuple(one for one in self.cases if one.word == "missing")

    @property
    def word(self) -> str:
        """The overall verdict: what is worst of slower, missing, unclear, then same, then faster."""
        quiet = [one for one in self.decisions if one.name != ONE_CASE or one.word != "same"]
        words = {one.word for one in (*quiet, *self.missing)}
        return next(word for word in ("slower", "missing", "unclear", "same", "faster") if word in words)

    @property
    def exit_code(self) -> int:
        """0 for same and faster, 5 for slower and missing, 6 for unclear."""
        return {"slower": ExpectationFailed.exit_code, "missing": ExpectationFailed.exit_code}.get(
            self.word, Ambiguous.exit_code if self.word == "unclear" else 0
        )


def compare(
    base: Sequence[Record], new: Sequence[Record], rules: Rules | None = None, notes: Sequence[str] = ()
) -> Comparison:
    """Judge NEW by BASE: by size bands, or by the cases that the rules name."""
    rules = rules or Rules()
    paired = [one for one in pair(base, new, rules.across) if one.band in rules.bands]
    if rules.cases:
        paired = matching(paired, rules.cases)
    gate = [one for one in paired if one.base is not None and one.base.times]
    if not gate:
        raise UsageError(
            f"compare: BASE: got no time of a case in {' or '.join(rules.bands)}, expected one to compare with; "
            "measure it, or name other --bands"
        )
    if rules.cases:
        level = level_of(rules, len(gate))
        decisions = [_case(one, level, rules) for one in gate]
        named = {one.name for one in gate}
        others = [_case(one, CASE_LEVEL, rules) for one in paired if one.name not in named]
        kept = [one for one in decisions if one.word != "missing"]
        return Comparison(rules, "cases", tuple(kept), (*decisions, *others), level, tuple(notes))
    present = [band for band in BANDS if any(one.band == band for one in gate)]
    level = level_of(rules, len(present))
    bands = [_band(band, [one for one in gate if one.band == band], level, rules) for band in present]
    bands += [_one_case(gate, FALSE_ALARMS * SHARE_OF_ONE_CASE / rules.looks, rules)]
    cases = [_case(one, CASE_LEVEL, rules) for one in paired]
    return Comparison(rules, "bands", tuple(bands), tuple(cases), level, tuple(notes))


def level_of(rules: Rules, decisions: int) -> float:
    """The level of each of so many cases that are named, or else bands, on either side of its interval at one look."""
    return FALSE_ALARMS * (1.0 if rules.cases else 1 - SHARE_OF_ONE_CASE) / decisions / rules.looks


def _case(one: Paired, level: float, rules: Rules) -> Verdict:
    base, new = one.base, one.new
    verdict = Verdict(one.label, "unclear", "", one.band, notes=one.doubts, case_id=one.row.case_id)
    if base is None or not base.times:
        why = "BASE has no row of it" if base is None else f"BASE has no time of it ({base.failed})"
        return replace(verdict, word="new", said=why)
    if new is None:
        said = f"NEW skipped it: {one.skipped}" if one.skipped else "NEW has no row of it"
        return replace(verdict, word="missing", said=said)
    if new.failed:
        return replace(verdict, word="missing", said=f"NEW has not all of its times: {new.failed}")
    if over := _oversubscribed(base, new):
        return replace(verdict, said=over, launches=(len(base.times), len(new.times)))
    return _judged(list(base.times.values()), list(new.times.values()), level, rules, verdict)


def _band(band: str, gate: Sequence[Paired], level: float, rules: Rules) -> Verdict:
    """Judge the geometric mean over a band's cases of each launch; it is not `same` without one that BASE lacks."""
    whole = _whole(gate)
    verdict = Verdict(band, "unclear", "", band, notes=f"{len(whole)} of {len(gate)} cases")
    if not whole:
        return replace(verdict, said=_why_none(gate))
    base, new = (
        [_mean(of_launch) for of_launch in zip(*(_in_order(sides[at].times) for _, *sides in whole), strict=True)]
        for at in (0, 1)
    )
    verdict = _judged(base, new, level, rules, verdict, [_change(*its) for its in whole])
    without = [one for one in gate if one.new and not one.new.failed and one not in [its for its, *_ in whole]]
    if without and verdict.word in ("same", "faster"):
        its = without[0]
        over = _oversubscribed(its.base, its.new) if its.base and its.new else ""
        why = f" ({its.base.failed})" if its.base and its.base.failed else ""
        said = f"{verdict.said}, but without {its.label}, " + (over or f"of which BASE has not all times{why}")
        said += f" and {len(without) - 1} more" if without[1:] else ""
        remedy = "give each rank a core" if over else "finish BASE with --resume"
        return replace(verdict, word="unclear", said=f"{said}; {remedy}, or name --case")
    return verdict


def _change(one: Paired, base: Side, new: Side) -> Change:
    times = list(base.times.values()), list(new.times.values())
    return Change(format_size(one.row.size_bytes or 0), statistics.median(times[0]), ratio(*times, CASE_LEVEL).middle)


def _one_case(gate: Sequence[Paired], level: float, rules: Rules) -> Verdict:
    """Look for single cases that are slower, which a band of many would hide."""
    whole = _whole(gate)
    verdict = Verdict(ONE_CASE, "unclear", "", "", notes=f"{len(whole)} of {len(gate)} cases", level=level)
    if not whole:
        return replace(verdict, said=_why_none(gate))
    base, new = (np.array([_in_order(sides[at].times) for _, *sides in whole]).T for at in (0, 1))
    verdict = replace(verdict, launches=(len(base), len(new)))
    if (reached := least(len(base), len(new))) > level:
        return replace(verdict, said=_too_few(len(base), len(new), reached, level))
    logs, allowed, of_bands = (np.log(base), np.log(new)), math.log1p(rules.threshold), [one.band for one, *_ in whole]
    beside = adjusted(*_beside(*logs, of_bands), allowed)
    # Where others got faster, one that did not stands out too; so it must be slower by itself as well.
    taken = np.array([of_bands.count(band) >= _LEAST_FOR_COMMON for band in of_bands])
    chances = np.where(taken, np.maximum(beside, adjusted(*logs, allowed)), beside)
    ratios = np.median(new, axis=0) / np.median(base, axis=0)
    added = np.median(base, axis=0) * (ratios - 1)
    limit = 1 + rules.threshold
    order = sorted(range(len(whole)), key=lambda at: (chances[at], beside[at], -ratios[at]))
    large = [at for at in order if ratios[at] > limit and added[at] > rules.floor_s]
    slow = [at for at in large if chances[at] <= level]
    aside = [at for at in large if beside[at] <= level]
    at = (slow or aside or order)[0]
    label, sign = whole[at][0].label, "<=" if beside[at] <= level else ">"
    said = f"{label}: chance {beside[at]:.3g} {sign} {level:.3g} that any would stand out so"
    its, more = float(ratios[at]), [whole[other][0].label for other in slow[1:]]
    added_s, floor = durations(float(added[at]), rules.floor_s)
    if slow:
        over = inequality(its, ">", limit)
        said += f", {over} and {added_s} > {floor} ({percent(its)})"
        said += "".join(f"; also {one}" for one in more[:_SHOWN]) + (
            f"; and {len(more) - _SHOWN} more" if more[_SHOWN:] else ""
        )
    elif aside:
        said += f" from its band, but {chances[at]:.3g} > {level:.3g} that any would be {percent(its)} by itself"
    elif sign == "<=":
        said += ", but "
        said += inequality(its, "<=", limit) if its <= limit else f"{added_s} <= {floor}"
    return replace(
        verdict,
        word="slower" if slow else "unclear" if aside else "same",
        said=said,
        ratio=float(ratios[at]),
        base_s=float(np.median(base[:, at])),
        new_s=float(np.median(new[:, at])),
        added_s=float(added[at]),
        case_id=whole[at][0].row.case_id,
    )


def _beside(base: Floats, new: Floats, bands: Sequence[str]) -> tuple[Floats, Floats]:
    """Take from logarithms, launches x cases, what the cases of a band have in common in each launch: their median."""
    sides = base.copy(), new.copy()
    for band in set(bands):
        its = [at for at, one in enumerate(bands) if one == band]
        if len(its) >= _LEAST_FOR_COMMON:
            for side in sides:
                side[:, its] -= np.median(side[:, its], axis=1, keepdims=True)
    return sides


def _whole(gate: Sequence[Paired]) -> list[tuple[Paired, Side, Side]]:
    """The cases that have a time in every launch of both sides that any of them has."""
    both = [
        (one, one.base, one.new)
        for one in gate
        if one.base and one.new and one.new.times and not _oversubscribed(one.base, one.new)
    ]
    launches = [sorted({launch for _, *sides in both for launch in sides[at].times}) for at in (0, 1)]
    return [sides for sides in both if [sorted(side.times) for side in sides[1:]] == launches]


def _why_none(gate: Sequence[Paired]) -> str:
    reasons = [_oversubscribed(one.base, one.new) for one in gate if one.base and one.new]
    return next(filter(None, reasons), "no case has a time in every launch of both sides")


def _in_order(times: Mapping[Launch, float]) -> list[float]:
    return [times[launch] for launch in sorted(times)]


def _judged(
    base: Sequence[float],
    new: Sequence[float],
    level: float,
    rules: Rules,
    verdict: Verdict,
    of: Sequence[Change] = (),
) -> Verdict:
    """Decide by the interval; `of` are the cases of a band, whose ratio is told in seconds of one of them."""
    found = ratio(base, new, level)
    at = _told_of(of, found.middle, rules) if of else Change("", statistics.median(base), found.middle)
    longest = max((one.base_s for one in of), default=at.base_s)
    word, said = _decided(found.middle, found.low, found.high, at, longest, rules)
    if found.low is None:
        said = _without_interval(base, new, found.middle, level, rules)
    return replace(
        verdict,
        word=word,
        said=said,
        launches=(len(base), len(new)),
        level=level,
        ratio=found.middle,
        low=found.low,
        high=found.high,
        base_s=at.base_s,
        new_s=at.base_s * at.ratio,
        added_s=at.added_s,
    )


def _told_of(cases: Sequence[Change], middle: float, rules: Rules) -> Change:
    """The case that changed the most, in seconds and the way its band did: of those beyond the threshold if any is."""
    sign = 1 if middle >= 1 else -1
    beyond = [one for one in cases if sign * math.log(one.ratio) > math.log1p(rules.threshold)]
    return max(beyond or cases, key=lambda one: sign * one.added_s)


def _decided(
    middle: float, low: float | None, high: float | None, at: Change, longest: float, rules: Rules
) -> tuple[str, str]:
    """Return the word and the inequality that was evaluated."""
    if low is None or high is None:
        return "unclear", ""
    limit, inverse = 1 + rules.threshold, 1 / (1 + rules.threshold)
    shown = f"{middle:.2f} [{number(low)}, {number(high)}]"
    where, most = f" at {at.size}" if at.size else "", longest * (high - 1)
    if low > limit:
        over = inequality(low, ">", limit)
        more, floor = durations(at.added_s, rules.floor_s)
        if at.added_s > rules.floor_s:
            return "slower", f"{shown}: {over} and {more}{where} > {floor} ({percent(middle)})"
        most = at.base_s * (high - 1)
        if most <= rules.floor_s:
            return "same", f"{shown}: {over} but {more}{where} <= {floor}"
        upper = durations(most, rules.floor_s)[0]
        return "unclear", f"{shown}: {over} but {more}{where} <= {floor} < {upper}, its upper bound"
    if high < inverse and -at.added_s > rules.floor_s:
        under, (less, floor) = inequality(high, "<", inverse), durations(at.added_s, -rules.floor_s)
        return "faster", f"{shown}: {under} and {less}{where} < {floor} ({percent(middle)})"
    if high <= limit:
        return "same", f"{shown}: {inequality(high, '<=', limit)}"
    if most <= rules.floor_s:
        more, floor = durations(most, rules.floor_s)
        return "same", f"{shown}: at most {more}{' at its longest' if where else ''} <= {floor}"
    return "unclear", f"{shown}: {inequality(low, '<=', limit)} < {apart(high, limit)[0]}"


def _too_few(base: int, new: int, reached: float, level: float) -> str:
    return (
        f"{_launches(base)} and {_launches(new)} reach a level of {reached:.3g} > {level:.3g}; "
        f"{launches_needed(level)} launches a side would do"
    )


def _without_interval(base: Sequence[float], new: Sequence[float], middle: float, level: float, rules: Rules) -> str:
    """Say why there is no interval, and what the spread of BASE's launches makes of NEW's."""
    least_here = least_level(len(base), len(new))
    said = f"{middle:.2f}, no interval: {_too_few(len(base), len(new), least_here, level)}"
    if len(base) < _LEAST_FOR_SPREAD:
        return said
    if min(new) > (1 + rules.threshold) * max(base):
        beyond = inequality(min(new) / max(base), ">", 1 + rules.threshold)
        return f"{said}; beyond all launches of BASE ({beyond}), so start more"
    return f"{said}; BASE's own launches differ by {max(base) / min(base):.3g}"


def _oversubscribed(base: Side, new: Side) -> str:
    which = [name for name, side in (("BASE", base), ("NEW", new)) if side.oversubscribed]
    return f"oversubscribed in {' and '.join(which)}: ranks shared cores, which no gate decides by" if which else ""


def _mean(times: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, times)))


def _launches(count: int) -> str:
    return f"{count} launch{'es' if count != 1 else ''}"
