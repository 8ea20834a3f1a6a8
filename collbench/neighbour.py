"""The neighbour of a rank: another process that keeps the rank's device busy while the rank is measured.

    neighbour = start("communicate", group, device)    collective over the group; on the main thread
    ...                                                measure
    neighbour.alive(), neighbour.rounds()              is it there, and did it get on
    neighbour.stop()                                   once all ranks have measured: communicate needs every neighbour

    compute         arithmetic on all of the device
    copy            copies within the device's memory
    communicate     an all_reduce among the neighbours of all ranks, two or more, through a communicator of their own

`start` returns once every rank's neighbour has done a first round of work, or raises CannotRun (Agreed, where one
crashed or hung) on every rank and leaves none behind. A neighbour has no part in MPI, holds none of the rank's outputs
open, and dies with the rank, however that ends. It runs on cores that no rank of the host has, where there are any.

The child's side is `neighbour_work`. They talk through two pipes and a counter in shared memory.
"""

import base64
import contextlib
import json
import mmap
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from collbench.errors import Agreed, CannotRun, UsageError
from collbench.provenance import compact
from collbench.world import World

KINDS = {
    "compute": "arithmetic on all of the device",
    "copy": "copies within the device's memory",
    "communicate": "an all_reduce among the neighbours of all ranks",
}

BUFFER_BYTES = 128 << 20
"""More than the caches of today's devices hold."""
START_LIMIT_S = 60.0
"""For an interpreter, CuPy, a context, a compiled kernel and a communicator, on a device that others use as well."""
_END_LIMIT_S = 5.0

_ENDED, _SILENT = "it ended with", "no sign of work in"

_FOREIGN = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_", "HYDI_", "MPI_", "MPICH_", "MPIR_", "I_MPI_", "NCCL_DEBUG")
"""Variables that make a process a rank, or have it write into the rank's log."""


class Neighbour:
    """A neighbour that runs."""

    def __init__(self, kind: str, process: "subprocess.Popen[bytes]", reports: int, orders: int, counter: int) -> None:
        self.kind = kind
        self._process = process
        self._reports, self._orders, self._counter = reports, orders, counter
        self._rounds = mmap.mmap(counter, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ)
        self._began = time.monotonic()
        self._unread = b""
        self._said = ""
        self._done = 0

    def __enter__(self) -> "Neighbour":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def alive(self) -> bool:
        """Say whether it still runs."""
        return self._process.poll() is None

    def rounds(self) -> int:
        """Return how many rounds of work, of some milliseconds on a device of its own, it has done."""
        if not self._rounds.closed:
            self._done = int(struct.unpack_from("Q", self._rounds)[0])
        return self._done

    def problem(self) -> str | None:
        """One sentence that says why it is gone; None while it runs."""
        if self.alive():
            return None
        while not self._said:
            report = self._report(0.0)
            if report is None:
                break
        return self._said or f"{_ENDED} {_ending(self._process.returncode)}"

    def stop(self, limit_s: float = _END_LIMIT_S) -> None:
        """End it: TERM, and KILL after the limit. May be called again."""
        for end in (self._process.terminate, self._process.kill):
            if self._process.poll() is None:
                end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(limit_s)
        if not self._rounds.closed:
            self.rounds()
            self._rounds.close()
            for descriptor in (self._reports, self._orders, self._counter):
                os.close(descriptor)

    def wait_for(self, word: str, deadline: float) -> Any:
        """Return what it reports under a word; CannotRun where it says what is wrong, ends, or is not in time."""
        while True:
            left = deadline - time.monotonic()
            report = self._report(max(0.0, left))
            if report is not None and word in report:
                return report[word]
            if report is None:
                raise CannotRun(self.problem() or f"{_SILENT} {time.monotonic() - self._began:.0f} s")

    def order(self, **order: object) -> None:
        """Tell it something."""
        os.write(self._orders, json.dumps(order).encode() + b"\n")

    def _report(self, wait_s: float) -> dict[str, Any] | None:
        """Return its next report; None where there is none in this time, or never will be."""
        deadline = time.monotonic() + wait_s
        poll = select.poll()  # select itself knows no descriptor beyond 1023
        poll.register(self._reports, select.POLLIN)
        while b"\n" not in self._unread:
            ready = poll.poll(1000 * max(0.0, deadline - time.monotonic()))
            read = os.read(self._reports, 1 << 16) if ready else b""
            if not read:
                if ready:  # it has closed its end, and is about to be gone
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(_END_LIMIT_S)
                return None
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        report: dict[str, Any] = json.loads(line)
        self._said = str(report.get("error", self._said))
        return report


def start(
    kind: str, group: World, device: int, *, buffer_bytes: int = BUFFER_BYTES, limit_s: float = START_LIMIT_S
) -> Neighbour:
    """Start a neighbour beside each rank of a group, on the visible device with this number; collective.

    `buffer_bytes` of device memory are taken for communicate, twice as many for copy. The limit is for each rank's own.
    """
    if kind not in KINDS:
        raise UsageError(f"neighbour: got {kind!r}, expected one of {', '.join(KINDS)}")
    if kind == "communicate" and group.size == 1:
        # In one rank NCCL's all_reduce in place queues nothing: the device would be idle.
        raise CannotRun("neighbour communicate needs 2 ranks or more: one has nobody to communicate with")
    deadline = time.monotonic() + limit_s
    others = group.all_gather((group.hosts[group.rank], sorted(os.sched_getaffinity(0))))
    taken = {core for host, cores in others if host == group.hosts[group.rank] for core in cores}
    job = {"kind": kind, "device": device, "rank": group.rank, "ranks": group.size, "buffer_bytes": buffer_bytes}
    made: list[Neighbour] = []
    try:
        first = group.first_problem(_tried(lambda: made.append(_spawn(kind, job | {"taken": compact(taken)}))))
        if first is None and kind == "communicate":
            # All have their device and memory before any waits for another in the library.
            identity: list[str] = []
            first = group.first_problem(_tried(lambda: identity.append(made[0].wait_for("identity", deadline))))
            if first is None:
                order = {"identity": group.broadcast(identity[0])}
                first = group.first_problem(_tried(lambda: made[0].order(**order)))
        if first is None:
            first = group.first_problem(_tried(lambda: made[0].wait_for("busy", deadline)))
        if first is None:
            return made[0]
    except BaseException:
        _stop(made)
        raise
    _stop(made)
    where = "" if group.size == 1 else f" of {group.named(first[0])}"
    # What it says itself (no memory, no such device) is this machine's; a crash or a hang is worth another try.
    raise (Agreed if first[1].startswith((_ENDED, _SILENT)) else CannotRun)(f"neighbour {kind}{where}: {first[1]}")


def encoded(identity: Any) -> str:
    """Write a communicator's identity, bytes in CuPy 14 and a tuple of numbers before, as text."""
    numbers = [number & 0xFF for number in identity]
    kind = "b" if isinstance(identity, bytes) else "t"
    return kind + base64.b64encode(bytes(numbers)).decode()


def decoded(text: str) -> Any:
    """Read what `encoded` wrote."""
    content = base64.b64decode(text[1:])
    return content if text[0] == "b" else tuple(number - 256 if number > 127 else number for number in content)


def _tried(work: Callable[[], object]) -> str | None:
    """Do what may fail on this rank alone; in words what went wrong."""
    try:
        work()
    except (CannotRun, OSError) as error:
        return str(error)
    return None


def _stop(made: list[Neighbour]) -> None:
    for one in made:
        one.stop()


def _spawn(kind: str, job: Mapping[str, object]) -> Neighbour:
    """Start the process, with nothing of ours but the ends of the pipes that are its."""
    reports, theirs = os.pipe()
    orders, ours = os.pipe()
    counter = os.memfd_create("collbench-neighbour", os.MFD_CLOEXEC)
    try:
        os.ftruncate(counter, mmap.PAGESIZE)
        whole = dict(job) | {"parent": os.getpid(), "reports": theirs, "orders": orders, "counter": counter}
        # No preexec_fn: what would run between fork and exec in a process with MPI, CUDA and threads may hang. The
        # child ties itself to us first of all, and finds out if it came too late.
        process = subprocess.Popen(
            [sys.executable, "-m", "collbench.neighbour_work", json.dumps(whole)],
            env=_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs, orders, counter),
        )
    except BaseException:
        for descriptor in (reports, ours, counter):
            os.close(descriptor)
        raise
    finally:
        os.close(theirs)
        os.close(orders)
    return Neighbour(kind, process, reports, ours, counter)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith(_FOREIGN)}


def _ending(code: int | None) -> str:
    if code is None:
        return "no exit code"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
