"""What a reader must know of a workload."""

from collbench.planning.workload import Bucketing, Workload
from collbench.units import format_duration, format_size

UNNAMED_EXPERTS = (
    "THE EXPERTS ARE NOT DIVIDED: the workload has an all_to_all of expert parallelism and names no tensors as its "
    "experts, so each device holds all of them and their gradients are reduced among all; give their names as experts "
    "in their [[group]]"
)


def described(workload: Workload) -> list[str]:
    """Return what a reader must know of a workload, a line each."""
    found = workload.buckets()
    sizes = workload.sizes()
    largest = max(bucket.size_bytes for bucket in found)
    lines = [
        f"{workload.title}: {len(workload.tensors)} tensors, {workload.parameters:,} parameters, "
        f"{sum(sizes):,} B of {workload.dtype} gradients a device ({workload.source})",
        f"{len(found)} message{'s' * (len(found) > 1)} a step by {how(workload.bucketing)}, the largest {largest:,} B",
    ]
    if workload.zero:
        lines.append(f"ZeRO stage {workload.zero}: reduce_scatter and all_gather in place of all_reduce")
    lines += [
        f"{one.parallel} parallel: {one.times} {one.collective} a step among {one.ranks} devices, "
        f"{format_size(one.bytes_per_sample)} for each of the {workload.samples} of a batch; the layers wait for them"
        for one in workload.exchanges
    ]
    if experts := workload.expert_parameters:
        lines.append(
            f"experts: {experts:,} of the parameters are divided among {workload.expert_ranks} devices, and their "
            "gradients travel apart from the others', among the devices that hold the same experts"
        )
    elif any(one.parallel == "expert" for one in workload.exchanges):
        lines.append(UNNAMED_EXPERTS)
    if workload.tensor_ranks > 1:
        lines.append(f"every tensor is divided by {workload.tensor_ranks} (the few that are kept whole are small)")
    return lines


def how(bucketing: Bucketing) -> str:
    """Name how gradients are cut."""
    match bucketing.kind:
        case "ddp":
            return f"DDP's buckets (first {format_size(bucketing.first_bytes)}, cap {format_size(bucketing.cap_bytes)})"
        case "horovod":
            cycle = format_duration(bucketing.cycle_s)
            return f"Horovod's fusion (threshold {format_size(bucketing.threshold_bytes)}, cycle {cycle})"
        case "layers":
            return "layers"
        case _:
            return "no bucketing"
