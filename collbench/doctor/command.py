"""The doctor as a command: alone, or on every rank under mpirun; before a launch it waits for the peers."""

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collbench.doctor.checks import CHECKS, Check, examine
from collbench.doctor.finding import Finding, Seen, in_order
from collbench.errors import CannotRun, CollbenchError
from collbench.output import complain, deliver
from collbench.start import launcher_rank, launcher_size, start_world, stop_world
from collbench.watchdog import Watchdog, block_signals
from collbench.world import World

_START_TIMEOUT_S = 120.0
_CHECK_TIMEOUT_S = 120.0
_LET_TELL_S = 5.0
"""How long ranks that have nothing to tell stay, so that the first one can."""


@dataclass(frozen=True)
class DoctorOptions:
    """What `collbench doctor` was told. `seconds` is how long noise is measured: 0 is not at all."""

    scenario: str | None = None
    seconds: float = 3.0
    as_json: bool = False
    wait_s: float | None = None
    peers: str | None = None
    port: int = 22


def doctor(options: DoctorOptions) -> int:
    """Examine this machine, or all ranks' machines; 0, or 7 where something makes measuring pointless."""
    found = _wait(options)
    block_signals()
    watchdog = Watchdog(launcher_rank())
    watchdog.start()
    watchdog.enter("start", options.wait_s or _START_TIMEOUT_S)
    refused, unjoined = "", ""
    try:
        world = start_world()
    except CannotRun as error:
        refused = str(error)
    except Exception as error:  # MPI's own type
        unjoined = " ".join(str(error).split()) or type(error).__name__
    if refused or unjoined:
        if launcher_rank() > 0:  # the first one tells of it; launchers end all when one goes
            time.sleep(_LET_TELL_S)
            watchdog.stop()
            return CannotRun.exit_code
        world = World(hosts=(socket.gethostname(),))
    watchdog.rank = world.rank
    try:
        said, more = _examine(options, world, watchdog, refused, unjoined)
    except CollbenchError as error:  # the same on all ranks
        if world.rank == 0:
            complain(f"collbench: {error}")
        stop_world(world)
        watchdog.stop()
        return error.exit_code
    found = in_order([*found, *more])
    unprinted = None
    if world.rank == 0:
        try:
            deliver(f"{_text(options, said, found)}\n")
        except CollbenchError as error:  # the other ranks must not wait for this one
            unprinted = error
    watchdog.enter("finalize", _START_TIMEOUT_S)
    stop_world(world)
    watchdog.stop()
    if unprinted is not None:
        raise unprinted
    return CannotRun.exit_code if any(one.level == "problem" for one in found) else 0


def _wait(options: DoctorOptions) -> list[Finding]:
    """Wait for the peers where there are some to wait for; ranks of one launch wait for each other in MPI's start."""
    if options.wait_s is None or (options.peers is None and launcher_size() is not None):
        return []
    if launcher_rank() > 0:
        return []
    from collbench.doctor.peers import peers_of, wait

    return [wait(peers_of(options.peers), options.port, options.wait_s)]


def _examine(
    options: DoctorOptions, world: World, watchdog: Watchdog, refused: str, unjoined: str
) -> tuple[dict[str, Any], list[Finding]]:
    """Do all checks; what was seen, for JSON and the table of noise, and what was found. Collective."""
    from collbench.doctor import gpu, launcher

    found: list[Finding] = []
    facts: dict[str, list[dict[str, Any]]] = {}
    said: dict[str, Any] = {"facts": facts}
    if options.scenario is not None:
        watchdog.enter("scenario", _CHECK_TIMEOUT_S)
        ranks, more = _needs(options.scenario, world)
        facts["scenario"] = _plain(ranks)
        found += more
    if options.seconds > 0:
        from collbench.doctor import noise

        watchdog.enter("noise", options.seconds + _START_TIMEOUT_S)
        said["noise"] = noise.measure(world, options.seconds)
        found += noise.findings(said["noise"])
    begun = Check(
        launcher.CHECK,
        lambda world: launcher.measure(world=world, refused=refused, unjoined=unjoined),
        launcher.findings,
    )
    for check in (begun, *CHECKS):
        watchdog.enter(check.name, _CHECK_TIMEOUT_S)
        ranks, more = examine(check, world)
        facts[check.name] = _plain(ranks)
        found += more
    watchdog.enter("gpu", _CHECK_TIMEOUT_S)
    said["gpu"] = gpu.measure(world)
    return said, found + gpu.findings(said["gpu"].ranks, said["gpu"].paths, said["gpu"].access)


def _needs(name: str, world: World) -> tuple[list[Seen[Any]], list[Finding]]:
    from collbench.doctor import needs
    from collbench.scenario import load

    scenario = world.from_root(lambda: load(name))
    mine = needs.measure(world=world, scenario=scenario)
    ranks = [Seen(rank, world.hosts[rank], facts) for rank, facts in enumerate(world.all_gather(mine))]
    return ranks, needs.findings(ranks)


def _plain(ranks: Sequence[Seen[Any]]) -> list[dict[str, Any]]:
    return [{"rank": one.rank, "host": one.host, **asdict(one.facts)} for one in ranks]


def _text(options: DoctorOptions, said: dict[str, Any], found: Sequence[Finding]) -> str:
    measured = said.get("noise", [])
    if options.as_json:
        devices = said["gpu"]
        return json.dumps(
            {
                "findings": [asdict(one) for one in found],
                "ranks": [asdict(one) for one in measured],
                "devices": [asdict(one) for one in devices.ranks],
                "device_links": devices.paths,
                "device_access": devices.access,
                "facts": said["facts"],
            }
        )
    from collbench.doctor.noise import table

    lines = [*table(measured), ""] if measured else []
    return "\n".join([*lines, *(one.text() for one in found)])
