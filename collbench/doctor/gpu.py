"""GPUs: which devices the ranks have, how they are linked, and what keeps them from reaching each other's memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.doctor.finding import Finding
from collbench.world import World

_VGPU_SOURCE = "NVIDIA AI Enterprise and vGPU documentation: peer-to-peer CUDA transfers over NVLink"


@dataclass(frozen=True)
class RankDevice:
    """One rank's device: what NVML tells of it, or why there is none. A process alone looks at all that it sees."""

    rank: int
    host: str
    problem: str = ""
    uuid: str = ""
    facts: tuple[tuple[str, object], ...] = ()


def measure(world: World) -> tuple[list[RankDevice], dict[str, list[str]]]:
    """Look at all ranks' devices; every rank gets every rank's, and each host's matrix of links. Collective."""
    from collbench.backends.cuda import device_index, device_uuid, driver_problem, visible_devices

    host = world.hosts[world.rank]
    problem = driver_problem()
    if problem is not None:
        mine = [RankDevice(world.rank, host, problem)]
    else:
        from collbench import devices

        try:
            indices = range(visible_devices()) if world.size == 1 else [device_index(world)]
            uuids = [device_uuid(index) for index in indices]
            mine = [RankDevice(world.rank, host, uuid=uuid, facts=tuple(devices.facts(uuid).items())) for uuid in uuids]
        except Exception as error:  # CuPy's own types
            mine = [RankDevice(world.rank, host, f"CuPy cannot use the device ({error})")]
    ranks = [one for its in world.all_gather(mine) for one in its]
    own = [one.uuid for one in ranks if one.host == host and one.uuid]
    links: dict[str, list[str]] = {}
    if own and world.local_rank == 0:
        from collbench import devices

        links = {host: devices.paths(own)}
    return ranks, {where: matrix for one in world.all_gather(links) for where, matrix in one.items()}


def findings(ranks: Sequence[RankDevice], links: dict[str, list[str]]) -> list[Finding]:
    """Return what is to be known about the devices."""
    problems = {one.problem for one in ranks if one.problem}
    if len(problems) == 1 and all(one.problem for one in ranks):
        return [Finding("gpu", "note", problems.pop())]
    found = [Finding("gpu", "warning", f"rank {one.rank} on {one.host}: {one.problem}") for one in ranks if one.problem]
    known = [one for one in ranks if not one.problem]
    for name in dict.fromkeys(str(dict(one.facts).get("name")) for one in known):
        count = sum(dict(one.facts).get("name") == name for one in known)
        found.append(Finding("gpu", "ok", f"{count} x {name}"))
    shared = [one for one in known if sum((one.host, one.uuid) == (two.host, two.uuid) for two in known) > 1]
    if shared:
        numbers = ", ".join(str(one.rank) for one in shared)
        why = "NCCL refuses ranks that share a device, and shared figures are not performance"
        found.append(
            Finding(
                "gpu", "warning", f"ranks {numbers} share devices", why, "start one rank a device", "NCCL user guide"
            )
        )
    for one in known:
        facts = dict(one.facts)
        if str(facts.get("vgpu_licence")).startswith("unlicensed"):
            seen = f"rank {one.rank}: the vGPU has no licence"
            found.append(Finding("gpu", "warning", seen, "the driver cuts its speed after some time", "license it"))
    return found + _linked(known, links)


def _linked(known: Sequence[RankDevice], links: dict[str, list[str]]) -> list[Finding]:
    found = []
    virtual = any(dict(one.facts).get("virtualization") == "vGPU" for one in known)
    for host, matrix in links.items():
        if len(matrix) < 2:
            continue
        seen = f"links on {host}: {'; '.join(matrix)}"
        beside = {word for row in matrix for word in row.split()} - {"X"}
        if virtual and not any(word.startswith("NV") for word in beside):
            why = "vGPUs reach each other's memory over NVLink only, and only with the whole frame buffer"
            found.append(Finding("gpu", "warning", seen, why, "give full time-sliced profiles", _VGPU_SOURCE))
        else:
            found.append(Finding("gpu", "ok", seen))
    return found
