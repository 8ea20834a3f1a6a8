"""What the files of a plan are made of: their tables, values, and one-sentence errors."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from collbench import scenario_values as values
from collbench.errors import UsageError
from collbench.scenario import nearest
from collbench.scenario_problems import Known, sentence, without_misspelt
from collbench.scenario_values import Leaf, refused
from collbench.units import parse_link_rate, parse_size, shown

MOST_PROBLEMS = 5
DAY_S = 86400.0
MOST_DEVICES = 1_000_000


class Table(BaseModel):
    """A table of a file; unknown keys and other types are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", validate_default=False)


T = TypeVar("T", bound=BaseModel)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Return a TOML file; UsageError names the file and what it should have been."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{path}: got no text ({reason}), expected {what}; check the path") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: got bytes that are not UTF-8, expected {what}; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        said = " ".join(str(error).split())
        raise UsageError(f"{path}: got text that is not TOML ({said}), expected {what}; correct it there") from None


def check(model: type[T], document: dict[str, Any], where: str, examples: Mapping[str, str]) -> T:
    """Return a parsed file as its model; UsageError has one sentence for each problem."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        keys = _keys(model)
        problems = without_misspelt(error.errors(include_url=False), keys)[:MOST_PROBLEMS]
        known = Known(examples, keys, lambda place: False)
        raise UsageError("\n".join(f"{where}: {sentence(one, document, known)}" for one in problems)) from None


def _keys(model: type[BaseModel]) -> dict[str, Sequence[str]]:
    """Return the keys of a model and of the tables in it, by the key of the table."""
    found: dict[str, Sequence[str]] = {"": [field.alias or name for name, field in model.model_fields.items()]}
    for name, field in model.model_fields.items():
        for part in _parts(field.annotation):
            found |= {key or (field.alias or name): keys for key, keys in _keys(part).items()}
    return found


def _parts(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _parts(inner)


def find(name_or_path: str, folder: Path, what: str) -> Path:
    """Return the file that a path or the name of a shipped one means; a shipped name goes before a path."""
    names = sorted(path.stem for path in folder.glob("*.toml"))
    if name_or_path in names:
        return folder / f"{name_or_path}.toml"
    path = Path(name_or_path)
    if path.is_file():
        return path
    remedy = nearest(path.stem, names, "write one of them or a file's path")
    raise UsageError(
        f"{what}: got {shown(name_or_path)}, expected a file or one of the shipped ones {', '.join(names)}; {remedy}"
    )


def one_of(*names: str) -> Leaf:
    """One of a few names."""

    def checked(value: object) -> str:
        if isinstance(value, str) and value in names:
            return value
        expected = f"one of {', '.join(names)}"
        raise refused(expected, nearest(value, names, "") if isinstance(value, str) else "")

    return Leaf(checked, lambda: {"type": "string", "enum": list(names)})


def parse_rate(text: object) -> float:
    """Return the bytes per second of "230 GB/s" (bytes) or "200 Gbit/s" (bits, as links are named by)."""
    in_bytes = text.removesuffix("/s") if isinstance(text, str) and text.endswith("B/s") else None
    try:
        rate = parse_link_rate(text) if in_bytes is None else float(parse_size(in_bytes))
    except ValueError:
        remedy = 'write e.g. "25 GB/s" or "200 Gbit/s"'
        raise ValueError(f"got {shown(text)}, expected a rate with its unit, such as links have; {remedy}") from None
    if rate <= 0:
        raise ValueError(f"got {shown(text)}, expected a rate above 0; correct it")
    return rate


def _rate(value: object) -> float:
    try:
        return parse_rate(value)
    except ValueError as error:
        got, _, rest = str(error).removeprefix("got ").partition(", expected ")
        expected, _, remedy = rest.partition("; ")
        raise refused(expected, remedy, got=got) from None


Rate = Annotated[float, Leaf(_rate, lambda: {"type": "string"})]
Schema = Annotated[int, values.whole(1, 1)]
Line = Annotated[str, values.text(r".{1,500}", "one line of at most 500 characters")]
Count = Annotated[int, values.whole(1, 10**12)]
Zero = Annotated[int, values.whole(0, 10**9)]
Devices = Annotated[int, values.whole(1, MOST_DEVICES)]
Size = Annotated[int, values.size(1)]
Duration = Annotated[float, values.duration(DAY_S)]
Latency = Annotated[float, values.duration(DAY_S, zero=True)]
Share = Annotated[float, values.number("a number from 0 to 1", least=0, most=1)]
Uncertainty = Annotated[float, values.number("a number from 0, below 1", least=0, most=0.999)]
Factor = Annotated[float, values.number("a number of at least 1", least=1, most=1000)]
Floating = Annotated[str, one_of("float32", "float16", "bfloat16")]
Overlap = Annotated[str, one_of("none", "full", "buckets")]
