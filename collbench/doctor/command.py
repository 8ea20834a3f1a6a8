"""The doctor as a command: alone, or on every rank under mpirun."""

import json
from dataclasses import asdict

from collbench.doctor import gpu, noise
from collbench.errors import CollbenchError
from collbench.output import deliver
from collbench.start import start_world, stop_world
from collbench.watchdog import Watchdog, block_signals

_START_TIMEOUT_S = 120.0


def doctor(seconds: float, as_json: bool) -> int:
    """Examine this machine, or all ranks' machines; 0, or 7 where something makes measuring pointless."""
    block_signals()
    watchdog = Watchdog()
    watchdog.start()
    watchdog.enter("start", _START_TIMEOUT_S)
    world = start_world()
    watchdog.rank = world.rank
    watchdog.enter("noise", seconds + _START_TIMEOUT_S)
    ranks = noise.measure(world, seconds)
    watchdog.enter("gpu", _START_TIMEOUT_S)
    devices, links = gpu.measure(world)
    found = [*noise.findings(ranks), *gpu.findings(devices, links)]
    unprinted = None
    if world.rank == 0:
        if as_json:
            said = {
                "findings": [asdict(one) for one in found],
                "ranks": [asdict(one) for one in ranks],
                "devices": [asdict(one) for one in devices],
                "device_links": links,
            }
            text = json.dumps(said)
        else:
            text = "\n".join([*noise.table(ranks), "", *(one.text() for one in found)])
        try:
            deliver(f"{text}\n")
        except CollbenchError as error:  # the other ranks must not wait for this one
            unprinted = error
    stop_world(world)
    watchdog.stop()
    if unprinted is not None:
        raise unprinted
    return 7 if any(one.level == "problem" for one in found) else 0
