"""Fits and forecasts as text for a terminal, as JSON and as CSV."""

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from collbench.readers.bootstrap import LEVEL, Estimate
from collbench.readers.fit import Fit, estimates, root_mean_square
from collbench.readers.fit_rows import Floats
from collbench.readers.fitted import Fitted
from collbench.readers.forecast import ONE_LAUNCH, TWICE, UNTRIED, Forecast
from collbench.readers.forecast_range import on_hosts
from collbench.readers.over_ranks import Support
from collbench.units import about, format_duration, format_rate, format_size

FORMATS = ("text", "json", "csv")
_SHOWN_LAWS = 4
_NAMED = {
    "buffers": "{} sets of buffers",
    "root": "root {}",
    "pages": "{} pages",
    "buffer": "buffer {}",
    "group": "group {}",
    "topology": "topology {}",
}
"""What a number is said with in a title."""

Asked = Sequence[tuple[Fitted, Forecast]]


def fits_text(found: Sequence[Fitted], notes: Sequence[str]) -> str:
    """Each family: its segments, the errors of each size, and the laws over ranks."""
    lines = [f"note: {note}" for note in notes]
    for its in found:
        lines += [*([""] if lines else []), title(its)]
        for one in its.fits:
            lines += _curve(one)
        lines += _laws(its)
    lines += [
        "",
        "T(S) = alpha + S / B; n-half = alpha B. Intervals are of 95 %, over launches. Errors are of time, "
        "fit over measured.",
        "without it: the fit made without that size; forecast: what is answered for that size without it.",
    ]
    return "\n".join(lines) + "\n"


def forecasts_text(asked: Asked, notes: Sequence[str]) -> str:
    """A line for each forecast, and what must be known of it below."""
    lines = [f"note: {note}" for note in notes]
    shown: Fitted | None = None
    for its, one in asked:
        if its is not shown:
            lines += [title(its), *_errors_in_short(its)]
            shown = its
        ends = (
            "no interval"
            if one.low_s is None or one.high_s is None
            else f"[{format_duration(one.low_s)}, {format_duration(one.high_s)}]"
        )
        by = f", by the law {one.law}" if one.law else ""
        by = ", in the middle of the laws" if one.law == UNTRIED else by
        several = one.hosts > 1 or its.hosts[-1] > 1
        where = on_hosts(one.ranks, one.hosts) if several else f"{one.ranks} ranks"
        rate = format_rate(one.size_bytes / one.time_s)
        mark = "  EXTRAPOLATED" if one.extrapolated else ""
        size = format_size(one.size_bytes)
        lines.append(f"  {size:>10}  {where}: {format_duration(one.time_s)} {ends}, algbw {rate}{by}{mark}")
        lines += [f"              {text}" for text in one.marks]
    return "\n".join([*lines, *_level([ONE_LAUNCH in one.marks for _, one in asked])]) + "\n"


def _level(assumed: Sequence[bool]) -> list[str]:
    """What the intervals are of, by whether each rests on one launch."""
    said, but = (
        f"Intervals are of {LEVEL * 100:.0f} %, for the median of one more launch",
        ", but those from one launch",
    )
    lines = [] if all(assumed) else [f"{said}{but if any(assumed) else ''}."]
    if any(assumed):
        lines.append(
            f"From one launch the factor of {TWICE:g} is an assumption, and the interval none of confidence: two "
            "launches of one job on a virtual machine of two cores were within it in 54 to 86 % of cases. Measure "
            "several (--launches 5)."
        )
    return lines


def as_json(found: Sequence[Fitted], asked: Asked, notes: Sequence[str]) -> str:
    """All of it: seconds, bytes, bytes/s; errors are of time, fit over measured less 1."""
    content = {
        "level": LEVEL,
        "families": [_family_json(one) for one in found],
        "forecasts": [_setting(its) | dataclasses.asdict(one) for its, one in asked],
        "notes": list(notes),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def as_csv(found: Sequence[Fitted], asked: Asked | None) -> str:
    """A row for each forecast, or where none was asked for, one for each segment of a fit."""
    rows = list(_segment_rows(found)) if asked is None else [_forecast_row(its, one) for its, one in asked]
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def title(its: Fitted) -> str:
    """The family in words."""
    words = ("collective", "operation", "dtype", "placement", "root", "variant", "caller", "call", "mode", "sync")
    rest = ("buffer", "buffers", "pages", "pattern", "neighbour", "topology", "group")
    usual = {"compiled", "blocking", "library", "plain", "default", "alone", "world"}
    said = [
        _NAMED.get(name, "{}").format(value)
        for name in (*words, *rest)
        if (value := its.family.value(name)) and (name, value) != ("buffers", "1") and value not in usual
    ]
    by = " ".join(value for name in ("backend", "library", "device") if (value := its.family.value(name)))
    transport = its.family.value("transport")
    cores = its.family.value("cores")
    return f"{' '.join(said)} by {by}" + (f" over {transport}" if transport else "") + (f", {cores}" if cores else "")


def _curve(one: Fit) -> list[str]:
    curve = one.curve
    hosts = f" on {curve.hosts} hosts" if curve.hosts > 1 else ""
    many = f"{curve.launches} launches" if curve.launches > 1 else "1 launch, so no interval"
    over = ", in a launch of more ranks than cores" if curve.oversubscribed else ""
    lines = [f"  {curve.ranks} ranks{hosts}, {many}{over}:"]
    if curve.notes:
        lines[0] += f" {'; '.join(curve.notes)}"
    for segment, (alpha, bandwidth, half) in zip(one.segments, estimates(one), strict=True):
        if segment.first == segment.last:
            lines.append(f"    {_size(curve.sizes[0]):>20}: one size tells neither alpha nor B")
            continue
        ends = f"{_size(curve.sizes[segment.first])} to {_size(curve.sizes[segment.last])}"
        lines.append(
            f"    {ends:>20}: alpha {_shown(alpha, format_duration)}, B {_shown(bandwidth, format_rate)}, "
            f"n-half {_shown(half, lambda value: about(round(value)))}"
        )
    lines.append(f"    {'size':>10} {'measured':>10} {'fit':>10} {'error':>8} {'without it':>11} {'forecast':>9}")
    for place, (size, time) in enumerate(zip(curve.sizes, curve.times, strict=True)):
        cells = [_error(its, place) for its in (one.errors, one.held_out, one.carried)]
        fitted_s = time * math.exp(one.errors[place])
        lines.append(
            f"    {_size(size):>10} {format_duration(time):>10} {format_duration(fitted_s):>10} "
            f"{cells[0]:>8} {cells[1]:>11} {cells[2]:>9}"
        )
    parts = [f"fit {_rms(one.errors)}, at most {_percent(float(np.abs(np.expm1(one.errors)).max()))}"]
    parts += [] if one.held_out is None else [f"one size out {_rms(one.held_out)}"]
    parts += [] if one.carried is None else [f"of the forecast {_rms(one.carried)}"]
    tried = ", ".join(_percent(error) for error in one.by_breaks)
    parts += [f"one size out, mean absolute, with 0, 1, ... breakpoints {tried}"] if len(one.by_breaks) > 1 else []
    lines.append(f"    error (root mean square): {'; '.join(parts)}")
    lines += [
        f"    dip: the bandwidth falls by {_percent(dip.fall)} from {format_size(dip.from_bytes)} to "
        f"{format_size(dip.to_bytes)}, which no alpha and B can show"
        for dip in one.dips
    ]
    return lines


def _errors_in_short(its: Fitted) -> list[str]:
    """What every answer is to be read with: the hold-out errors."""
    told = []
    for one in its.fits:
        parts = [f"fit {_rms(one.errors)}"]
        parts += [] if one.held_out is None else [f"one size out {_rms(one.held_out)}"]
        parts += [] if one.carried is None else [f"of the forecast {_rms(one.carried)}"]
        hosts = f" on {one.curve.hosts} hosts" if one.curve.hosts > 1 else ""
        told.append(f"  errors on {one.curve.ranks} ranks{hosts}: {', '.join(parts)}")
    best = its.laws[0] if its.laws else None
    return told + ([f"  over ranks: {_law(best)}"] if best and best.error is not None else [])


def _laws(its: Fitted) -> list[str]:
    if not its.laws:
        return ["  no law over ranks is known for it"]
    if len(its.ranks) < 2:
        return ["  one number of ranks: no law over ranks can be told"]
    best = its.laws[0]
    lines = [f"  over ranks: {_law(best)}; {_parameters(best)}"]
    lines += [f"    one number of ranks out: {_by_ranks(best)}"]
    others = its.laws[1:_SHOWN_LAWS]
    lines += [f"    less well: {'; '.join(_law(one) for one in others)}"] if others else []
    return lines


def _law(one: Support) -> str:
    error = "not tried" if one.error is None else _percent(one.error)
    return f"{one.fitted.law.name} (hold-out error {error}, of its fit {_percent(one.misfit)})"


def _parameters(one: Support) -> str:
    tiers = [
        f"alpha {format_duration(alpha)}, B {format_rate(1 / per_byte) if per_byte else 'without bound'}"
        for alpha, per_byte in one.fitted.tiers
    ]
    base = f"base {format_duration(one.fitted.base_s)}, " if one.fitted.base_s else ""
    return base + "; between hosts ".join(tiers)


def _by_ranks(one: Support) -> str:
    told = [
        f"{ranks} ranks {_rms(errors)}, at most {_percent(float(np.abs(np.expm1(errors)).max()))}"
        for ranks, _, errors in one.held_out
        if len(errors)
    ]
    return "; ".join(told) or "no sizes in common"


def _setting(its: Fitted) -> dict[str, str]:
    return {name: value for name, value in its.family.setting if value}


def _family_json(its: Fitted) -> dict[str, Any]:
    laws = [
        {
            "law": one.fitted.law.name,
            "base_s": one.fitted.base_s,
            "tiers": [{"alpha_s": alpha, "per_byte_s": per_byte} for alpha, per_byte in one.fitted.tiers],
            "hold_out_error": one.error,
            "fit_error": one.misfit,
            "held_out": [
                {"ranks": ranks, "size_bytes": sizes.tolist(), "error": np.expm1(errors).tolist()}
                for ranks, sizes, errors in one.held_out
            ],
        }
        for one in its.laws
    ]
    return {"setting": _setting(its), "curves": [_curve_json(one) for one in its.fits], "laws": laws}


def _curve_json(one: Fit) -> dict[str, Any]:
    curve = one.curve
    segments = [
        {
            "from_bytes": int(curve.sizes[segment.first]),
            "to_bytes": int(curve.sizes[segment.last]),
            "alpha_s": dataclasses.asdict(alpha),
            "bandwidth_bytes_per_s": dataclasses.asdict(bandwidth),
            "half_size_bytes": dataclasses.asdict(half),
        }
        for segment, (alpha, bandwidth, half) in zip(one.segments, estimates(one), strict=True)
    ]
    return {
        "ranks": curve.ranks,
        "hosts": curve.hosts,
        "launches": curve.launches,
        "oversubscribed": curve.oversubscribed,
        "notes": list(curve.notes),
        "segments": segments,
        "size_bytes": [int(size) for size in curve.sizes],
        "time_s": curve.times.tolist(),
        "fit_error": np.expm1(one.errors).tolist(),
        "held_out_error": _list(one.held_out),
        "forecast_error": _list(one.carried),
        "hold_out_by_breakpoints": list(one.by_breaks),
        "dips": [dataclasses.asdict(dip) for dip in one.dips],
    }


def _segment_rows(found: Sequence[Fitted]) -> Iterator[dict[str, object]]:
    for its in found:
        for one in its.fits:
            for segment, estimated in zip(one.segments, estimates(one), strict=True):
                row = _columns(its) | {
                    "ranks": one.curve.ranks,
                    "hosts": one.curve.hosts,
                    "launches": one.curve.launches,
                    "oversubscribed": int(one.curve.oversubscribed),
                    "from_bytes": int(one.curve.sizes[segment.first]),
                    "to_bytes": int(one.curve.sizes[segment.last]),
                }
                for name, number in zip(("alpha_s", "bandwidth_Bps", "half_bytes"), estimated, strict=True):
                    row |= {name: number.value, f"{name}_low": number.low, f"{name}_high": number.high}
                row["fit_error_max"] = float(np.abs(np.expm1(one.errors)).max())
                row["hold_out_error_rms"] = None if one.held_out is None else root_mean_square(one.held_out)
                row["law"] = its.law
                yield row


def _forecast_row(its: Fitted, one: Forecast) -> dict[str, object]:
    values = dataclasses.asdict(one)
    values["extrapolated"] = int(one.extrapolated)
    values["marks"] = "; ".join(one.marks)
    return _columns(its) | values


def _columns(its: Fitted) -> dict[str, object]:
    return dict(its.family.setting)


def _list(errors: Floats | None) -> list[float] | None:
    return None if errors is None else np.expm1(errors).tolist()


def _shown(number: Estimate, form: Any) -> str:
    if number.value is None:
        return "without bound"
    if number.low is None and number.high is None:
        return str(form(number.value))
    ends = [form(end) if end is not None else "without bound" for end in (number.low, number.high)]
    return f"{form(number.value)} [{ends[0]}, {ends[1]}]"


def _error(errors: Floats | None, place: int) -> str:
    return "-" if errors is None else f"{np.expm1(errors[place]) * 100:+.1f} %"


def _rms(errors: Floats) -> str:
    return _percent(root_mean_square(errors))


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _size(size: float) -> str:
    return format_size(int(size))
