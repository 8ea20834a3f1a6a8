"""The doctor as a command: alone, or on every rank under mpirun."""

import json
import sys
from dataclasses import asdict

from collbench.doctor import gpu, noise
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
    if world.rank == 0:
        if as_json:
            print(
                json.dumps(
                    {
                        "findings": [asdict(one) for one in found],
                        "ranks": [asdict(one) for one in ranks],
                        "devices": [asdict(one) for one in devices],
                        "device_links": links,
                    }
                )
            )
        else:
            print("\n".join([*noise.table(ranks), "", *(one.text() for one in found)]))
        sys.stdout.flush()
    stop_world(world)
    watchdog.stop()
    return 7 if any(one.level == "problem" for one in found) else 0
