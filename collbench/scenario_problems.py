"""What is wrong with a scenario file, one sentence for each problem, in words of ours.

A sentence is `file: field: got X, expected Y; remedy`. Where a check left the remedy out, the key's example is one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import ErrorDetails

from collbench.scenario import nearest
from collbench.units import shown

# How each branch of `sizes` is called in pydantic's locations (sweep, number, sizes, branch); no part of the file.
SIZE_LIST, SIZE_FACTOR, SIZE_STEP = "<list>", "<factor>", "<step>"
_BRANCHES, _BRANCH_AT = {SIZE_LIST, SIZE_FACTOR, SIZE_STEP}, 3

_TABLES = {"sweep": "[[sweep]]", "variant": "[[variant]]", "measure": "[measure]", "expect": "[expect]"}
_MISSING = {"sweep": "at least one [[sweep]] table", "factor": "factor or step", "schema": "the whole number 1"}
_WRITE = {"sweep": "write [[sweep]] with its collectives and sizes", "schema": "write schema = 1"}


@dataclass(frozen=True)
class Known:
    """What a sentence is made with.

    `examples` holds what to write for a key, `keys` the keys of a table by the table's own key ("" is the file);
    `fits_in_a_list` says whether the value at a place would be right as the only one of a list.
    """

    examples: Mapping[str, str]
    keys: Mapping[str, Sequence[str]]
    fits_in_a_list: Callable[[Sequence[str | int]], bool]


def without_misspelt(problems: list[ErrorDetails], keys: Mapping[str, Sequence[str]]) -> list[ErrorDetails]:
    """Leave out that a key is missing where it is only misspelt: one mistake is one sentence."""
    meant = set()
    for problem in problems:
        if problem["type"] == "extra_forbidden":
            *parents, key = problem["loc"]
            table = _table_of(problem["loc"])
            near = nearest(str(key), keys[table], "")
            # Without a step the table is taken for one by factor.
            names = ("factor" if name == "step" and table == SIZE_FACTOR else name for name in keys[table])
            meant |= {(*parents, name) for name, said in zip(names, keys[table], strict=True) if f" {said}?" in near}
    return [problem for problem in problems if problem["type"] != "missing" or problem["loc"] not in meant]


def sentence(problem: ErrorDetails, document: object, known: Known) -> str:
    """Write a problem that pydantic reports as `field: got X, expected Y; remedy`."""
    examples, keys = known.examples, known.keys
    said: Mapping[str, Any] = problem.get("ctx", {})
    parts = (*problem["loc"], *said.get("at", ()))
    place = [part for index, part in enumerate(parts) if index != _BRANCH_AT or part not in _BRANCHES]
    path, value = _followed(document, place)
    where = _where(path)
    if problem["type"] == "sentence":
        return f"{where}: {said['sentence']}"
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    got, expected, remedy = shown(value), "another value", ""
    match problem["type"]:
        case "refused":
            got, expected, remedy = said["got"] or got, said["expected"], said["remedy"]
        case "missing":
            got, expected, remedy = "nothing", _MISSING.get(key, "a value"), _WRITE.get(key, "")
        case "extra_forbidden":
            table = _table_of(parts)
            got, expected = "an unknown key", f"one of {', '.join(keys[table])}"
            remedy = nearest(key, keys[table], "remove it")
            if key == "step" and table == SIZE_FACTOR:
                got, expected, remedy = "factor and step", "one of them", "remove the other"
        case "list_type" if key in _TABLES:
            expected, remedy = "a list of tables", f"write {_TABLES[key]}"
            remedy += f" in place of [{key}]" if isinstance(value, dict) else " and its keys below"
        case "list_type" | "union_tag_not_found" as kind:
            expected = "a list" if kind == "list_type" else "a list or a table"
            short = isinstance(value, str | int | float) and not got.endswith("...")
            if short and path[-1] == key and known.fits_in_a_list(path):
                remedy = f"write {key} = [{got}]"
        case "too_short":
            expected = _MISSING.get(key, "at least one value")
            remedy = _WRITE.get(key, "" if key in examples else f"leave {key} out")
        case "too_long":
            got, expected, remedy = f"{said['actual_length']} values", f"at most {said['max_length']}", "write fewer"
        case "model_type" | "model_attributes_type" | "dict_type":
            expected, remedy = "a table", f"write {_TABLES[key]}" if key in _TABLES else ""
    if not remedy and key in examples:
        remedy = f"write e.g. {key} = {examples[key]}"
    return f"{where}: got {got}, expected {expected}; {remedy or 'write one that fits'}"


def _table_of(parts: Sequence[str | int]) -> str:
    """Return the key of the table that the last part is a key of."""
    return next((part for part in reversed(parts[:-1]) if isinstance(part, str)), "")


def _where(path: Sequence[str | int]) -> str:
    """Write a place in the file: sweep[0].sizes.factor."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part.isascii() and part.replace("-", "_").replace("_", "a").isalnum()
            text += f"{'.' if text else ''}{part if bare and len(part) <= 60 else shown(part)}"
    return text


def _followed(document: object, path: Sequence[str | int]) -> tuple[list[str | int], object]:
    """Return a place and what the file has there; one value that stands for a list has no index."""
    place: list[str | int] = []
    for part in path:
        if isinstance(document, list) and isinstance(part, int):
            document = document[part]
        elif isinstance(part, str):
            document = document.get(part) if isinstance(document, dict) else None
        else:
            continue
        place.append(part)
    return place, document
