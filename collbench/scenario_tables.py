"""What the tables of a scenario file are made of: their keys, with defaults and examples, and the forms of `sizes`."""

import math
import tomllib
from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from collbench import scenario_values as values
from collbench.scenario import Measure, Sweep
from collbench.scenario_problems import SIZE_FACTOR, SIZE_LIST, SIZE_STEP
from collbench.scenario_values import refused
from collbench.units import format_duration, format_size, shown

MOST_SIZES = 10_000


def _defaults(table: type) -> dict[str, Any]:
    """Return the defaults of a dataclass as a file writes them: durations as text, lists for tuples."""
    found: dict[str, Any] = {}
    for field in fields(table):
        default: Any = field.default
        if isinstance(default, tuple) and default:
            found[field.name] = list(default)
        elif field.name.endswith("_s"):
            found[field.name.removesuffix("_s")] = format_duration(default)
        elif isinstance(default, str | int | float):
            found[field.name] = default
    return found


DEFAULTS = _defaults(Measure) | _defaults(Sweep)
# What a remedy proposes to write.
EXAMPLES = {key: shown(value) for key, value in DEFAULTS.items()} | {
    "schema": "1",
    "title": '"two collectives"',
    "collectives": '["all_reduce"]',
    "kernels": '["copy"]',
    "ways": '["kernel"]',
    "sizes": '{ from = "8 B", to = "64 MiB", factor = 2 }',
    "from": '"8 B"',
    "to": '"64 MiB"',
    "factor": "2",
    "step": '"4 KiB"',
    "matrix": "[[0, 1], [1, 0]]",
    "include": '[{ dtype = "float32" }]',
    "exclude": '[{ dtype = "int8", least_size = "1 MiB" }]',
    "least_size": '"1 MiB"',
    "most_size": '"1 MiB"',
    "name": '"ring"',
    "env": '{ NCCL_ALGO = "Ring" }',
    "transport": '"rdma"',
    "link_rate": '"25 Gbit/s"',
    "workloads": '["resnet18"]',
    "bucketings": '["ddp"]',
    "computes": '["none", "20 ms"]',
}


def key_of(key: str, meaning: str, **more: Any) -> Any:
    """A key of the file: it may be left out where the scenario's dataclasses have a default for it."""
    if key in DEFAULTS and "default_factory" not in more:
        more["default"] = DEFAULTS[key]
    elif key in EXAMPLES:
        more["examples"] = [tomllib.loads(f"example = {EXAMPLES[key]}")["example"]]
    return Field(description=meaning, **more)


def axis_of(key: str, meaning: str) -> Any:
    """A list of at least one value, each once."""
    return key_of(key, meaning, min_length=1, json_schema_extra={"uniqueItems": True})


def optional(key: str, meaning: str, **more: Any) -> Any:
    """A key that is None here, and nothing in the schema, where it is left out."""
    return key_of(key, meaning, default_factory=lambda: None, validate_default=False, **more)


class Table(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(strict=True, extra="forbid", validate_default=True)


class SizeRange(Table):
    """From one size to another."""

    first: values.Size = key_of("from", "The first size.", alias="from")
    last: values.Size = key_of("to", "No size is above this one.", alias="to")

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.first > self.last:
            raise refused(f"at most to ({format_size(self.last)})", "exchange from and to", at=("from",))
        return self


class FactorRange(SizeRange):
    """Sizes that grow by a factor and are rounded to whole bytes."""

    factor: values.Factor = key_of("factor", "Each size over the one before.")

    @model_validator(mode="after")
    def _leads_there(self) -> Self:
        if self.first == 0:
            remedy = 'start at "1 B" and write sizes = ["0 B"] in a [[sweep]] of its own'
            raise refused("at least 1 B, since no factor leads away from 0 B", remedy, at=("from",))
        if math.log(self.last / self.first) / math.log(self.factor) >= MOST_SIZES:
            raise refused(f"a factor that gives at most {MOST_SIZES} sizes", "raise it", at=("factor",))
        return self

    def sizes(self) -> Iterable[int]:
        """Return the sizes in bytes; small ones may come twice."""
        return values.growing(self.first, self.last, self.factor)


class StepRange(SizeRange):
    """Sizes that grow by a step."""

    step: values.Step = key_of("step", "Each size less the one before.")

    @model_validator(mode="after")
    def _leads_there(self) -> Self:
        if (self.last - self.first) // self.step >= MOST_SIZES:
            raise refused(f"a step that gives at most {MOST_SIZES} sizes", "raise it", at=("step",))
        return self

    def sizes(self) -> Iterable[int]:
        """Return the sizes in bytes."""
        return range(self.first, self.last + 1, self.step)


def _branch(value: object) -> str | None:
    """Return the branch of `sizes` that a value belongs to, so that a message never lists the others."""
    if isinstance(value, list):
        return SIZE_LIST
    if not isinstance(value, dict):
        return None
    return SIZE_STEP if "step" in value and "factor" not in value else SIZE_FACTOR


Sizes = Annotated[
    Annotated[
        list[values.Size],
        Field(min_length=1, max_length=MOST_SIZES, json_schema_extra={"uniqueItems": True}),
        AfterValidator(values.distinct),
        Tag(SIZE_LIST),
    ]
    | Annotated[FactorRange, Tag(SIZE_FACTOR)]
    | Annotated[StepRange, Tag(SIZE_STEP)],
    Discriminator(_branch),
]
