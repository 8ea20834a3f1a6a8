"""A comparison as a table for a terminal, as JSON, and as Markdown for a pull request."""

import dataclasses
import json
from collections.abc import Sequence

from collbench.readers.gate import CASE_LEVEL, FALSE_ALARMS, ONE_CASE, SHARE_OF_ONE_CASE, Comparison, Verdict
from collbench.units import format_duration

FORMATS = ("text", "json", "markdown")

_ORDER = ("slower", "missing", "unclear", "faster", "new", "same")
_RATIOS = (
    "Ratios and percentages are of time, NEW over BASE: 0.76 is 24 % less time, which is 1.3 times the speed. "
    "A case has the median of each launch; a band their geometric mean over its cases."
)


def text(found: Comparison) -> str:
    """A table for a terminal; the cases that are the same are counted, not listed."""
    lines = [f"note: {note}" for note in found.notes]
    shown = [_cells(one) for one in found.decisions]
    listed = _listed(found)
    cases = [_cells(one) for one in listed]
    width = max((len(cells[0]) for cells in shown + cases), default=0)
    lines += [f"by {found.by}, {_rate(found)}:"]
    lines += [_line(cells, width) for cells in shown]
    if listed:
        lines += [f"where to look, {_case_rate(found)}:", *(_line(cells, width) for cells in cases)]
    lines += [_counts(found), _RATIOS, f"overall: {found.word} (exit code {found.exit_code})"]
    return "\n".join(lines) + "\n"


def as_json(found: Comparison) -> str:
    """All of it; times are in seconds, levels are of either side of an interval."""
    content = {
        "overall": found.word,
        "exit_code": found.exit_code,
        "false_alarms": FALSE_ALARMS,
        "decided_by": found.by,
        "level": found.level,
        "looks": found.rules.looks,
        "threshold": found.rules.threshold,
        "floor_s": found.rules.floor_s,
        "across": list(found.rules.across),
        "decisions": [dataclasses.asdict(one) for one in found.decisions],
        "cases": [dataclasses.asdict(one) for one in found.cases],
        "notes": list(found.notes),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def markdown(found: Comparison) -> str:
    """For a comment of a pull request: the decisions, and the cases that are not the same behind a fold."""
    mark = {0: "passed", 5: "failed", 6: "undecided"}[found.exit_code]
    lines = [f"### collbench: {found.word} ({mark})", "", f"By {found.by}, {_rate(found)}.", ""]
    lines += _markdown_table(found.decisions)
    listed = _listed(found)
    if listed:
        lines += ["", f"<details><summary>Where to look ({len(listed)} cases), {_case_rate(found)}</summary>", ""]
        lines += [*_markdown_table(listed), "", "</details>"]
    lines += ["", _counts(found), "", *(f"- {_escaped(note)}" for note in found.notes), *([""] if found.notes else [])]
    return "\n".join([*lines, _RATIOS]) + "\n"


def written(found: Comparison, form: str) -> str:
    """In one of `FORMATS`."""
    return {"text": text, "json": as_json, "markdown": markdown}[form](found)


def _listed(found: Comparison) -> list[Verdict]:
    decided = set(found.decisions)
    kept = [one for one in found.cases if one.word != "same" and one not in decided]
    return sorted(kept, key=lambda one: _ORDER.index(one.word))


def _rate(found: Comparison) -> str:
    bands = [one for one in found.decisions if one.name != ONE_CASE]
    each = f"{found.level * 100:.3g} % for each of {len(bands)}"
    looks = found.rules.looks
    rest = FALSE_ALARMS * SHARE_OF_ONE_CASE * 100 / looks
    more = "" if len(bands) == len(found.decisions) else f", {rest:.3g} % for any one case"
    often = f", at each of at most {looks} looks" if looks > 1 else ""
    return f"at most {FALSE_ALARMS * 100:.0f} % false alarms in all (Bonferroni: {each}{more}{often})"


def _case_rate(found: Comparison) -> str:
    return f"each case by itself at {CASE_LEVEL * 100:.0f} % a side, which decides nothing"


def _counts(found: Comparison) -> str:
    words = [one.word for one in found.cases]
    return f"{len(words)} cases: " + ", ".join(f"{words.count(word)} {word}" for word in _ORDER if word in words)


def _cells(one: Verdict) -> tuple[str, str, str, str]:
    launches = f"{one.launches[0]}/{one.launches[1]}" if any(one.launches) else "-"
    return one.name, launches, one.word, one.said + (f" ({one.notes})" if one.notes else "")


def _line(cells: Sequence[str], width: int) -> str:
    name, launches, word, said = cells
    return f"  {name:{width}}  {launches:>5}  {word}: {said}"


def _markdown_table(verdicts: Sequence[Verdict]) -> list[str]:
    lines = ["| | verdict | BASE | NEW | launches | what was evaluated |", "|---|---|---:|---:|---|---|"]
    for one in verdicts:
        times = ["-" if time is None else format_duration(time) for time in (one.base_s, one.new_s)]
        name, launches, word, said = map(_escaped, _cells(one))
        lines.append(f"| {name} | **{word}** | {times[0]} | {times[1]} | {launches} | {said} |")
    return lines


def _escaped(text: str) -> str:
    """As a cell of a table holds it: a bar would end the cell, and < begin a tag."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
