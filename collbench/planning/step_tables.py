"""The answer to `forecast --workload`: steps over device and host counts, with what was assumed."""

from collections.abc import Iterator
from dataclasses import dataclass

from collbench.errors import CollbenchError, UsageError
from collbench.planning import tables
from collbench.planning.fabric import Fabric
from collbench.planning.step import Step, forecast, limits
from collbench.planning.tables import Column, Table
from collbench.planning.workload import Workload
from collbench.planning.workload_text import described
from collbench.units import format_duration


@dataclass(frozen=True)
class Asked:
    """Counts of devices and hosts, and the batch of each device or of all together.

    Without hosts, as few as hold the devices; without devices, what the hosts hold.
    """

    devices: tuple[int, ...] = ()
    hosts: tuple[int, ...] = ()
    batch: int | None = None
    global_batch: int | None = None


def table(workload: Workload, fabric: Fabric, asked: Asked) -> tuple[Table, list[Step]]:
    """Return the table, and its steps."""
    found: list[Step] = []
    refused: list[tuple[str, ValueError | CollbenchError]] = []
    for devices, hosts in _layouts(fabric, asked):
        try:
            if devices > hosts * fabric.devices_per_host:
                raise ValueError(f"a host has {_count(fabric.devices_per_host, 'device')}")
            batch = _batch(workload, asked, devices)
            found.append(forecast(workload, fabric, devices, hosts, batch))
        except (ValueError, CollbenchError) as error:
            refused.append((f"{_count(devices, 'device')} on {_count(hosts, 'host')}", error))
    if not found and refused and isinstance(first := refused[0][1], CollbenchError):
        raise first
    left_out = [f"{layouts}: {reason}" for layouts, reason in tables.alike((one, str(e)) for one, e in refused)]
    if not found:
        reasons = "; ".join(left_out) or "no count given"
        raise UsageError(
            f"forecast: got no layout that can be ({reasons}), expected others; change --devices or --hosts"
        )
    columns = [
        Column("devices", "devices", tables.grouped),
        Column("hosts", "hosts", tables.grouped),
        Column("batch", "batch", tables.grouped),
        Column("compute_s", "compute", tables.duration),
        Column("communication_vm_s", "comm VM", tables.duration),
        Column("communication_across_s", "comm hosts", tables.duration),
        Column("exposed_s", "exposed", tables.duration),
        *tables.ranged("step", "s", "step", tables.duration),
        *tables.ranged("samples_per_s", "", f"{workload.samples}/s", tables.number),
        Column("efficiency", "efficiency", tables.percent),
        Column("communication_share", "comm share", tables.percent),
        Column("limit", "limit"),
        Column("next", "next"),
        tables.beyond(),
    ]
    rows = [_row(step, found[0]) for step in found]
    notes = [*described(workload), *_assumed(workload, found), *fabric.assumptions]
    notes += [f"left out: {line}" for line in left_out]
    if sentence := limits(found):
        notes.append(sentence)
    return Table("steps", f"{workload.title} on {fabric.name}: a training step", columns, rows, notes), found


def _row(step: Step, base: Step) -> dict[str, object]:
    efficiency = step.efficiency(base)
    return {
        "devices": step.devices,
        "hosts": step.hosts,
        "batch": step.batch or None,
        "compute_s": step.compute_s,
        "communication_vm_s": None if step.communication.together else step.communication.vm.middle,
        "communication_across_s": step.communication.across.middle,
        "exposed_s": None if step.exposed_s is None else step.exposed_s.middle,
        **tables.spread("step", "s", step.step_s),
        **tables.spread("samples_per_s", "", step.rate),
        "efficiency": None if efficiency is None else efficiency.middle,
        "communication_share": step.share,
        "limit": step.limit,
        "next": step.rest(base),
        "extrapolated": step.extrapolated,
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}"


def _layouts(fabric: Fabric, asked: Asked) -> Iterator[tuple[int, int]]:
    if not asked.hosts:
        counts = asked.devices or _doubling(fabric.devices_per_host)
        for devices in counts:
            yield devices, fabric.hosts(devices)
    for hosts in asked.hosts:
        for devices in asked.devices or (hosts * fabric.devices_per_host,):
            yield devices, hosts


def _doubling(most: int) -> tuple[int, ...]:
    counts = [1]
    while counts[-1] * 2 <= most:
        counts.append(counts[-1] * 2)
    return (*counts, most) if counts[-1] < most else tuple(counts)


def _batch(workload: Workload, asked: Asked, devices: int) -> int:
    groups = max(1, devices // workload.tensor_ranks)
    if asked.global_batch is not None:
        if asked.global_batch % groups:
            raise ValueError(f"a batch of {asked.global_batch} does not divide by {groups}")
        return asked.global_batch // groups
    if asked.batch is not None:
        return asked.batch
    known = sorted(workload.compute_s or {})
    if len(known) == 1:
        return known[0]
    got = f"several that have a time ({', '.join(map(str, known))})" if known else "none"
    if not known and not workload.exchanges:
        return 0
    raise UsageError(
        f"forecast: --batch: got {got}, expected the batch of each device; give --batch N or --global-batch N"
    )


def _assumed(workload: Workload, found: list[Step]) -> list[str]:
    if all(step.compute_s is None for step in found):
        return ["no time of computation is known, so there is no step: measure one and give --compute BATCH=TIME"]
    lines = []
    base = found[0]
    match workload.overlap:
        case "none":
            lines.append("overlap none: all communication follows the computation")
        case "full":
            lines.append("overlap full: the step is the longer of computation and communication, which is a best case")
        case _:
            lines.append(
                f"overlap buckets: backward is the last {workload.backward:.0%} of the computation, gradients become "
                "ready in proportion to their bytes, last layer first, and each message waits for the one before it"
            )
            if workload.bucketing.kind == "horovod" and not workload.zero:
                cycle = format_duration(workload.bucketing.cycle_s)
                lines.append(
                    f"Horovod looks every {cycle} and fuses what is ready then: messages are smaller than above"
                )
    lines += [
        "computation is as long on every device and every step, and communication takes no time from it (a GPU's "
        "collectives do occupy some of its processors)",
        "low and high take all costs at their bounds together",
        "efficiency: samples a second and device over those of the first row "
        f"({_count(base.devices, 'device')}, batch {base.batch})"
        + ", which is EXTRAPOLATED, beyond what was measured"
        * base.extrapolated,
    ]
    if len({step.batch for step in found}) > 1:
        lines.append(
            "the batch of a device differs between rows: what efficiency loses beyond the share of communication, "
            "computation loses at a smaller batch; where computation is the limit, next names what of them costs most"
        )
    return lines
