"""Large scale: from 8 to 4,096 devices tier by tier, by closed forms or by fits of what was measured."""

from collections.abc import Sequence

from collbench.errors import CollbenchError, UsageError
from collbench.planning import tables
from collbench.planning.costs import Range
from collbench.planning.fabric import Fabric, Layout
from collbench.planning.tables import Column

DEVICES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)

_INSIDE = ("reduce_scatter", "all_gather")


def layout(fabric: Fabric, devices: int) -> Layout:
    """Return as few hosts as hold the devices, or those measured; UsageError where they would not be full."""
    found = fabric.filled(devices)
    if found is None:
        on_host = fabric.devices_per_host
        raise UsageError(
            f"--devices: got {devices}, expected a multiple of the {on_host} devices of a host; give one such as "
            f"{devices // on_host * on_host}"
        )
    return found


def table(fabric: Fabric, size_bytes: int, devices: Sequence[int] = DEVICES) -> tables.Table:
    """Return what an all_reduce of a size costs, and where."""
    columns = [
        Column("devices", "devices", tables.grouped),
        Column("hosts", "hosts", tables.grouped),
        Column("reduce_scatter_vm_s", "reduce_scatter", tables.duration),
        Column("all_reduce_across_s", "all_reduce across", tables.duration),
        Column("all_gather_vm_s", "all_gather", tables.duration),
        *tables.ranged("all_reduce", "s", "all_reduce", tables.duration),
        Column("algbw_bytes_per_s", "algbw", tables.rate),
        Column("busbw_bytes_per_s", "busbw", tables.rate),
        Column("first_byte_s", "of 8 B", tables.duration),
        tables.beyond(),
        tables.beyond("first_byte_extrapolated", "of 8 B, beyond what was measured"),
    ]
    rows, left_out = [], list[tuple[str, CollbenchError]]()
    for count in devices:
        try:
            where = layout(fabric, count)
            split = fabric.cost("all_reduce", size_bytes, where)
        except CollbenchError as error:
            left_out.append((f"{count}", error))
            continue
        total, parted = split.total, fabric.whole is None and where.hosts > 1
        first = _smallest(fabric, where)
        scatter, gather = (_inside(fabric, name, size_bytes, where) if parted else None for name in _INSIDE)
        rows.append(
            {
                "devices": count,
                "hosts": where.hosts,
                "reduce_scatter_vm_s": scatter,
                "all_reduce_across_s": split.across.middle if parted else None,
                "all_gather_vm_s": gather,
                **tables.spread("all_reduce", "s", total),
                "algbw_bytes_per_s": size_bytes / total.middle if total.middle else None,
                "busbw_bytes_per_s": 2 * (count - 1) / count * size_bytes / total.middle if total.middle else None,
                "first_byte_s": None if first is None else first.middle,
                "extrapolated": total.extrapolated,
                "first_byte_extrapolated": first is not None and first.extrapolated,
            }
        )
    if not rows:
        raise left_out[0][1]
    notes = [
        *(f"left out: {counts} devices: {reason}" for counts, reason in tables.alike((n, str(e)) for n, e in left_out)),
        *fabric.assumptions,
        f"as few hosts as hold the devices, {fabric.devices_per_host} on each"
        + ("" if fabric.placed is None else ", or those that so many were measured on")
        + ", and all of them healthy and alike",
        "noise, stragglers and failures, which grow with the number of hosts, are not in it: no rank waits for another",
    ]
    return tables.Table("large", f"all_reduce of {tables.size(size_bytes)} by {fabric.basis}", columns, rows, notes)


def _inside(fabric: Fabric, collective: str, size_bytes: int, where: Layout) -> float:
    return fabric.vm(collective, size_bytes, where.on_host).middle if where.on_host > 1 else 0.0


def _smallest(fabric: Fabric, where: Layout) -> Range | None:
    try:
        return fabric.cost("all_reduce", 8, where).total
    except CollbenchError:
        return None
