"""The scenario file as its user writes it: pydantic models of its tables, and what becomes of them."""

import math
import tomllib
from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator, model_validator
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from collbench import scenario_values as values
from collbench.errors import ScenarioError
from collbench.scenario import Expect, Measure, Rule, Scenario, Sweep, Variant
from collbench.scenario_problems import SIZE_FACTOR, SIZE_LIST, SIZE_STEP, sentence
from collbench.scenario_values import Many, OneOrMany, duration, refused
from collbench.units import format_duration, format_size, shown

MOST_PROBLEMS = 5
MOST_SIZES = 10_000
HOUR_S = 3600.0


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


_DEFAULTS = _defaults(Measure) | _defaults(Sweep)
# What a remedy proposes to write.
_EXAMPLES = {key: shown(value) for key, value in _DEFAULTS.items()} | {
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
}


def _key(key: str, meaning: str, **more: Any) -> Any:
    """A key of the file: it may be left out where the scenario's dataclasses have a default for it."""
    if key in _DEFAULTS and "default_factory" not in more:
        more["default"] = _DEFAULTS[key]
    elif key in _EXAMPLES:
        more["examples"] = [tomllib.loads(f"example = {_EXAMPLES[key]}")["example"]]
    return Field(description=meaning, **more)


def _axis(key: str, meaning: str) -> Any:
    """A list of at least one value, each once."""
    return _key(key, meaning, min_length=1, json_schema_extra={"uniqueItems": True})


def _optional(key: str, meaning: str, **more: Any) -> Any:
    """A key that is None here, and nothing in the schema, where it is left out."""
    return _key(key, meaning, default_factory=lambda: None, validate_default=False, **more)


class Table(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(strict=True, extra="forbid", validate_default=True)


class MeasureTable(Table):
    """How each case is measured."""

    modes: Many[values.Mode] = _axis(
        "modes", "latency: one operation a sample; throughput: a batch; graph: a captured batch, on a device."
    )
    precision: values.Share = _key(
        "precision", "Stop when the interval's half-width is within this share of the median."
    )
    time_budget: Annotated[float, duration(HOUR_S)] = _key("time_budget", "Stop a case at this time in any event.")
    least_time: Annotated[float, duration(HOUR_S, zero=True)] = _key("least_time", "Sample a case at least this long.")
    least_iterations: values.Count = _key("least_iterations", "Sample a case at least so many times.")
    most_iterations: values.Count = _key("most_iterations", "Sample a case at most so many times.")
    warmup_time: Annotated[float, duration(HOUR_S, zero=True)] = _key(
        "warmup_time", "Warm a case up at most this long."
    )
    timeout: Annotated[float, duration(24 * HOUR_S)] = _key("timeout", "End the run when a case takes this long.")
    verify: values.Flag = _key("verify", "Check the data of the very buffers that were timed.")
    samples: values.Flag = _key("samples", "Keep every sample of every rank.")
    ranks_per_device: values.BufferCount = _key(
        "ranks_per_device", "Let so many ranks share a device: functional, not performance."
    )
    order: values.Order = _key("order", "Of the cases; auto: shuffled when there are several launches.")
    seed: values.Seed = _key("seed", "Of all that is drawn by chance.")

    @field_validator("modes")
    @classmethod
    def _each_once(cls, listed: list[str]) -> list[str]:
        return values.distinct(listed)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        given = self.model_fields_set
        if "least_time" in given and self.least_time > self.time_budget:
            budget = format_duration(self.time_budget)
            raise refused(f"at most time_budget ({budget})", "lower it or raise time_budget", at=("least_time",))
        if "least_iterations" in given and self.least_iterations > self.most_iterations:
            most = f"at most most_iterations ({self.most_iterations})"
            raise refused(most, "lower it or raise most_iterations", at=("least_iterations",))
        needed = self.warmup_time + self.time_budget
        if self.timeout <= needed:
            expected = f"more than warmup_time and time_budget together ({format_duration(needed)})"
            remedy = f'write e.g. timeout = "{format_duration(math.ceil(2 * needed))}"'
            raise refused(expected, remedy, at=("timeout",), got=shown(format_duration(self.timeout)))
        return self


class SizeRange(Table):
    """From one size to another."""

    first: values.Size = _key("from", "The first size.", alias="from")
    last: values.Size = _key("to", "No size is above this one.", alias="to")

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.first > self.last:
            raise refused(f"at most to ({format_size(self.last)})", "exchange from and to", at=("from",))
        return self


class FactorRange(SizeRange):
    """Sizes that grow by a factor and are rounded to whole bytes."""

    factor: values.Factor = _key("factor", "Each size over the one before.")

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

    step: values.Step = _key("step", "Each size less the one before.")

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
    Annotated[list[values.Size], Field(min_length=1, max_length=MOST_SIZES), Tag(SIZE_LIST)]
    | Annotated[FactorRange, Tag(SIZE_FACTOR)]
    | Annotated[StepRange, Tag(SIZE_STEP)],
    Discriminator(_branch),
]


def _allowed(axis: str) -> Any:
    return _optional(axis, "A value of this axis, or a list of them.")


class RuleTable(Table):
    """Points of the sweep: those that fit every key that is given."""

    backend: OneOrMany[values.NamedBackend] = _allowed("backend")
    collective: OneOrMany[values.Collective] = _allowed("collective")
    dtype: OneOrMany[values.ElementType] = _allowed("dtype")
    operation: OneOrMany[values.Operation] = _allowed("operation")
    root: OneOrMany[values.Root] = _allowed("root")
    placement: OneOrMany[values.NamedPlacement] = _allowed("placement")
    caller: OneOrMany[values.Caller] = _allowed("caller")
    call: OneOrMany[values.Call] = _allowed("call")
    mode: OneOrMany[values.Mode] = _allowed("mode")
    sync: OneOrMany[values.Sync] = _allowed("sync")
    buffer: OneOrMany[values.BufferKind] = _allowed("buffer")
    topology: OneOrMany[values.Topology] = _allowed("topology")
    kernel: OneOrMany[values.Kernel] = _allowed("kernel")
    way: OneOrMany[values.Way] = _allowed("way")
    neighbour: OneOrMany[values.Neighbour] = _allowed("neighbour")
    buffers: OneOrMany[values.BufferCount] = _allowed("buffers")
    pages: OneOrMany[values.Pages] = _allowed("pages")
    pattern: OneOrMany[values.Pattern] = _allowed("pattern")
    least_size: values.Size = _optional("least_size", "From this size on.")
    most_size: values.Size = _optional("most_size", "Up to this size.")

    @model_validator(mode="after")
    def _fits_something(self) -> Self:
        if not self.model_fields_set:
            raise refused("at least one key, since a rule without any fits every point", 'write e.g. dtype = "int8"')
        if None not in (self.least_size, self.most_size) and self.least_size > self.most_size:
            expected = f"at most most_size ({format_size(self.most_size)})"
            raise refused(expected, "exchange the two", at=("least_size",))
        return self

    def rule(self) -> Rule:
        """Return the rule with its axes in the order of this table."""
        axes = [key for key in type(self).model_fields if key not in ("least_size", "most_size")]
        named = {"kernel": "collective", "way": "pattern"}  # what a case calls them
        match = tuple(
            (named.get(axis, axis), tuple(map(str, getattr(self, axis))))
            for axis in axes
            if getattr(self, axis) is not None
        )
        return Rule(match, self.least_size, self.most_size)


class SweepTable(Table):
    """A cross product of axes; several add up."""

    kind: values.Kind = _key("kind", "What is swept.")
    backends: Many[values.Backend] = _axis(
        "backends", "Libraries; default: nccl where each rank has a device, else mpi."
    )
    collectives: Many[values.Collective] = _optional("collectives", "What is measured.", min_length=1)
    kernels: Many[values.Kernel] = _optional("kernels", "For kind kernel: which of our own are measured.", min_length=1)
    ways: Many[values.Way] = _optional(
        "ways", "For kind kernel: how; all that each kernel has if left out.", min_length=1
    )
    dtypes: Many[values.ElementType] = _axis("dtypes", "Element types.")
    operations: Many[values.Operation] = _axis("operations", "Reduction operations.")
    roots: Many[values.Root] = _axis("roots", "Root ranks, or all for each in turn.")
    placements: Many[values.Placement] = _axis("placements", "Send and receive in one buffer or in two.")
    callers: Many[values.Caller] = _axis("callers", "Who calls the library: a compiled loop or the Python binding.")
    calls: Many[values.Call] = _axis("calls", "Which form of the library's call.")
    syncs: Many[values.Sync] = _axis("syncs", "How the ranks meet before each operation.")
    buffer: Many[values.BufferKind] = _axis("buffer", "How the memory is prepared.")
    buffers: Many[values.BufferCount] = _axis("buffers", "How many sets of buffers take turns.")
    pages: Many[values.Pages] = _axis("pages", "Pages of the memory.")
    topologies: Many[values.Topology] = _axis("topologies", "How the world is cut into groups.")
    neighbours: Many[values.Neighbour] = _axis("neighbours", "What else runs on each rank's device meanwhile.")
    patterns: Many[values.Pattern] = _axis("patterns", "How much all_to_all_v sends to whom.")
    matrix: Many[Many[values.Weight]] = _optional(
        "matrix", "For all_to_all_v: row i has the relative weights of what rank i sends to each rank.", min_length=1
    )
    sizes: Sizes = _optional("sizes", "A list, or a range by factor or by step; barriers alone need none.")
    include: list[RuleTable] = _optional("include", "Keep only the points that fit one of these rules.")
    exclude: list[RuleTable] = _optional("exclude", "Leave out the points that fit one of these rules.")

    @field_validator(
        "backends", "collectives", "dtypes", "operations", "roots", "placements", "callers", "calls", "syncs", "buffer",
        "buffers", "pages", "topologies", "patterns", "neighbours", "kernels", "ways",
    )  # fmt: skip
    @classmethod
    def _each_once(cls, listed: list[Any] | None) -> list[Any] | None:
        return None if listed is None else values.distinct(listed)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.kind == "kernel":
            return self._agree_on_kernels()
        for key in ("kernels", "ways"):
            if getattr(self, key) is not None:
                raise refused('none without kind = "kernel"', f"remove {key}", at=(key,))
        if self.collectives is None:
            raise refused("at least one collective", at=("collectives",), got="nothing")
        sized = [collective for collective in self.collectives if collective != "barrier"]
        if self.sizes is None and sized:
            raise refused(f"sizes for {', '.join(sized)}", at=("sizes",), got="nothing")
        if "all_to_all_v" not in self.collectives:
            if self.patterns != _DEFAULTS["patterns"]:
                raise refused("none without all_to_all_v among the collectives", "remove patterns", at=("patterns",))
            if self.matrix is not None:
                raise refused("none without all_to_all_v among the collectives", "remove matrix", at=("matrix",))
        if self.matrix is not None:
            self._check_matrix(self.matrix)
        return self

    def _agree_on_kernels(self) -> Self:
        if self.kernels is None:
            raise refused("at least one kernel", at=("kernels",), got="nothing")
        if self.sizes is None:
            raise refused("sizes for the kernels", at=("sizes",), got="nothing")
        for key in ("collectives", "patterns", "matrix"):
            if key in self.model_fields_set:
                raise refused('none with kind = "kernel"', f"remove {key}", at=(key,))
        return self

    def _check_matrix(self, matrix: list[list[float]]) -> None:
        if "patterns" in self.model_fields_set:
            raise refused("a matrix or patterns, not both", "remove one of them", at=("patterns",))
        for index, row in enumerate(matrix):
            if len(row) != len(matrix):
                expected = f"as many as there are rows ({len(matrix)})"
                raise refused(expected, at=("matrix", index), got=f"{len(row)} weights")
        if not any(map(any, matrix)):
            raise refused("at least one weight above 0", at=("matrix",))

    def sweep(self) -> Sweep:
        """Return the sweep with its sizes written out, each once."""
        axes: dict[str, Any] = {key: getattr(self, key) for key in type(self).model_fields}
        for key in ("include", "exclude"):
            axes[key] = tuple(rule.rule() for rule in axes[key] or ())
        axes["matrix"] = None if self.matrix is None else tuple(map(tuple, self.matrix))
        sizes = self.sizes.sizes() if isinstance(self.sizes, FactorRange | StepRange) else self.sizes
        axes["sizes"] = tuple(dict.fromkeys(sizes or ()))
        kernels, ways = axes.pop("kernels"), axes.pop("ways")
        if self.kind == "kernel":
            axes |= {"collectives": kernels, "patterns": ways or []}
            if "backends" not in self.model_fields_set:
                axes["backends"] = ["device"]
        axes |= {key: tuple(value) for key, value in axes.items() if isinstance(value, list)}
        return Sweep(**axes)


class VariantTable(Table):
    """Environment settings that need processes of their own."""

    name: values.VariantName = _key("name", "Stands in the rows.")
    env: values.Environment = _optional("env", "Settings of the environment, as text.")


class ExpectTable(Table):
    """What must hold for the run to count."""

    transport: values.Transport = _optional("transport", "The transport that every row must name.")


class Document(Table):
    """A scenario: what to sweep and how to measure it."""

    version: values.Schema = _key("schema", "Version of the file format.", alias="schema")
    title: values.Title = _optional("title", "What the rows and reports call it; the file's name if left out.")
    measure: MeasureTable = Field(default_factory=MeasureTable)
    sweep: Many[SweepTable]
    variant: list[VariantTable] = Field(default_factory=list)
    expect: ExpectTable = Field(default_factory=ExpectTable)

    @model_validator(mode="after")
    def _variants_differ(self) -> Self:
        names = [variant.name for variant in self.variant]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise refused("a name of its own", "rename it", at=("variant", index, "name"))
        return self


_TABLES: dict[str, type[Table]] = {
    "": Document,
    "measure": MeasureTable,
    "sweep": SweepTable,
    "include": RuleTable,
    "exclude": RuleTable,
    SIZE_FACTOR: FactorRange,
    SIZE_STEP: StepRange,
    "variant": VariantTable,
    "expect": ExpectTable,
}
_KEYS = {key: [field.alias or name for name, field in table.model_fields.items()] for key, table in _TABLES.items()}
_KEYS[SIZE_FACTOR].append("step")


def build(document: dict[str, Any], *, name: str, source: str = "", where: str) -> Scenario:
    """Check a parsed file and return its scenario (without a digest); ScenarioError has one line for each problem."""
    try:
        file = Document.model_validate(document)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        # Another version of the format may have other keys: nothing else is worth a word then.
        problems = [problem for problem in problems if _other_version(problem)] or problems
        lines = [f"{where}: {sentence(problem, document, _EXAMPLES, _KEYS)}" for problem in problems[:MOST_PROBLEMS]]
        raise ScenarioError("\n".join(lines)) from None
    variants = [Variant(variant.name, tuple(sorted((variant.env or {}).items()))) for variant in file.variant]
    return Scenario(
        name=name,
        title=file.title or name,
        source=source,
        measure=_measure(file.measure),
        sweeps=tuple(sweep.sweep() for sweep in file.sweep),
        variants=tuple(variants),
        expect=Expect(file.expect.transport),
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file."""
    schema = Document.model_json_schema(schema_generator=_SchemaGenerator)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema, "title": "collbench scenario"}


class _SchemaGenerator(GenerateJsonSchema):
    """Leaves the titles out that only repeat a key."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _other_version(problem: ErrorDetails) -> bool:
    return problem["loc"] == ("schema",) and type(problem["input"]) is int


def _measure(table: MeasureTable) -> Measure:
    """Return the settings; a least value that was left out gives way to a smaller most value."""
    settings: dict[str, Any] = {field.name: getattr(table, field.name.removesuffix("_s")) for field in fields(Measure)}
    settings["modes"] = tuple(table.modes)
    settings["least_time_s"] = min(table.least_time, table.time_budget)
    settings["least_iterations"] = min(table.least_iterations, table.most_iterations)
    return Measure(**settings)
