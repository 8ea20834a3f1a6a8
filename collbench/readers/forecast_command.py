"""`collbench forecast`: from results to fits, and to what operations will take."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import UsageError
from collbench.output import complain, deliver
from collbench.readers.fitted import Fitted, fitted
from collbench.readers.forecast import Forecast, forecast
from collbench.readers.forecast_range import Refusal, nearest_refusal
from collbench.readers.forecast_rows import gather
from collbench.readers.forecast_text import as_csv, as_json, fits_text, forecasts_text
from collbench.record import Record
from collbench.replay import NAME as REPLAY
from collbench.units import parse_size

_WHERE = ("topology", "group", "cores", "transport")
"""What of a setting is about the place of its ranks."""

_NOT_FITTED = {
    "barrier": "a barrier has no size, so there is nothing to fit",
    REPLAY: "a replay is of several sizes at once, and --replay holds it against a forecast",
}
"""Why there is no fit over sizes."""


@dataclass(frozen=True)
class ForecastOptions:
    """The command line."""

    results: tuple[Path, ...]
    at: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    hosts: int | None = None
    collectives: tuple[str, ...] = ()
    extrapolate: bool = False
    form: str = "text"


def command(options: ForecastOptions) -> int:
    """Fit, answer what was asked, print, and return the exit code."""
    sizes = [_size(text) for text in options.at]
    if not sizes and (options.ranks or options.hosts or options.extrapolate):
        raise UsageError('forecast: got --ranks, --hosts or --extrapolate, expected them with --at; say --at "1 MiB"')
    gathered = gather(options.results)
    found = fits_of(gathered.rows, options.results, options.collectives)
    notes = [*gathered.notes, *_notes(found)]
    if not sizes:
        asked: list[tuple[Fitted, Forecast]] | None = None
    else:
        asked, refused = _answers(found, sizes, options)
        notes += refused
    if options.form == "json":
        deliver(as_json(found, asked or [], notes))
    elif options.form == "csv":
        deliver(as_csv(found, asked))
        for note in notes:  # a CSV has no place for them
            complain(f"note: {note}")
    else:
        deliver(fits_text(found, notes) if asked is None else forecasts_text(asked, notes))
    return 0


def fits_of(records: Sequence[Record], paths: Sequence[Path], collectives: Sequence[str] = ()) -> tuple[Fitted, ...]:
    """Fit what the rows, from these paths, have of these collectives (all where none is named)."""
    known = sorted({row.collective for row in records if row.collective})
    for name in collectives:
        if name not in known:
            raise UsageError(f"forecast: --collective: got {name}, expected one of {', '.join(known)}, as measured")
    found = fitted(row for row in records if not collectives or row.collective in collectives)
    if not found:
        places, timed = ", ".join(map(str, paths)), _timed(records, collectives)
        if timed:
            why = "; ".join(_NOT_FITTED[name] for name in timed if name in _NOT_FITTED) or "they have no size"
            expected = "those of a collective at several sizes"
            raise UsageError(f"{places}: got times of {', '.join(timed)} alone, expected {expected}; {why}")
        raise UsageError(f"{places}: got no row with a size and a time, expected results of collectives; measure some")
    return found


def _timed(records: Sequence[Record], collectives: Sequence[str]) -> list[str]:
    """What there are times of, of these collectives (of all where none is named)."""
    its = (row for row in records if row.status == "ok" and row.time_p50_s)
    return sorted(
        {row.collective for row in its if row.collective and row.collective in (collectives or (row.collective,))}
    )


def _answers(
    found: Sequence[Fitted], sizes: Sequence[int], options: ForecastOptions
) -> tuple[list[tuple[Fitted, Forecast]], list[str]]:
    """The forecasts, and why others are refused; raise where all are.

    A question is refused aloud only where no family answers it that differs in nothing but where its ranks are.
    """
    answers: list[tuple[Fitted, Forecast]] = []
    refused: list[tuple[tuple[object, ...], Refusal]] = []
    for its in found:
        for ranks in dict.fromkeys(options.ranks or its.ranks):
            for size in dict.fromkeys(sizes):
                try:
                    answers.append((its, forecast(its, size, ranks, options.hosts, options.extrapolate)))
                except UsageError as error:
                    refused.append((_question(its, size, ranks), Refusal(its, size, ranks, options.hosts, error)))
    if not answers:
        raise nearest_refusal([one for _, one in refused])
    answered = {_question(its, one.size_bytes, one.ranks) for its, one in answers}
    unanswered: dict[tuple[object, ...], list[Refusal]] = {}
    for what, one in refused:
        if what not in answered:
            unanswered.setdefault(what, []).append(one)
    return answers, list(dict.fromkeys(f"refused: {nearest_refusal(each)}" for each in unanswered.values()))


def _question(its: Fitted, size: int, ranks: int) -> tuple[object, ...]:
    setting = tuple((name, value) for name, value in its.family.setting if name not in _WHERE)
    return setting, size, ranks


def _notes(found: Sequence[Fitted]) -> list[str]:
    over = sum(one.curve.oversubscribed for its in found for one in its.fits)
    total = sum(len(its.fits) for its in found)
    if not over:
        return []
    what = f"{over} of {total} curves are from launches of more ranks than cores"
    return [f"{what}: the scheduler is part of their times"]


def _size(text: str) -> int:
    try:
        size = parse_size(text) if text.strip("0") else 0
    except ValueError as error:
        raise UsageError(f"forecast: --at: {error}") from error
    if not size:
        raise UsageError(f'forecast: --at: got {text}, expected at least 1 B; write e.g. "1 MiB"')
    return size
