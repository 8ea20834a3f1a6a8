"""The values of a scenario file: each kind with its check and its JSON Schema.

A check returns what the program uses (bytes, seconds, names) or refuses in words of ours; `scenario_problems` makes the
sentence of them. Pydantic itself only walks the tables and lists.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Annotated, Any, TypeVar

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from collbench import __version__
from collbench.scenario import SCHEMA, known, nearest
from collbench.units import (
    DURATION_PATTERN,
    LINK_RATE_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration,
    parse_link_rate,
    parse_size,
)

MOST_SIZE = 2**50
"""Bytes: 1024 buffers of this size still have addresses of 64 bits."""

_MOST_RANK = 2**31 - 1
_MOST_COMPUTE_S = 600.0
_ANY_NUMBER = 1e300
"""No bound that anybody means; what is computed from such numbers stays finite."""
_MOST_WEIGHT = 1e100
"""Times any size, and summed over any number of ranks, still a number."""
_RANK = "(?:0|[1-9][0-9]{0,9})"
_COUNT = "[1-9][0-9]{0,8}"
_RUN = "[0-9]{1,6}(?:-[0-9]{1,6})?"
_RANKS = f"{_RUN}(?:,{_RUN})*"


def refused(expected: str, remedy: str = "", *, at: tuple[str | int, ...] = (), got: str = "") -> PydanticCustomError:
    """Make the error of a check: `at` is where below the checked value; without a remedy the key's example is shown."""
    return PydanticCustomError("refused", "refused", {"expected": expected, "remedy": remedy, "at": at, "got": got})


@dataclass(frozen=True)
class Leaf:
    """A value with a check and a JSON Schema of its own."""

    check: Callable[[Any], Any]
    schema: Callable[[], dict[str, Any]]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return self.schema()


@dataclass(frozen=True)
class Listed:
    """A list that may be written as its only value."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_listed, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        many = handler(schema)
        return {"anyOf": [many["items"], many]}


def name(axis: str, *, without: str = "") -> Leaf:
    """A name that the axis knows."""

    def names() -> list[str]:
        return [name for name in known()[axis] if name != without]

    def check(value: object) -> str:
        if isinstance(value, str) and value in names():
            return value
        expected = f"one of {', '.join(names())}" if len(names()) > 1 else f'"{names()[0]}"'
        raise refused(expected, nearest(value, names(), "") if isinstance(value, str) else "")

    return Leaf(check, lambda: {"type": "string", "enum": names()})


def text(pattern: str, expected: str) -> Leaf:
    """A printable text that fits a pattern."""

    def check(value: object) -> str:
        if isinstance(value, str) and re.fullmatch(pattern, value) and value.isprintable():
            return value
        raise refused(expected, "put it in quotes" if isinstance(value, int | float) else "")

    return Leaf(check, lambda: {"type": "string", "pattern": f"^(?:{pattern})$"})


def whole(least: int, most: int) -> Leaf:
    """A whole number within bounds; neither true nor 1.0 is one."""

    def check(value: object) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise refused(f"a whole number from {least} to {most}")

    return Leaf(check, lambda: {"type": "integer", "minimum": least, "maximum": most})


def number(expected: str, *, least: float = -_ANY_NUMBER, above: float = -math.inf, most: float = _ANY_NUMBER) -> Leaf:
    """A finite number within bounds."""

    def check(value: object) -> float:
        if type(value) in (int, float) and least <= value <= most and value > above:  # type: ignore[operator]
            return float(value)  # type: ignore[arg-type]
        hidden = most == _ANY_NUMBER and type(value) in (int, float) and most < value < math.inf  # type: ignore[operator]
        raise refused(f"{expected}, at most {most:g}" if hidden else expected)

    schema = {"minimum": (least, -_ANY_NUMBER), "exclusiveMinimum": (above, -math.inf), "maximum": (most, _ANY_NUMBER)}
    return Leaf(
        check, lambda: {"type": "number", **{key: bound for key, (bound, none) in schema.items() if bound != none}}
    )


def size(least: int = 0) -> Leaf:
    """Bytes, written as a size such as "64 MiB"."""

    def check(value: object) -> int:
        size_bytes: int = _parsed(parse_size, value)
        if least <= size_bytes <= MOST_SIZE:
            return size_bytes
        raise refused(f"a size from {least} B to {format_size(MOST_SIZE)}")

    return Leaf(check, lambda: {"type": "string", "pattern": SIZE_PATTERN})


def duration(most: float, *, zero: bool = False) -> Leaf:
    """Seconds, written as a duration such as "3 s"; none of them is 0 unless `zero` allows it."""

    def check(value: object) -> float:
        seconds: float = _parsed(parse_duration, value)
        if (seconds > 0 or zero) and seconds <= most:
            return seconds
        raise refused(f"a duration {'from' if zero else 'above'} 0 s, at most {format_duration(most)}")

    return Leaf(check, lambda: {"type": "string", "pattern": DURATION_PATTERN})


def _link_rate(value: object) -> float:
    rate: float = _parsed(parse_link_rate, value)
    if rate <= 0:
        raise refused("a rate above 0")
    return rate


def growing(first: int, last: int, factor: float) -> list[int]:
    """Return the sizes from first to last, each `factor` times the one before and rounded to whole bytes.

    They are the same on every machine: decimal arithmetic asks no libm, and its digits outlast every list.
    """
    with localcontext(Context(prec=60, rounding=ROUND_HALF_UP)):
        sizes = []
        exact, step = Decimal(first), Decimal(repr(factor))
        while (rounded := int(exact.to_integral_value())) <= last:
            sizes.append(rounded)
            exact *= step
    return sizes


def _listed(value: object) -> object:
    return value if isinstance(value, list | dict) else [value]


def _parsed(parse: Callable[[object], Any], value: object) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise PydanticCustomError("sentence", "sentence", {"sentence": str(error)}) from None


def _schema(value: object) -> int:
    if type(value) is int and value == SCHEMA:
        return value
    raise refused(
        f"the whole number {SCHEMA}, the schema that collbench {__version__} reads", f"write schema = {SCHEMA}"
    )


def _compute(value: object) -> str | float:
    if value in ("none", "given"):
        return str(value)
    if not isinstance(value, str) or not re.fullmatch(DURATION_PATTERN, value):
        raise refused('"none", "given" or the time of a step such as "20 ms"')
    seconds = parse_duration(value)
    if 0 < seconds <= _MOST_COMPUTE_S:
        return seconds
    raise refused(f"a duration above 0 s, at most {format_duration(_MOST_COMPUTE_S)}")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise refused("true or false")


def _rank(value: object) -> str | None:
    rank = str(value) if type(value) is int and 0 <= value <= _MOST_RANK else value
    return rank if isinstance(rank, str) and re.fullmatch(_RANK, rank) and int(rank) <= _MOST_RANK else None


def _root(value: object) -> str:
    if value == "all":
        return "all"
    rank = _rank(value)
    if rank is None:
        raise refused('a rank number from 0 on, or "all"')
    return rank


def _named_root(value: object) -> str:
    rank = _rank(value)
    if rank is None:
        remedy = "a case has one root: name each, as in root = [0, 1]" if value == "all" else "write e.g. root = 0"
        raise refused("a rank number from 0 on", remedy)
    return rank


def _environment(settings: object) -> Mapping[str, str]:
    if not isinstance(settings, dict):
        raise refused("a table")
    for key, value in settings.items():
        if not isinstance(key, str) or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", key):
            raise refused("names of letters, digits and _", "rename it", at=(key,), got="this name")
        if not isinstance(value, str):
            raise refused("a text", "put it in quotes", at=(key,))
        if not value.isprintable():
            raise refused("printable text on one line", "remove the rest", at=(key,))
    return settings


T = TypeVar("T")
Many = Annotated[list[T], Field(min_length=1)]
OneOrMany = Annotated[list[T], Field(min_length=1), Listed()]

Kind = Annotated[str, name("kind")]
Backend = Annotated[str, name("backend")]
Collective = Annotated[str, name("collective")]
ElementType = Annotated[str, name("dtype")]
Kernel = Annotated[str, name("kernel")]
Way = Annotated[str, name("way")]
Neighbour = Annotated[str, name("neighbour")]
Operation = Annotated[str, name("operation")]
Placement = Annotated[str, name("placement")]
Caller = Annotated[str, name("caller")]
Call = Annotated[str, name("call")]
Sync = Annotated[str, name("sync")]
BufferKind = Annotated[str, name("buffer")]
Pages = Annotated[str, name("pages")]
Pattern = Annotated[str, name("pattern")]
Mode = Annotated[str, name("mode")]
Order = Annotated[str, name("order")]
# A case carries what the default stands for, so that a rule for the default would fit none.
NamedBackend = Annotated[str, name("backend", without="default")]
NamedPlacement = Annotated[str, name("placement", without="default")]

WorkloadName = Annotated[str, text(r".{1,4096}", "the path of a workload file, or the name of a shipped one")]
Bucketing = Annotated[str, name("bucketing")]
Compute = Annotated[
    str | float,
    Leaf(
        _compute,
        lambda: {
            "anyOf": [{"type": "string", "enum": ["none", "given"]}, {"type": "string", "pattern": DURATION_PATTERN}]
        },
    ),
]

Schema = Annotated[int, Leaf(_schema, lambda: {"type": "integer", "const": SCHEMA})]
Flag = Annotated[bool, Leaf(_flag, lambda: {"type": "boolean"})]
Count = Annotated[int, whole(1, 10**9)]
BufferCount = Annotated[int, whole(1, 1024)]
Seed = Annotated[int, whole(0, 2**63 - 1)]
Share = Annotated[float, number("a number above 0, at most 1", above=0, most=1)]
Size = Annotated[int, size()]
Step = Annotated[int, size(1)]
Factor = Annotated[float, number("a number above 1", above=1)]
Weight = Annotated[float, number(f"a weight from 0 to {_MOST_WEIGHT:g}", least=0, most=_MOST_WEIGHT)]
Root = Annotated[
    str,
    Leaf(
        _root,
        lambda: {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": _MOST_RANK},
                {"type": "string", "pattern": f"^(?:all|{_RANK})$"},
            ]
        },
    ),
]
NamedRoot = Annotated[
    str,
    Leaf(
        _named_root,
        lambda: {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": _MOST_RANK},
                {"type": "string", "pattern": f"^{_RANK}$"},
            ]
        },
    ),
]
Topology = Annotated[
    str,
    text(
        rf"world|two_hosts|(?:host|rail|pairs|bisection)(?::alone)?|first:(?:doubling|{_COUNT})|every:{_COUNT}|{_RANKS}(?:;{_RANKS})*",
        "one of world, host, two_hosts, rail, pairs, bisection, first:N, first:doubling, every:K with numbers N and K "
        "from 1, or groups of ranks such as 0-3;4-7; host, rail, pairs and bisection also with :alone after them",
    ),
]
Title = Annotated[str, text(r".{1,200}", "one line of at most 200 characters")]
VariantName = Annotated[str, text(r"[A-Za-z0-9_.-]{1,64}", "at most 64 letters, digits, and any of _ . -")]
Transport = Annotated[str, text(r"[A-Za-z0-9_.:,/+-]{1,64}", "a word such as rdma or tcp")]
LinkRate = Annotated[float, Leaf(_link_rate, lambda: {"type": "string", "pattern": LINK_RATE_PATTERN})]
Environment = Annotated[
    Mapping[str, str],
    Leaf(
        _environment,
        lambda: {
            "type": "object",
            "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
            "additionalProperties": {"type": "string"},
        },
    ),
]


def distinct(values: list[T]) -> list[T]:
    """Return a list, or refuse one that names something twice."""
    seen = set()
    for index, value in enumerate(values):
        if value in seen:
            raise refused("each value once", "remove it", at=(index,))
        seen.add(value)
    return values
