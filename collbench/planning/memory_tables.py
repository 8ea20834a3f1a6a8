"""The answers to `forecast --memory`: what each device holds, on how many it fits, and what the sharding costs."""

from collections.abc import Sequence

from collbench.errors import CollbenchError
from collbench.planning import large, memory, tables
from collbench.planning.fabric import Fabric
from collbench.planning.tables import Column, Table
from collbench.planning.workload import Workload


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
    parts = workload.tensor_ranks
    parameters = -(-workload.parameters // parts)
    rows = []
    for stage in stages:
        one = memory.Recipe(recipe.optimizer, recipe.precision, stage, recipe.activations_bytes)
        smallest = memory.smallest(parameters, one, available.left)
        counts = [-(-count // parts) for count in devices] or [smallest or (memory.MOST_DEVICES if stage else 1)]
        for count in counts:
            held = memory.need(parameters, one, count)
            rows.append(
                {
                    "zero": stage,
                    "devices": count * parts,
                    "weights_bytes": held.weights,
                    "gradients_bytes": held.gradients,
                    "optimizer_bytes": held.optimizer,
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
            for name in ("weights", "gradients", "optimizer", "activations", "total")
        ),
        Column("fits", "fits"),
        Column("left_bytes", "left", tables.size),
        Column("smallest_devices", "smallest", str),
    ]
    weights, gradients, kept = recipe.per_parameter()
    notes = [
        f"{workload.title}: {workload.parameters:,} parameters; {recipe.precision} precision with {recipe.optimizer} "
        f"holds {weights} + {gradients} + {kept} = {weights + gradients + kept} bytes for each",
        f"against {tables.size(available.left)} of {available.name}",
    ]
    if available.caution:
        notes.append(available.caution)
    if parts > 1:
        notes.append(f"tensor parallelism divides the model among {parts} devices; ZeRO divides each part further")
    experts = next((one.ranks for one in workload.exchanges if one.parallel == "expert"), 1)
    if experts > 1:
        notes.append(
            f"the experts are NOT divided here: with expert parallelism each of {experts} devices holds a part of "
            "them, and less than the table says; which tensors are experts, the workload does not tell"
        )
    if available.keeps_bytes is None:
        notes.append("what the driver keeps of the memory is not taken off: give --driver-keeps (nvidia-smi shows it)")
    if recipe.activations_bytes is None:
        notes.append("ACTIVATIONS AND WORKSPACE ARE NOT IN IT: measure them and give --activations; nothing is guessed")
    notes.append(
        "smallest: the least number of devices on which that stage fits, by what is in the table; none: up to "
        f"{memory.MOST_DEVICES * parts:,} devices"
    )
    return Table("memory", f"{workload.title}: memory of each device", columns, rows, notes)


def traffic(workload: Workload, recipe: memory.Recipe, held: Table, fabric: Fabric | None) -> Table:
    """Return the collectives of a step for each row of the first table that fits."""
    parts = workload.tensor_ranks
    rows, unknown = [], {}
    for row in held.rows:
        if row["fits"] != "fits":
            continue
        one = memory.Recipe(recipe.optimizer, recipe.precision, row["zero"], recipe.activations_bytes)
        for each in memory.traffic(-(-workload.parameters // parts), one, row["devices"] // parts):
            time_s, why = (None, "") if fabric is None else _time(fabric, each, row["devices"], parts)
            unknown[why] = ""
            cells = {
                "zero": row["zero"],
                "devices": row["devices"],
                "collective": each.collective,
                "when": each.when,
                "size_bytes": each.size_bytes,
                "sent_bytes": each.sent_bytes,
                "time_s": time_s,
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
    ]
    notes = [f"a time is unknown: {why}" for why in unknown if why]
    notes += [] if rows else ["no gradient or weight travels: each stage fits without dividing anything, or nowhere"]
    return Table("traffic", f"{workload.title}: what travels in a step where it fits", columns, rows, notes)


def _time(fabric: Fabric, one: memory.Traffic, devices: int, parts: int) -> tuple[float | None, str]:
    if parts > 1:
        return None, "tensor parallelism puts the devices that share gradients where no fabric was asked about"
    on_host = min(devices, fabric.devices_per_host)
    if devices % on_host:
        return None, f"{devices} devices do not fill hosts of {on_host}"
    try:
        return fabric.cost(one.collective, one.size_bytes, large.layout(fabric, devices)).total.middle, ""
    except CollbenchError as error:
        return None, str(error)
