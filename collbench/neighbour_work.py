"""The child's side of `neighbour`: `python -m collbench.neighbour_work JOB`, started by `neighbour.start` alone.

It ties its life to its parent's, lets signals through again that the rank keeps from its threads, moves off the ranks'
cores, and works until it is ended. It reports, one line of JSON each: the communicator's identity (empty but for rank
0's, which makes it), that it is busy, or an error.
"""

import contextlib
import ctypes
import json
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collbench.neighbour import decoded, encoded
from collbench.provenance import expanded

_PR_SET_PDEATHSIG = 1
_ROUND_S = 0.005
"""What a round of work takes on a device of its own, about: short against a case, long against a launch."""
_MOST_UNITS = 1 << 30
_THREADS = 256

Queue = Callable[[int], object]
"""Queues so many units of work on the stream."""

_ARITHMETIC = r"""
extern "C" __global__ void arithmetic(float *out, long long rounds) {
    float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
    for (long long i = 0; i < rounds; ++i) {
        a = fmaf(a, 0.999f, 0.5f);
        b = fmaf(b, 0.999f, 0.5f);
        c = fmaf(c, 0.999f, 0.5f);
        d = fmaf(d, 0.999f, 0.5f);
    }
    if (a + b + c + d == 0.125f) out[0] = a;  // never; but the compiler does not know
}
"""


def main(job: dict[str, Any]) -> None:
    """Work until somebody ends this process."""
    _tie(int(job["parent"]))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _move_off(expanded(str(job["taken"])))

    def report(**words: object) -> None:
        os.write(int(job["reports"]), json.dumps(words).encode() + b"\n")

    try:
        _work(job, report)
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        with contextlib.suppress(OSError):
            report(error=text[:1000])
        os._exit(1)


def _work(job: dict[str, Any], report: Callable[..., None]) -> None:
    import cupy

    cupy.cuda.Device(int(job["device"])).use()
    stream = cupy.cuda.Stream(non_blocking=True)
    queue = {"compute": _compute, "copy": _copy, "communicate": _communicate}[job["kind"]](job, stream, report)
    queue(1)  # compiles, connects
    stream.synchronize()
    units = _enough(queue, stream)
    counter = mmap.mmap(int(job["counter"]), mmap.PAGESIZE)
    report(busy=True)
    # Two rounds are always queued, so the device never waits for us; we sleep until the older one is done.
    events = [cupy.cuda.Event(block=True, disable_timing=True) for _ in range(2)]
    done = 0
    while True:
        queue(units)
        events[done % 2].record(stream)
        if done:
            events[(done - 1) % 2].synchronize()
        done += 1
        struct.pack_into("Q", counter, 0, done)


def _enough(queue: Queue, stream: Any) -> int:
    """Return how many units of work make a round."""
    units = 1
    while True:
        began = time.monotonic()
        queue(units)
        stream.synchronize()
        if time.monotonic() - began >= _ROUND_S or units >= _MOST_UNITS:
            return units
        units *= 2


def _compute(job: dict[str, Any], stream: Any, report: Callable[..., None]) -> Queue:
    import cupy

    kernel = cupy.RawKernel(_ARITHMETIC, "arithmetic")
    attributes = cupy.cuda.Device().attributes
    blocks = attributes["MultiProcessorCount"] * max(1, attributes["MaxThreadsPerMultiProcessor"] // _THREADS)
    out = cupy.zeros(1, cupy.float32)
    return lambda units: kernel((blocks,), (_THREADS,), (out, cupy.int64(units)), stream=stream)


def _copy(job: dict[str, Any], stream: Any, report: Callable[..., None]) -> Queue:
    import cupy

    size = int(job["buffer_bytes"])
    source, target = (cupy.cuda.Memory(size) for _ in range(2))
    asynchronously = cupy.cuda.runtime.memcpyAsync

    def queue(units: int) -> None:
        for _ in range(units):
            asynchronously(target.ptr, source.ptr, size, cupy.cuda.runtime.memcpyDeviceToDevice, stream.ptr)

    return queue


def _communicate(job: dict[str, Any], stream: Any, report: Callable[..., None]) -> Queue:
    import cupy
    from cupy.cuda import nccl

    count = int(job["buffer_bytes"]) // 4
    memory = cupy.cuda.Memory(4 * count)
    cupy.cuda.runtime.memset(memory.ptr, 0, 4 * count)
    report(identity=encoded(nccl.get_unique_id()) if job["rank"] == 0 else "")
    with os.fdopen(int(job["orders"])) as orders:
        identity = decoded(json.loads(orders.readline())["identity"])
    communicator = nccl.NcclCommunicator(int(job["ranks"]), identity, int(job["rank"]))

    def queue(units: int) -> None:
        for _ in range(units):
            communicator.allReduce(memory.ptr, memory.ptr, count, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)

    return queue


def _tie(parent: int) -> None:
    """Have the kernel kill this process when its parent goes, and go at once where it has gone already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _move_off(taken: set[int]) -> None:
    """Leave the ranks' cores to them; where they have them all, share all."""
    cores = {int(path.name[3:]) for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*")}
    for wanted in (cores - taken, cores):
        if wanted:
            with contextlib.suppress(OSError):  # the control group may hold none of them
                os.sched_setaffinity(0, wanted)
                return


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
