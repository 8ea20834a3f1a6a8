"""`collbench forecast`: from a workload and a fabric to tables, and a picture."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collbench.errors import UsageError
from collbench.planning import fabric as fabrics
from collbench.planning import large, memory, plot, references, tables, workload
from collbench.planning import memory_tables as needs
from collbench.planning import step_tables as steps
from collbench.planning.fabric import Fabric
from collbench.planning.step import Step
from collbench.planning.tables import Table
from collbench.planning.workload import Workload


@dataclass(frozen=True)
class PlanOptions:
    """The command line. Counts are numbers; sizes and times are the text that the user wrote.

    `batch` is that of each device, `global_batch` that of all devices together: one of them at most.
    """

    workload: str = ""
    fabric: Path | None = None
    devices: tuple[int, ...] = ()
    hosts: tuple[int, ...] = ()
    batch: int | None = None
    global_batch: int | None = None
    compute: tuple[str, ...] = ()
    overlap: str = ""
    bucketing: str = ""
    dtype: str = ""
    zero: int | None = None
    memory: bool = False
    device: str = ""
    device_memory: str = ""
    driver_keeps: str = ""
    optimizer: str = "adamw"
    precision: str = "mixed"
    activations: str = ""
    reference: str = ""
    large: bool = False
    size: str = ""
    form: str = "text"
    plot: Path | None = None


def command(options: PlanOptions, measured: Fabric | None = None) -> int:
    """Answer what is asked, print it, and return the exit code; `measured` stands for a described fabric."""
    if options.plot is not None:
        plot.check(options.plot)
    found, known = answers(options, measured)
    if options.plot is not None:
        drawn = _workload(options)
        if not any(step.rate is not None for step in known):
            raise UsageError(
                "forecast: --plot: got no step time to draw, expected a workload, a fabric and a time of computation; "
                "give --compute BATCH=TIME"
            )
        plot.draw(options.plot, drawn.title, drawn.samples, known)
    tables.tell(found, options.form)
    return 0


def answers(options: PlanOptions, measured: Fabric | None = None) -> tuple[list[Table], list[Step]]:
    """Return the tables that answer the options, and the steps that they hold."""
    fabric = measured or (fabrics.load(options.fabric) if options.fabric is not None else None)
    found: list[Table] = []
    known: list[Step] = []
    if options.batch is not None and options.global_batch is not None:
        raise UsageError("forecast: got --batch and --global-batch, expected one of them")
    if options.memory:
        stages = (0, 1, 2, 3) if options.zero is None else (options.zero,)
        found.append(needs.need(_workload(options), _recipe(options), _available(options), stages, options.devices))
        found.append(needs.traffic(_workload(options), _recipe(options), found[0], fabric))
    stepping = bool(options.workload) and fabric is not None and not (options.memory and not options.devices)
    if stepping and fabric is not None:
        counts = options.devices or (large.DEVICES if options.large else ())
        asked = steps.Asked(counts, options.hosts, options.batch, options.global_batch)
        table, known = steps.table(_workload(options), fabric, asked)
        found.append(table)
    if options.large:
        if fabric is None:
            raise UsageError("forecast: --large: got no fabric, expected one; describe it and give --fabric FILE.toml")
        size = memory.given("--size", options.size) if options.size else 0
        if not size and options.workload:
            size = sum(_workload(options).sizes())
        found.append(large.table(fabric, size or 100_000_000, options.devices or large.DEVICES))
    if options.reference:
        reference = references.load(options.reference)
        mine = [
            references.Yours(one.devices, one.samples, one.rate.middle, one.extrapolated)
            for one in known
            if one.rate is not None
        ]
        left_out = ""
        if mine and (parameters := _workload(options).parameters) != reference.parameters:
            mine, left_out = [], f"{_workload(options).title} ({parameters:,} parameters)"
        found.append(references.table(reference, fabric, mine, left_out))
    if not found and options.workload:
        raise UsageError(
            f"forecast: --workload: got {options.workload} and no fabric, expected RESULTS or --fabric FILE.toml, "
            "which tell what its collectives cost; give one, or ask --memory, which needs none"
        )
    if not found:
        raise UsageError(
            "forecast: got nothing to answer, expected RESULTS, --workload with RESULTS or --fabric, or one of "
            "--memory, --large, --reference, --replay; see collbench forecast --help"
        )
    return found, known


def _workload(options: PlanOptions) -> Workload:
    if not options.workload:
        names: Sequence[str] = workload.shipped()
        raise UsageError(f"--workload: got none, expected a file or one of {', '.join(names)}; name one")
    chosen = workload.with_compute(workload.load(options.workload), options.compute)
    if options.overlap:
        chosen = replace(chosen, overlap=options.overlap)
    if options.bucketing:
        chosen = replace(chosen, bucketing=replace(chosen.bucketing, kind=options.bucketing))
    if options.dtype:
        chosen = replace(chosen, dtype=options.dtype)
    return chosen if options.zero is None else replace(chosen, zero=options.zero)


def _recipe(options: PlanOptions) -> memory.Recipe:
    activations = memory.given("--activations", options.activations, 0) if options.activations else None
    return memory.Recipe(options.optimizer, options.precision, options.zero or 0, activations)


def _available(options: PlanOptions) -> memory.Available:
    keeps = memory.given("--driver-keeps", options.driver_keeps, 0) if options.driver_keeps else None
    if bool(options.device) == bool(options.device_memory):
        got = "both" if options.device else "neither"
        raise UsageError(
            f"forecast: --memory: got {got} of --device and --device-memory, expected one of them; "
            'write e.g. --device A100-80GB or --device-memory "80 GB"'
        )
    if options.device:
        one = memory.device(options.device)
        return _left(one.memory_bytes, keeps, f"{one.name} ({one.kind}, {one.on}; {one.source})", memory.caution(one))
    size = memory.given("--device-memory", options.device_memory)
    return _left(size, keeps, f"a device of {tables.size(size)}")


def _left(size_bytes: int, keeps_bytes: int | None, name: str, caution: str = "") -> memory.Available:
    if keeps_bytes is not None and keeps_bytes >= size_bytes:
        raise UsageError(
            f"forecast: --driver-keeps: got {tables.size(keeps_bytes)}, expected less than the "
            f"{tables.size(size_bytes)} of the device; correct it"
        )
    return memory.Available(size_bytes, keeps_bytes, name, caution)
