"""Slowdowns planted into the calls that are measured: a busy loop of known length, one more call of the `run` list.

`install` makes what puts this module into the ranks of a launch, as tests/fault_injection.py does; PLANTED names a JSON
file there. Each case has its loop, a share of what the case takes by itself (`time_ns`, by bytes). With `shares`
each launch samples every case once for each share, in an order of its own, and rank 0 appends the medians to `to`;
without, the variable SHARE says what all samples of the launch have.
"""

import ctypes
import dataclasses
import functools
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from collbench.backends.base import NO_STATUS, BoundCall, Call, CallList, call_list
from fault_injection import ONCE_IMPORTED

PLANTED, SHARE = "PLANTED", "PLANTED_SHARE"
_CALIBRATED = 1_000_000

_CUSTOM = """\
import importlib.util, os, sys
from pathlib import Path

def changed(module):
    import planting
    planting.patch(module)
"""


def install(folder: Path, content: dict[str, Any]) -> dict[str, str]:
    """Write what plants; the variables that ranks need to find it."""
    folder.mkdir(parents=True, exist_ok=True)
    custom = _CUSTOM + ONCE_IMPORTED % {"module": "collbench.runner", "ranks": list(range(64))}
    (folder / "sitecustomize.py").write_text(custom)
    (folder / "planted.json").write_text(json.dumps(content))
    found = [str(folder), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, found)), PLANTED: str(folder / "planted.json")}


@functools.cache
def _spin() -> Any:
    """A C function that draws so many numbers (Marsaglia's xorshift), each from the last: no compiler shortens that."""
    from numba import types

    from collbench.kernels.jit import c_function

    def spin(steps: Any) -> Any:
        x = np.uint64(0x9E3779B97F4A7C15)
        for _ in range(steps):
            x ^= x << np.uint64(13)
            x ^= x >> np.uint64(7)
            x ^= x << np.uint64(17)
        return x

    return c_function(types.uint64(types.uint64))(spin)


def step_ns(tries: int = 20) -> float:
    """What one step takes where nothing disturbs: a clock would be too coarse for the length of the short loops."""
    call = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(_spin().address)
    took = []
    for _ in range(tries):
        began = time.perf_counter_ns()
        call(_CALIBRATED)
        took.append(time.perf_counter_ns() - began)
    return min(took) / _CALIBRATED


def with_loop(run: CallList, steps: int) -> CallList:
    """The call list with the busy loop as the last call of each rotation; itself where there is nothing to do."""
    if steps == 0:
        return run
    loop = call_list([Call(_spin().address, (steps,), NO_STATUS)])
    return np.ascontiguousarray(np.concatenate([run, np.repeat(loop, run.shape[0], axis=0)], axis=1))


def patch(runner: Any) -> None:
    """Let the runner's samples have the busy loop."""
    content = json.loads(Path(os.environ[PLANTED]).read_text())
    measured, sample = runner.Runner._measured, runner.sample
    now: dict[str, Any] = {}

    def _measured(self: Any, point: Any) -> Any:
        now.update(bytes=point.case.requested_bytes, launch=self.launch)
        return measured(self, point)

    def planted(bound: BoundCall, group: Any, *given: Any, **options: Any) -> Any:
        time_ns = content["time_ns"].get(str(now["bytes"]), 0.0)

        def sampled(share: float) -> Any:
            steps = round(share * time_ns / content["step_ns"])
            return sample(dataclasses.replace(bound, run=with_loop(bound.run, steps)), group, *given, **options)

        shares: list[float] = content.get("shares") or [float(os.environ.get(SHARE, "0"))]
        order = list(shares)
        random.Random(f"{now['launch']}:{now['bytes']}").shuffle(order)  # the same on every rank
        found = {share: sampled(share) for share in order}
        if group.rank == 0 and content.get("to"):
            medians = {share: float(np.median(one.durations_s.max(axis=0))) for share, one in found.items()}
            with Path(content["to"]).open("a") as file:
                file.write(json.dumps({"launch": now["launch"], "bytes": now["bytes"], "medians": medians}) + "\n")
        return found[shares[0]]

    runner.Runner._measured, runner.sample = _measured, planted
