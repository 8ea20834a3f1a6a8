"""The answers to `forecast --memory`: what each device holds, on how many it fits, and what the sharding costs."""

from collections.abc import Sequence

from collbench.errors import CollbenchError, UsageError
from collbench.planning import groups, memory, tables
from collbench.planning.costs import Range
from collbench.planning.fabric import Fabric
from collbench.planning.tables import Column, Table
from collbench.planning.workload import Workload
from collbench.planning.workload_text import UNNAMED_EXPERTS, how


def need(
    workload: Workload,
    recipe: memory.Recipe,
    available: memory.Available,
    stages: Sequence[int],
    devices: Sequence[int] = (),
) -> Table:
    """Return what each device holds, by ZeRO stage and number of devices, and where it fits.

    Without `devices` there is a row for each stage, with the smallest number of devices on which it fits.
    """
    parts, model = workload.tensor_ranks, memory.model_of(workload)
    ranks, least = model.expert_ranks, groups.multiple(workload)
    refused = [_refused(workload, count, least) for count in devices if count % least]
    if refused and len(refused) == len(devices):
        raise UsageError(f"forecast: {refused[0]}")
    whole = [count for count in devices if not count % least]
    rows = []
    for stage in stages:
        one = memory.Recipe(recipe.optimizer, recipe.precision, stage, recipe.activations_bytes)
        smallest = memory.smallest(model, one, available.left)
        most = max(1, memory.MOST_DEVICES * parts // least) * least if stage else least
        counts = whole or [most if smallest is None else smallest * parts]
        for count in counts:
            held = memory.need(model, one, count // parts)
            rows.append(
                {
                    "zero": stage,
                    "devices": count,
                    "weights_bytes": held.weights,
                    "gradients_bytes": held.gradients,
                    "optimizer_bytes": held.optimizer,
                    "gathered_bytes": held.gathered,
                    "activations_bytes": recipe.activations_bytes,
                    "total_bytes": held.total,
                    "fits": "fits" if held.total <= available.left else "does not fit",
                    "left_bytes": max(0, available.left - held.total),
                    "smallest_devices": "none" if smallest is None else smallest * parts,
                }
            )
    columns = [
        Column("zero", "ZeRO"),
        Column("devices", "devices", tables.grouped),
        *(
            Column(f"{name}_bytes", name, tables.size)
            for name in ("weights", "gradients", "optimizer", "gathered", "activations", "total")
        ),
        Column("fits", "fits"),
        Column("left_bytes", "left", tables.size),
        Column("smallest_devices", "smallest", str),
    ]
    weights, gradients, kept = recipe.per_parameter()
    notes = [
        *(f"left out: {reason}" for reason in refused),
        f"{workload.title}: {workload.parameters:,} parameters; {recipe.precision} precision with {recipe.optimizer} "
        f"holds {weights} + {gradients} + {kept} = {weights + gradients + kept} bytes for each",
        f"against {tables.size(available.left)} of {available.name}",
    ]
    if available.caution:
        notes.append(available.caution)
    if parts > 1:
        notes.append(f"tensor parallelism divides the model among {parts} devices; ZeRO divides each part further")
    if workload.expert_parameters:
        notes.append(
            f"experts: {workload.expert_parameters:,} of the parameters are divided among {ranks} devices; ZeRO "
            "divides each part further among the devices that hold the same one"
        )
    elif any(one.parallel == "expert" for one in workload.exchanges):
        notes.append(UNNAMED_EXPERTS)
    if 3 in stages:
        notes.append(
            f"gathered: of the {len(model.units)} messages of {how(workload.bucketing)} ZeRO 3 has two neighbours' "
            "weights and the gradients of one of them in whole, beside its shards: it gathers one ahead, as in the step"
        )
    if available.keeps_bytes is None:
        notes.append("what the driver keeps of the memory is not taken off: give --driver-keeps (nvidia-smi shows it)")
    if recipe.activations_bytes is None:
        notes.append("ACTIVATIONS AND WORKSPACE ARE NOT IN IT: measure them and give --activations; nothing is guessed")
    else:
        notes.append(
            "WORKSPACE (of libraries and of communication, and what lies idle between allocations) IS IN IT ONLY AS "
            "FAR AS --activations HAS IT"
        )
    notes.append(
        "smallest: the least number of devices on which that stage fits, by what is in the table; none: up to "
        f"{memory.MOST_DEVICES * parts:,} devices"
    )
    return Table("memory", f"{workload.title}: memory of each device", columns, rows, notes)


def _refused(workload: Workload, devices: int, least: int) -> str:
    below, reason = devices // least * least, groups.misfit(workload, devices)
    near = f"{below} or {below + least}" if below else f"{least}"
    return f"--devices: got {devices}, expected a multiple of {least} ({reason}); give {near}"


def traffic(workload: Workload, recipe: memory.Recipe, held: Table, fabric: Fabric | None) -> Table:
    """Return the collectives of a step for each row of the first table that fits."""
    parts, model = workload.tensor_ranks, memory.model_of(workload)
    rows, unknown = [], list[tuple[str, str]]()
    for row in held.rows:
        if row["fits"] != "fits":
            continue
        one = memory.Recipe(recipe.optimizer, recipe.precision, row["zero"], recipe.activations_bytes)
        for each in memory.traffic(model, one, row["devices"] // parts):
            cost, why = (None, "") if fabric is None else _cost(workload, fabric, each, row["devices"])
            unknown += [(f"{row['devices']}", why)] if why else []
            cells = {
                "zero": row["zero"],
                "devices": row["devices"],
                "collective": each.collective,
                "when": each.when,
                "size_bytes": each.size_bytes,
                "sent_bytes": each.sent_bytes,
                "time_s": None if cost is None else cost.middle,
                "extrapolated": cost is not None and cost.extrapolated,
            }
            rows.append(cells)
    columns = [
        Column("zero", "ZeRO"),
        Column("devices", "devices", tables.grouped),
        Column("collective", "collective"),
        Column("when", "when"),
        Column("size_bytes", "size", tables.size),
        Column("sent_bytes", "each sends", tables.size),
        Column("time_s", "time, unhidden", tables.duration),
        tables.beyond(),
    ]
    title = f"{workload.title}: what travels in a step where it fits"
    notes: list[str] = []
    if fabric is not None:
        title += f"; times by {fabric.basis}"
        notes += fabric.assumptions
    notes += [f"a time is unknown for {counts} devices: {why}" for counts, why in tables.alike(unknown)]
    notes += [] if rows else ["no gradient or weight travels: each stage fits without dividing anything, or nowhere"]
    return Table("traffic", title, columns, rows, notes)


def _cost(workload: Workload, fabric: Fabric, one: memory.Traffic, devices: int) -> tuple[Range | None, str]:
    where = fabric.filled(devices)
    if where is None:
        return None, f"they do not fill hosts of {fabric.devices_per_host}"
    try:
        layout = groups.of(workload, devices, where.hosts).reducing(one.expert)
        return fabric.cost(one.collective, one.size_bytes, layout).total, ""
    except (ValueError, CollbenchError) as error:
        return None, str(error)
