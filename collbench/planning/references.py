"""Published systems beside the user's fabric: time to train, split into samples, epochs and step.

What such a comparison can mean is part of its output: most of what differs between two rows is not the interconnect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from collbench.errors import CollbenchError
from collbench.planning import tables, values
from collbench.planning.costs import Range
from collbench.planning.fabric import Fabric
from collbench.planning.tables import Column
from collbench.planning.values import Table
from collbench.units import format_duration, format_rate

FOLDER = Path(__file__).parent / "references"
_GRADIENT_BYTES = 2
"""The published runs reduce 16-bit gradients."""


@dataclass(frozen=True)
class Row:
    """A published time to train; `base` is the smaller system that it is scaled from, `later` its next version."""

    system: str
    accelerator: str
    devices: int
    minutes: float
    batch: int | None
    epochs: int | None
    base: str
    later: str
    note: str


@dataclass(frozen=True)
class Reference:
    """Published rows of one benchmark; `assumed_busbw` (bytes/s) is what the explanations take, not a measurement."""

    name: str
    title: str
    source: str
    samples_per_epoch: int
    parameters: int
    assumed_busbw: float
    rows: tuple[Row, ...]

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients."""
        return self.parameters * _GRADIENT_BYTES

    def row(self, system: str) -> Row:
        """Return the row of a system."""
        return next(row for row in self.rows if row.system == system)

    def rate(self, row: Row) -> float | None:
        """Return samples a second: all samples of all epochs over the time to train."""
        return None if row.epochs is None else self.samples_per_epoch * row.epochs / (row.minutes * 60)

    def step_s(self, row: Row) -> float | None:
        """Return the seconds of a step, evaluation and everything else spread over them."""
        rate = self.rate(row)
        return None if rate is None or row.batch is None else row.batch / rate

    def speedup(self, row: Row) -> float | None:
        """Return how many times faster a row is than the one that it is scaled from."""
        return self.row(row.base).minutes / row.minutes if row.base else None

    def efficiency(self, row: Row) -> float | None:
        """Return the speedup over the growth in devices."""
        speedup = self.speedup(row)
        return None if speedup is None else speedup * self.row(row.base).devices / row.devices


class RowTable(Table):
    """A published row."""

    system: values.Line
    accelerator: values.Line
    devices: values.Devices
    minutes: float
    batch: values.Count | None = None
    epochs: values.Count | None = None
    base: str = ""
    later: str = ""
    note: str = ""


class Document(Table):
    """A file of references."""

    version: values.Schema = Field(alias="schema")
    title: values.Line
    source: values.Line
    samples_per_epoch: values.Count
    parameters: values.Count
    assumed_busbw: values.Rate
    row: list[RowTable]


def load(name: str) -> Reference:
    """Read the references of a name."""
    path = values.find(name, FOLDER, "--reference")
    file = values.check(Document, values.read_toml(path, "a file of references"), path.name, {})
    return Reference(
        path.stem,
        file.title,
        file.source,
        file.samples_per_epoch,
        file.parameters,
        file.assumed_busbw,
        tuple(Row(**one.model_dump()) for one in file.row),
    )


def all_reduce_s(reference: Reference, devices: int) -> float:
    """Return the seconds of one all_reduce of all gradients at the assumed bus bandwidth."""
    return 2 * (devices - 1) / devices * reference.gradient_bytes / reference.assumed_busbw


def on_fabric(reference: Reference, row: Row, fabric: Fabric) -> tuple[Range | None, str]:
    """Return the seconds of that all_reduce on the user's fabric, on as many devices; None and why it does not know."""
    where = fabric.filled(row.devices)
    if where is None:
        return None, f"they do not fill hosts of {fabric.devices_per_host}"
    try:
        split = fabric.cost("all_reduce", reference.gradient_bytes, where)
    except CollbenchError as error:
        return None, str(error)
    return split.total, ""


@dataclass(frozen=True)
class Yours:
    """A forecast step: the batch of all devices, samples a second, and whether it lies beyond what was measured."""

    devices: int
    batch: int
    rate: float
    extrapolated: bool = False


def table(reference: Reference, fabric: Fabric | None, yours: Sequence[Yours] = (), left_out: str = "") -> tables.Table:
    """Return the published rows, beside them the user's fabric; `left_out` is a workload that is another model.

    The time to train of `yours` is for the epochs of a published row of the same batch, and unknown without one.
    """
    columns = [
        Column("system", "system"),
        Column("devices", "devices", tables.grouped),
        Column("minutes", "minutes", tables.minutes),
        Column("batch", "batch", tables.grouped),
        Column("epochs", "epochs"),
        Column("samples_per_s", "samples/s", tables.grouped),
        Column("step_s", "step", tables.duration),
        Column("speedup", "speedup", lambda value: f"{value:.2f}x"),
        Column("efficiency", "efficiency", tables.percent),
        Column("all_reduce_here_s", "all_reduce here", tables.duration),
        Column("note", "note"),
        tables.beyond(),
    ]
    here = {} if fabric is None else {row.system: on_fabric(reference, row, fabric) for row in reference.rows}
    rows: list[dict[str, object]] = [
        {
            "system": row.system,
            "devices": row.devices,
            "minutes": row.minutes,
            "batch": row.batch,
            "epochs": row.epochs,
            "samples_per_s": reference.rate(row),
            "step_s": reference.step_s(row),
            "speedup": reference.speedup(row),
            "efficiency": reference.efficiency(row),
            **_here(here[row.system][0] if here else None),
            "note": row.note or _differs(reference, row),
        }
        for row in reference.rows
    ]
    rows += [_yours(reference, one) for one in yours]
    title, notes = reference.title, [reference.source]
    if fabric is not None:
        notes.append(
            f"all_reduce here: one all_reduce of all {reference.gradient_bytes / 1e6:.1f} MB of 16-bit gradients by "
            f"{fabric.basis}, on as many devices; nothing hidden behind computation"
        )
        notes += fabric.assumptions
        title += f"; beside it all_reduce by {fabric.basis}"
    by_devices = sorted(reference.rows, key=lambda row: row.devices)
    unknown = [(f"{row.devices}", here[row.system][1]) for row in by_devices if here and here[row.system][1]]
    notes += [f"all_reduce here is unknown for {counts} devices: {why}" for counts, why in tables.alike(unknown)]
    if left_out:
        notes.append(
            f"{left_out} is not beside them: the published model has {reference.parameters:,} parameters, and times "
            "of two models say nothing of each other"
        )
    return tables.Table(reference.name, title, columns, rows, [*notes, *meaning(reference)])


def _here(cost: Range | None) -> dict[str, object]:
    if cost is None:
        return {"all_reduce_here_s": None, "extrapolated": False}
    return {"all_reduce_here_s": cost.middle, "extrapolated": cost.extrapolated}


def _differs(reference: Reference, row: Row) -> str:
    base = reference.row(row.base) if row.base else row
    return "" if (row.batch, row.epochs) == (base.batch, base.epochs) else "other batch or epochs than its base"


def _yours(reference: Reference, one: Yours) -> dict[str, object]:
    epochs = {row.epochs for row in reference.rows if row.batch == one.batch and row.epochs is not None}
    known = next(iter(epochs)) if len(epochs) == 1 else None
    return {
        "system": "yours, forecast",
        "devices": one.devices,
        "minutes": None if known is None else reference.samples_per_epoch * known / one.rate / 60,
        "batch": one.batch,
        "epochs": known,
        "samples_per_s": one.rate,
        "step_s": one.batch / one.rate,
        "extrapolated": one.extrapolated,
        "note": "" if known is not None else "epochs to the target are not published for this batch",
    }


def meaning(reference: Reference) -> list[str]:
    """Return what the comparison can and cannot mean, with the figures computed from the rows."""
    pod, one, eight = (
        reference.row(name) for name in ("Graphcore IPU-POD16", "NVIDIA DGX A100 x1", "NVIDIA DGX A100 x8")
    )
    step, ideal = reference.step_s(eight) or 0.0, (reference.step_s(one) or 0.0) * one.devices / eight.devices
    reduce = all_reduce_s(reference, eight.devices)
    gains = [(row, reference.row(row.later)) for row in reference.rows if row.later]
    said = ", ".join(
        f"{old.later} {1 - new.minutes / old.minutes:.0%} less time = {old.minutes / new.minutes:.1f}x"
        for old, new in gains
    )
    return [
        f"{pod.minutes:.1f} against {one.minutes:.1f} minutes is no comparison of interconnects: {pod.devices} IPUs "
        f"stand against {one.devices} GPUs, with batch {pod.batch} and {pod.epochs} epochs against {one.batch} and "
        f"{one.epochs}.",
        f"From {one.devices} to {eight.devices} GPUs a step takes {format_duration(step)} where "
        f"{format_duration(ideal)} would be ideal; of the {format_duration(step - ideal)} lost only about "
        f"{format_duration(reduce)} is all_reduce ({reference.gradient_bytes / 1e6:.1f} MB at an assumed "
        f"{format_rate(reference.assumed_busbw)} of bus bandwidth), and the rest is not the fabric's bandwidth: each "
        f"GPU has {(eight.batch or 0) // eight.devices} images instead of {(one.batch or 0) // one.devices}, and how "
        "long it computes those must be measured.",
        f"From v1.0 to v1.1, half a year, the same machines gained by software ({said}): a gain in software is no gain "
        "in fabric.",
    ]
