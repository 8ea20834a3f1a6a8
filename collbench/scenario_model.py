"""The scenario file as its user writes it: pydantic models of its tables, and what becomes of them."""

import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import fields
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from collbench import replay_table
from collbench import scenario_values as values
from collbench.collectives import entry_named
from collbench.errors import ScenarioError
from collbench.ladder import ladder
from collbench.scenario import Expect, Measure, Rule, Scenario, Sweep, Variant
from collbench.scenario_problems import SIZE_FACTOR, SIZE_STEP, Known, sentence, without_misspelt
from collbench.scenario_tables import (
    DEFAULTS,
    EXAMPLES,
    FactorRange,
    Sizes,
    StepRange,
    Table,
    axis_of,
    key_of,
    optional,
)
from collbench.scenario_values import Many, OneOrMany, duration, refused
from collbench.transports import EXPECTATIONS, known
from collbench.units import format_duration, format_size, shown

MOST_PROBLEMS = 5
HOUR_S = 3600.0


class MeasureTable(Table):
    """How each case is measured."""

    modes: Many[values.Mode] = axis_of(
        "modes", "latency: one operation a sample; throughput: a batch; graph: a captured batch, on a device."
    )
    precision: values.Share = key_of(
        "precision", "Stop when the interval's half-width is within this share of the median."
    )
    time_budget: Annotated[float, duration(HOUR_S)] = key_of("time_budget", "Stop a case at this time in any event.")
    least_time: Annotated[float, duration(HOUR_S, zero=True)] = key_of(
        "least_time", "Sample a case at least this long."
    )
    least_iterations: values.Count = key_of("least_iterations", "Sample a case at least so many times.")
    most_iterations: values.Count = key_of("most_iterations", "Sample a case at most so many times.")
    warmup_time: Annotated[float, duration(HOUR_S, zero=True)] = key_of(
        "warmup_time", "Warm a case up at most this long."
    )
    timeout: Annotated[float, duration(24 * HOUR_S)] = key_of("timeout", "End the run when a case takes this long.")
    verify: values.Flag = key_of("verify", "Check the data of the very buffers that were timed.")
    samples: values.Flag = key_of("samples", "Keep every sample of every rank.")
    ranks_per_device: values.BufferCount = key_of(
        "ranks_per_device", "Let so many ranks share a device: functional, not performance."
    )
    order: values.Order = key_of("order", "Of the cases; auto: shuffled when there are several launches.")
    seed: values.Seed = key_of("seed", "Of all that is drawn by chance.")
    link_rate: values.LinkRate = optional(
        "link_rate", "Rate of each host's link to the others, where its interface does not know it."
    )

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


def _allowed(axis: str) -> Any:
    return optional(axis, "A value of this axis, or a list of them.")


class RuleTable(Table):
    """Points of the sweep: those that fit every key that is given."""

    backend: OneOrMany[values.NamedBackend] = _allowed("backend")
    collective: OneOrMany[values.Collective] = _allowed("collective")
    dtype: OneOrMany[values.ElementType] = _allowed("dtype")
    operation: OneOrMany[values.Operation] = _allowed("operation")
    root: OneOrMany[values.NamedRoot] = _allowed("root")
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
    least_size: values.Size = optional("least_size", "From this size on.")
    most_size: values.Size = optional("most_size", "Up to this size.")

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

    kind: values.Kind = key_of("kind", "What is swept.")
    backends: Many[values.Backend] = axis_of(
        "backends", "Libraries; default: nccl where each rank has a device, else mpi."
    )
    collectives: Many[values.Collective] = optional("collectives", "What is measured.", min_length=1)
    kernels: Many[values.Kernel] = optional("kernels", "For kind kernel: which of our own are measured.", min_length=1)
    ways: Many[values.Way] = optional(
        "ways", "For kind kernel: how; all that each kernel has if left out.", min_length=1
    )
    dtypes: Many[values.ElementType] = axis_of("dtypes", "Element types.")
    operations: Many[values.Operation] = axis_of("operations", "Reduction operations.")
    roots: Many[values.Root] = axis_of("roots", "Root ranks, or all for each in turn.")
    placements: Many[values.Placement] = axis_of("placements", "Send and receive in one buffer or in two.")
    callers: Many[values.Caller] = axis_of("callers", "Who calls the library: a compiled loop or the Python binding.")
    calls: Many[values.Call] = axis_of("calls", "Which form of the library's call.")
    syncs: Many[values.Sync] = axis_of("syncs", "How the ranks meet before each operation.")
    buffer: Many[values.BufferKind] = axis_of("buffer", "How the memory is prepared.")
    buffers: Many[values.BufferCount] = axis_of("buffers", "How many sets of buffers take turns.")
    pages: Many[values.Pages] = axis_of("pages", "Pages of the memory.")
    topologies: Many[values.Topology] = axis_of("topologies", "How the world is cut into groups.")
    neighbours: Many[values.Neighbour] = axis_of("neighbours", "What else runs on each rank's device meanwhile.")
    patterns: Many[values.Pattern] = axis_of("patterns", "How much all_to_all_v sends to whom.")
    matrix: Many[Many[values.Weight]] = optional(
        "matrix", "For all_to_all_v: row i has the relative weights of what rank i sends to each rank.", min_length=1
    )
    workloads: Many[values.WorkloadName] = optional(
        "workloads", "For kind replay: workload files, or names of shipped ones.", min_length=1
    )
    bucketings: Many[values.Bucketing] = optional(
        "bucketings", "For kind replay: how gradients are cut; as the workload says if left out.", min_length=1
    )
    computes: Many[values.Compute] = optional(
        "computes",
        "For kind replay: what a step computes meanwhile: none, a time, or given for what the workload says.",
        min_length=1,
    )
    sizes: Sizes = optional("sizes", "A list, or a range by factor or by step; barriers alone need none.")
    include: list[RuleTable] = optional("include", "Keep only the points that fit one of these rules.")
    exclude: list[RuleTable] = optional("exclude", "Leave out the points that fit one of these rules.")

    @field_validator(
        "backends", "collectives", "dtypes", "operations", "roots", "placements", "callers", "calls", "syncs", "buffer",
        "buffers", "pages", "topologies", "patterns", "neighbours", "kernels", "ways",
        "workloads", "bucketings", "computes",
    )  # fmt: skip
    @classmethod
    def _each_once(cls, listed: list[Any] | None) -> list[Any] | None:
        return None if listed is None else values.distinct(listed)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.kind == "kernel":
            return self._agree_on_kernels()
        if self.kind == "ladder":
            return self._agree_on_ladder()
        if self.kind == "replay":
            replay_table.agree(self)
            return self
        for kind, keys in (("kernel", ("kernels", "ways")), ("replay", replay_table.KEYS)):
            for key in keys:
                if getattr(self, key) is not None:
                    raise refused(f'none without kind = "{kind}"', f"remove {key}", at=(key,))
        if self.collectives is None:
            raise refused("at least one collective", at=("collectives",), got="nothing")
        sized = [collective for collective in self.collectives if collective != "barrier"]
        if self.sizes is None and sized:
            raise refused(f"sizes for {', '.join(sized)}", at=("sizes",), got="nothing")
        if "all_to_all_v" not in self.collectives:
            if self.patterns != DEFAULTS["patterns"]:
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
        for key in ("collectives", "patterns", "matrix", *replay_table.KEYS):
            if key in self.model_fields_set:
                raise refused('none with kind = "kernel"', f"remove {key}", at=(key,))
        own = _backends_of(self.kernels)
        for index, backend in enumerate(self.backends if "backends" in self.model_fields_set else ()):
            if backend not in own:
                expected = f"{' or '.join(own)}, which {'has' if len(own) == 1 else 'have'} {', '.join(self.kernels)}"
                raise refused(expected, "remove backends", at=("backends", index))
        return self

    def _agree_on_ladder(self) -> Self:
        for key in type(self).model_fields:
            if key in self.model_fields_set and key not in ("kind", "sizes", "dtypes"):
                raise refused('kind, sizes and dtypes alone with kind = "ladder"', f"remove {key}", at=(key,))
        if self.sizes is None:
            raise refused("sizes for the ladder", at=("sizes",), got="nothing")
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

    def sweeps(self) -> Iterable[Sweep]:
        """Return what it stands for: one sweep, or several of kind "replay"."""
        return replay_table.sweeps(self) if self.kind == "replay" else (self.sweep(),)

    def sweep(self) -> Sweep:
        """Return the sweep with its sizes written out, each once."""
        axes: dict[str, Any] = {key: getattr(self, key) for key in type(self).model_fields}
        for key in ("include", "exclude"):
            axes[key] = tuple(rule.rule() for rule in axes[key] or ())
        axes["matrix"] = None if self.matrix is None else tuple(map(tuple, self.matrix))
        sizes = self.sizes.sizes() if isinstance(self.sizes, FactorRange | StepRange) else self.sizes
        axes["sizes"] = tuple(dict.fromkeys(sizes or ()))
        if self.kind == "ladder":
            return ladder(axes["sizes"], tuple(self.dtypes))
        kernels, ways, *_ = (axes.pop(key) for key in ("kernels", "ways", *replay_table.KEYS))
        if self.kind == "kernel":
            axes |= {"collectives": kernels, "patterns": ways or []}
            if "backends" not in self.model_fields_set:
                axes["backends"] = _backends_of(kernels)
        axes |= {key: tuple(value) for key, value in axes.items() if isinstance(value, list)}
        return Sweep(**axes)


def _backends_of(kernels: Iterable[str]) -> list[str]:
    """The backends that have these kernels."""
    return list(dict.fromkeys(entry_named(name).collective.only_backend for name in kernels))


class VariantTable(Table):
    """Environment settings that need processes of their own."""

    name: values.VariantName = key_of("name", "Stands in the rows.")
    env: values.Environment = optional("env", "Settings of the environment, as text.")


class ExpectTable(Table):
    """What must hold for the run to count."""

    transport: values.Transport = optional("transport", "The transport that every row must name.")

    @field_validator("transport")
    @classmethod
    def _known(cls, transport: str | None) -> str | None:
        if transport is not None and not known(transport):
            raise refused(f"words of {', '.join(EXPECTATIONS)}, or such as rdma:mlx5_0, tcp:eth0, net/ib")
        return transport


class Document(Table):
    """A scenario: what to sweep and how to measure it."""

    version: values.Schema = key_of("schema", "Version of the file format.", alias="schema")
    title: values.Title = optional("title", "What the rows and reports call it; the file's name if left out.")
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
        problems = without_misspelt(problems, _KEYS)[:MOST_PROBLEMS]
        known = Known(EXAMPLES, _KEYS, lambda place: _fits_in_a_list(document, place))
        lines = [f"{where}: {sentence(problem, document, known)}" for problem in problems]
        raise ScenarioError("\n".join(lines)) from None
    variants = [Variant(variant.name, tuple(sorted((variant.env or {}).items()))) for variant in file.variant]
    return Scenario(
        name=name,
        title=file.title or name,
        source=source,
        measure=_measure(file.measure),
        sweeps=tuple(sweep for table in file.sweep for sweep in table.sweeps()),
        variants=tuple(variants),
        expect=Expect(file.expect.transport),
    )


def _fits_in_a_list(document: dict[str, Any], place: Sequence[str | int]) -> bool:
    """Whether what stands at a place of the file would be right as the only value of a list there."""
    trial = deepcopy(document)
    table: Any = trial
    for part in place[:-1]:
        table = table[part]
    table[place[-1]] = [table[place[-1]]]
    try:
        Document.model_validate(trial)
    except ValidationError as error:
        return all(problem["loc"][: len(place)] != tuple(place) for problem in error.errors(include_url=False))
    return True


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
