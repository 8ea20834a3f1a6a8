"""A program for several ranks: bind, prepare, time and verify cases with one backend, and print what each rank saw.

Its argument is a file of JSON: {"backend": its name, "cases": [axes that differ from DEFAULT, "count", and what is
special (see `outcome`)]}. Rank 0 prints a list of JSON: a list for each case, with what it came to on each rank.
"""

import ctypes
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from collbench.backends import backend_named
from collbench.backends.base import NO_STATUS, Backend, BoundCall, Call, Step, call_list
from collbench.backends.on_stream import OnStream
from collbench.collectives import collective_of
from collbench.dtypes import DTYPES
from collbench.errors import CollbenchError
from collbench.pattern import Pattern
from collbench.plan import Case
from collbench.scenario import Measure
from collbench.start import start_world, stop_world
from collbench.timing import Sampled, loop_of, sample
from collbench.verify import Check, check_case
from collbench.world import World

QUICK = Measure(time_budget_s=0.003, least_time_s=0.0, least_iterations=2, most_iterations=32, warmup_time_s=0.0)
DEFAULT = Case(
    variant="", backend="", collective="", call="blocking", dtype="float32", operation="", root="",
    placement="out_of_place", caller="compiled", mode="latency", sync="library", buffer="plain", buffers=1,
    pages="default", pattern="", topology="world", requested_bytes=0,
)  # fmt: skip
_PARAMETERS = 2 + 9  # of cuLaunchKernel, in a call of a list


def outcome(world: World, backend: Backend, axes: dict[str, Any]) -> dict[str, Any]:
    """What one case came to on this rank.

    `set`: attributes of the backend from here on. `shorten`: on that rank the last element is left out. `repeat`: so
    many calls in a row whose results feed the next one. `absent`: that rank does not call. `late`: that rank calls
    later than the others. `swap`: the rank's first two copies have each other's source.
    """
    for name, value in axes.pop("set", {}).items():
        setattr(type(backend), name, value)
    names = ("shorten", "swap", "repeat", "absent", "late")
    count, special = axes.pop("count"), {name: axes.pop(name, None) for name in names}
    case = replace(DEFAULT, **axes)
    refused = backend.refuse(case)
    if refused is not None:
        return {"refused": refused}
    collective = collective_of(case.collective, case.pattern, world.size)
    layout = backend.layout(case, count)
    try:
        bound = backend.bind(case, count, layout)
    except CollbenchError as error:
        return {"failed": str(error)}
    found: dict[str, Any] = {"algorithm": bound.algorithm, "notes": bound.notes}
    found |= {"taken": taken(bound)}
    if isinstance(backend, OnStream):
        found["planned"] = backend.device_bytes(case, layout)
    if special["repeat"] is not None:
        found["right"] = repeated(world, bound, count, special["repeat"])
    elif special["absent"] is not None:
        found["status"] = without(world, bound, special["absent"])
    else:
        operation = case.operation or "move"
        pattern = Pattern(DTYPES[case.dtype], operation, collective.contributors(world.size), int(case.case_id[1:], 16))
        check = Check(world.rank, layout, pattern)
        check.prepare_all(bound.buffers)
        world.all_gather(None)
        if special["shorten"] == world.rank:
            shorten(world, bound)
        if special["swap"] == world.rank:
            swap(bound)
        if special["late"] == world.rank:
            delay(bound)
        sampled = sample(bound, world, QUICK, mode=case.mode, step_s=1e-8, timed_ranks=collective.timed_ranks)
        damage = check_case(bound, check, timed=True)
        found["failed"] = sampled.failed
        found["times"] = times_of(sampled)
        found["damage"] = damage and damage.on(world.rank)
    bound.close()
    return found


def shorten(world: World, bound: BoundCall) -> None:
    """Let the calls' kernels and copies leave out the last element of one byte."""
    driver = ctypes.CDLL("libcuda.so.1")

    def address(name: str) -> int:
        return ctypes.cast(getattr(driver, name), ctypes.c_void_p).value or 0

    copies = [address(name) for name in ("cuMemcpyAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2")]
    from collbench.kernels import peer_cuda

    peer = peer_cuda.arguments(world.size, {})
    assert peer.dtype.fields is not None
    # Which parameter counts, and where in it.
    parameter, offset = {"copy.cu": (2, 0), "reduce.cu": (3, 0)}.get(
        bound.library_call, (0, peer.dtype.fields["count"][1])
    )
    counted = set()
    for call in bound.run.reshape(-1, bound.run.shape[-1]):
        if call[0] in copies:
            call[4] -= np.uint64(1)
        elif call[0] == address("cuLaunchKernel"):
            counted.add(ctypes.c_uint64.from_address(int(call[_PARAMETERS]) + 8 * parameter).value + offset)
    for place in counted:
        ctypes.c_uint64.from_address(place).value -= 1


def swap(bound: BoundCall) -> None:
    """Let the first two of the driver's copies in each rotation have each other's source."""
    copy = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuMemcpyAsync, ctypes.c_void_p).value
    for rotation in bound.run:
        first, second = [call for call in rotation if call[0] == copy][:2]
        first[3], second[3] = int(second[3]), int(first[3])


def times_of(sampled: Sampled) -> dict[str, float]:
    """Medians over samples, in seconds, that the group's rank 0 knows."""
    if sampled.device_s is None or sampled.entry_s is None or not sampled.durations_s.size:
        return {}
    spread = sampled.entry_s.max(axis=0) - sampled.entry_s.min(axis=0)
    times = {"device": sampled.device_s, "host": sampled.durations_s, "enqueue": sampled.enqueue_s}
    medians = {name: float(np.median(one.max(axis=0))) for name, one in times.items()}
    return medians | {"skew": float(np.median(spread))}


def taken(bound: BoundCall) -> list[int]:
    """Bytes of the allocations behind the buffers."""
    driver, sizes = ctypes.CDLL("libcuda.so.1"), []
    for memory in (memory for one in bound.buffers for memory in one.memories):
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        address = ctypes.c_uint64(memory.address)
        if driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address) == 0:
            sizes.append(size.value)
    return sizes


def delay(bound: BoundCall) -> None:
    """Let 50 ms pass before each call that is made after priming."""
    prime = bound.prime

    def primed() -> None:
        prime()
        if bound.steps is not None:
            bound.steps = replace(bound.steps, run=late_step(bound.steps.run))
            return
        usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value or 0
        first = call_list(*[[Call(usleep, (50_000,), NO_STATUS)]] * bound.run.shape[0])
        bound.run = np.concatenate([first, bound.run], axis=1)

    bound.prime = primed


def late_step(run: Step) -> Step:
    def late(k: int) -> None:
        time.sleep(0.05)
        run(k)

    return late


def repeated(world: World, bound: BoundCall, count: int, times: int) -> bool:
    """Whether so many sums in place, without a pause between them, are right: each one multiplies by the ranks."""
    import cupy

    from collbench.backends.cuda import DeviceMemory

    memory = bound.buffers[0].recv.memory
    assert isinstance(memory, DeviceMemory)
    data = memory._part(0, count)
    data[:] = cupy.arange(count, dtype=np.uint32) * np.uint32(7) + np.uint32(world.rank)
    cupy.cuda.Device().synchronize()
    status = loop_of(bound)(0, times, np.empty((1, 3), np.int64))
    ranks = world.size
    first = np.arange(count, dtype=np.uint32) * np.uint32(7 * ranks) + np.uint32(ranks * (ranks - 1) // 2)
    expected = first * np.uint32(pow(ranks, times - 1, 2**32))
    return status == 0 and bool((data.get() == expected).all())


def without(world: World, bound: BoundCall, absent: int) -> list[float] | None:
    """The status of a call that one rank does not make, and of the next one, which must not wait again."""
    bound.prime()
    world.all_gather(None)
    bound.meet = call_list()
    statuses: list[float] | None = None
    if world.rank != absent:
        loop, stamps = loop_of(bound), np.empty((1, 3), np.int64)
        began = time.monotonic()
        statuses = [loop(k, 1, stamps) for k in range(50)]
        statuses = [statuses[0], statuses[-1], time.monotonic() - began]
    return statuses


def run(path: Path) -> None:
    given = json.loads(path.read_text())
    world = start_world()
    backend = backend_named(given["backend"])(world)
    outcomes = [world.gather(outcome(world, backend, axes)) for axes in given["cases"]]
    if world.rank == 0:
        print(json.dumps(outcomes))
    backend.close()
    stop_world(world)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
