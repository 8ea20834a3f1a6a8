"""The devices of a launch's ranks: what environment.json says of them, and what a resume must find again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from collbench.backends import backend_named
from collbench.collectives.peer_copy import PeerCopy
from collbench.plan import Plan
from collbench.scenario import Scenario
from collbench.world import World


@dataclass(frozen=True)
class RankDevices:
    """`facts` are of this rank's device, `described` is what rank 0 knows of all.

    `used[rank]` are the UUIDs of the devices that a rank measures on, the first one its own; none where it cannot read
    them.
    """

    facts: Mapping[str, object] = field(default_factory=dict)
    described: Mapping[str, object] = field(default_factory=dict)
    used: tuple[tuple[str, ...], ...] = ()


def find(world: World, scenario: Scenario, plan: Plan) -> RankDevices:
    """Look at the devices of all ranks, where the plan has anything to do with devices. Collective."""
    if not any(backend_named(name).on_device for name in {case.backend for case in plan.cases}):
        return RankDevices()
    from collbench import devices
    from collbench.backends.cuda import device_index, device_uuid, driver_problem, visible_devices

    uuids: list[str] = []
    if (problem := driver_problem()) is None:
        try:
            several = _copies_between_its_devices(world, scenario)
            uuids = [device_uuid(k) for k in (range(visible_devices()) if several else [device_index(world)])]
        except Exception as error:  # CuPy's own types; the backend will say what it cannot do
            problem = str(error)
    described: dict[str, Any] = {}
    if len(uuids) > 1:
        described["visible_devices"] = [devices.facts(uuid) for uuid in uuids]
    host = world.hosts[world.rank]
    found = world.all_gather((host, uuids))
    own = [uuid for where, its in found if where == host for uuid in its]
    links = devices.links(own) if world.local_rank == 0 else []
    rows = world.gather((host, devices.paths(links), devices.access(links))) or []
    described["device_links"] = {where: paths for where, paths, _ in rows if paths}
    described["device_access"] = {where: access for where, _, access in rows if access}
    return RankDevices(
        facts={"device": devices.facts(uuids[0]) if uuids else {"cuda": problem}},
        described=described,
        used=tuple(tuple(str(UUID(uuid)) for uuid in its) for _, its in found),
    )


def _copies_between_its_devices(world: World, scenario: Scenario) -> bool:
    """Whether one rank has all the devices that it sees."""
    return world.size == 1 and any(PeerCopy.name in sweep.collectives for sweep in scenario.sweeps)
