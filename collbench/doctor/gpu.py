"""GPUs: which devices the ranks have, what of a device that is, and what keeps them from each other's memory."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from collbench.doctor.finding import Finding, on_hosts
from collbench.provenance import compact
from collbench.world import World

CHECK = "gpu"

_P2P = "NVIDIA AI Enterprise documentation, Peer-To-Peer (P2P) CUDA Transfers"
_PROFILE = re.compile(r"(?P<board>[A-Z]+[0-9]+[A-Z]*)-(?:(?P<slices>[0-9]+)-)?(?P<gigabytes>[0-9]+)[A-Z]\w*$")
_WHOLE_GB = {"A100": 40, "A100X": 40, "A100D": 80, "A100DX": 80, "H100": 80, "H100XM": 80, "H200X": 141}
"""The frame buffer of whole boards, by the names that their vGPU types have. (NVIDIA vGPU types reference)"""
_LICENCE = "NVIDIA vGPU documentation, Licensing"

Share = Literal["full", "fractional", "MIG", ""]


@dataclass(frozen=True)
class RankDevice:
    """One rank's device: what NVML tells of it, or why there is none. A process alone looks at all that it sees."""

    rank: int
    host: str
    problem: str = ""
    uuid: str = ""
    cut_short: str = ""
    """Why it sees fewer devices than it was to see."""
    facts: tuple[tuple[str, object], ...] = ()

    def fact(self, name: str) -> str:
        """One of the facts, as text; empty where it is not there."""
        return str(dict(self.facts).get(name, ""))


@dataclass(frozen=True)
class Measured:
    """All ranks' devices, and each host's matrices, in the words of `collbench.devices`."""

    ranks: tuple[RankDevice, ...]
    paths: Mapping[str, list[str]]
    access: Mapping[str, list[str]]


def measure(world: World) -> Measured:
    """Look at all ranks' devices; every rank gets every rank's, and each host's matrices. Collective."""
    from collbench.backends.cuda import cut_short, device_index, device_uuid, driver_problem, visible_devices

    host = world.hosts[world.rank]
    problem = driver_problem()
    if problem is not None:
        mine = [RankDevice(world.rank, host, problem)]
    else:
        from collbench import devices

        try:
            indices = range(visible_devices()) if world.size == 1 else [device_index(world)]
            uuids = [device_uuid(index) for index in indices]
            cut = cut_short() or ""
            mine = [RankDevice(world.rank, host, "", uuid, cut, tuple(devices.facts(uuid).items())) for uuid in uuids]
        except Exception as error:  # CuPy's own types
            mine = [RankDevice(world.rank, host, f"CuPy cannot use the device ({error})")]
    ranks = [one for its in world.all_gather(mine) for one in its]
    own = list(dict.fromkeys(one.uuid for one in ranks if one.host == host and one.uuid))
    matrices: dict[str, tuple[list[str], list[str]]] = {}
    if own and world.local_rank == 0:
        from collbench import devices

        links = devices.links(own)
        matrices = {host: (devices.paths(links), devices.access(links))}
    every = {where: both for one in world.all_gather(matrices) for where, both in one.items()}
    return Measured(
        tuple(ranks),
        {where: paths for where, (paths, _) in every.items()},
        {where: access for where, (_, access) in every.items()},
    )


def findings(
    ranks: Sequence[RankDevice], links: Mapping[str, list[str]], access: Mapping[str, list[str]] | None = None
) -> list[Finding]:
    """Return what is to be known about the devices."""
    problems = {one.problem for one in ranks if one.problem}
    if len(problems) == 1 and all(one.problem for one in ranks):
        return [Finding(CHECK, "note", problems.pop())]
    found = [
        Finding(CHECK, "warning", f"rank {one.rank} on {one.host}: {one.problem}", differs=True)
        for one in ranks
        if one.problem
    ]
    known = [one for one in ranks if not one.problem]
    for name in dict.fromkeys(one.fact("name") for one in known):
        devices = {one.uuid for one in known if one.fact("name") == name}
        found.append(Finding(CHECK, "ok", f"{len(devices)} x {name}"))
    found += _unlike(known)
    # Pods that share a device have host names of their own: NCCL tells devices apart by host and UUID, and lets them.
    shared = [one for one in known if sum(one.uuid == two.uuid for two in known) > 1]
    if shared:
        several = len({one.host for one in shared}) > 1
        numbers = ", ".join(f"{one.rank} on {one.host}" if several else str(one.rank) for one in shared)
        why = "NCCL refuses ranks of a host that share a device, and shared figures are not performance"
        cut = list(dict.fromkeys(one.cut_short for one in shared if one.cut_short))
        seen = "; ".join((f"ranks {numbers} share devices", *cut))
        remedy = "correct CUDA_VISIBLE_DEVICES" if cut else "start one rank a device"
        found.append(Finding(CHECK, "warning", seen, why, remedy, "NCCL user guide"))
    for one in known:
        if one.fact("vgpu_licence").startswith("unlicensed"):
            seen = f"rank {one.rank}: the vGPU has no licence"
            why = "the driver cuts its speed after some time"
            found.append(Finding(CHECK, "warning", seen, why, "license it (nvidia-smi -q shows the state)", _LICENCE))
    hosts = {host: [one for one in known if one.host == host] for host in dict.fromkeys(one.host for one in known)}
    return found + on_hosts(
        {host: [*_shares(mine), *_linked(mine, links.get(host, []), (access or {}).get(host, []))]
         for host, mine in hosts.items()}
    )  # fmt: skip


def share_of(device: RankDevice) -> Share:
    """What part of a board a vGPU or an instance of a device is; empty where it is neither, or is not known."""
    if device.fact("mig_parent") or device.fact("mig_gpu_instance"):
        return "MIG"
    if device.fact("virtualization") != "vGPU":
        return ""
    profile = _PROFILE.search(device.fact("vgpu_type"))
    if profile is None:
        return ""
    if profile["slices"]:
        return "MIG"
    whole = _WHOLE_GB.get(profile["board"])
    if whole is None:
        return ""
    return "full" if int(profile["gigabytes"]) >= whole else "fractional"


def _unlike(known: Sequence[RankDevice]) -> Iterator[Finding]:
    for name, why in (
        ("name", "the slowest device sets what a collective reaches"),
        ("driver_version", "drivers choose paths, and NCCL asks for the same behaviour on every rank"),
    ):
        values = list(dict.fromkeys(one.fact(name) for one in known))
        if len(values) > 1:
            owners = {value: compact(one.rank for one in known if one.fact(name) == value) for value in values}
            told = "; ".join(f"{value} on ranks {ranks}" for value, ranks in owners.items())
            seen = f"the devices' {name.replace('_', ' ')} differs: {told}"
            yield Finding(CHECK, "warning", seen, why, differs=True)


def _shares(mine: Sequence[RankDevice]) -> Iterator[Finding]:
    """What the profiles of one host's vGPUs allow."""
    for share in dict.fromkeys(map(share_of, mine)):
        types = dict.fromkeys(one.fact("vgpu_type") or one.fact("name") for one in mine if share_of(one) == share)
        told = ", ".join(types)
        if share == "fractional":
            seen = f"fractional vGPU profile {told}"
            why = "only vGPUs with the whole frame buffer reach each other's memory; these go by the host's"
            yield Finding(CHECK, "warning", seen, why, "give full time-sliced profiles", _P2P)
        elif share == "MIG":
            why = "instances of a device do not reach each other's memory; what goes between them goes by the host's"
            yield Finding(CHECK, "note", f"instances of a device (MIG): {told}", why, "", _P2P)
        elif share == "full":
            yield Finding(CHECK, "ok", f"full vGPU profile {told}", source=_P2P)
        elif any(one.fact("virtualization") == "vGPU" for one in mine if share_of(one) == share):
            seen = f"whether vGPU profile {told} is a whole device is not known here"
            yield Finding(CHECK, "note", seen, source=_P2P)


def _linked(mine: Sequence[RankDevice], paths: list[str], access: list[str]) -> Iterator[Finding]:
    """What lies between one host's devices."""
    if len(paths) < 2:
        return
    seen = f"links: {'; '.join(paths)}"
    beside = {word for row in paths for word in row.split()} - {"X"}
    virtual = any(one.fact("virtualization") == "vGPU" for one in mine)
    nvlink = any(word.startswith("NV") for word in beside)
    if virtual and not nvlink and any("A100" in one.fact("name") and share_of(one) in ("full", "") for one in mine):
        why = "on A100, unified memory in a VM of several vGPUs switches peer access over NVLink off"
        remedy = "set pciPassthru<n>.cfg.enable_uvm = 0 for each vGPU (vSphere), if the board has NVLink"
        yield Finding(CHECK, "warning", f"vGPUs of A100 without NVLink between them; {seen}", why, remedy, _P2P)
    elif virtual and not nvlink:
        why = "vGPUs reach each other's memory over NVLink only, and only with the whole frame buffer"
        remedy = "give full time-sliced profiles, of devices that NVLink joins (on vSphere a device group)"
        yield Finding(CHECK, "warning", seen, why, remedy, _P2P)
    else:
        yield Finding(CHECK, "ok", seen)
    words = {word for row in access for word in row.split()} - {"X"}
    if "no" in words:
        why = "what goes between such devices goes by the host's memory"
        yield Finding(CHECK, "note", f"peer access is refused between devices: {'; '.join(access)}", why, source=_P2P)
    elif words:
        yield Finding(CHECK, "ok", f"peer access: {'; '.join(access)}")
