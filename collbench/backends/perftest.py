"""perftest's ib_write_bw between two ranks: what RDMA carries with no library above it.

The second rank starts the server, the first one the client, each on the RDMA port that `collbench.rdma_endpoint`
chooses.
"""

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from functools import cache

from collbench.backends.base import Backend, BoundCall, Measured
from collbench.backends.cuda import driver_problem, visible_devices
from collbench.collectives import Layout, Shape, entry_named
from collbench.dtypes import DTYPES
from collbench.errors import CannotRun, CollbenchError
from collbench.perftest_report import Report, parse, version_in
from collbench.plan import Case
from collbench.rdma_endpoint import Endpoint, endpoint
from collbench.scenario import Measure
from collbench.tethered import Tethered
from collbench.world import World

PROGRAM = "ib_write_bw"

_LEAST_ITERATIONS = 5
"""perftest's own least; a first, short test has so many, and the length of the second follows from it."""
_MOST_BYTES = 1 << 31
"""The longest message of the InfiniBand specification."""
_ANSWER_S = 20.0
_LEAST_S = 10.0
"""Time for a test in any event; perftest sleeps a second for each connection."""
_SPARE_S = 5.0
"""What the ranks keep of a case's time limit for themselves."""
_LISTEN_S = 20.0
_AXES = {
    "call": "blocking",
    "caller": "compiled",
    "placement": "out_of_place",
    "buffer": "plain",
    "buffers": 1,
    "pages": "default",
    "neighbour": "alone",
}
"""What a program does; nothing of it can be varied."""
_END_S = 2.0
"""A server ends when its client has."""


@dataclass(frozen=True)
class _Failure:
    """Why there is no report, and what that makes the row."""

    status: str
    reason: str


class Perftest(Backend):
    """ib_write_bw, for the kernel rdma_write."""

    name = "perftest"
    summary = "perftest's ib_write_bw between two ranks: RDMA without a library (kernel rdma_write)"
    by_itself = True

    @classmethod
    def unavailable(cls) -> str | None:
        if shutil.which(PROGRAM) is None:
            return f"{PROGRAM} is not on PATH; install the package perftest"
        return None

    def __init__(self, group: World) -> None:
        super().__init__(group)
        self._running: Tethered | None = None
        self._endpoint: Endpoint | str = endpoint(os.environ)

    @property
    def library(self) -> str:
        return f"perftest {_version() or 'of unknown version'}"

    def refuse(self, case: Case) -> str | None:
        if entry_named(case.collective).collective.only_backend != self.name:
            return f"perftest has rdma_write alone, and not {case.collective}"
        if self.group.size != 2:
            return f"{PROGRAM} runs between 2 ranks; the group has {self.group.size}"
        if self._unlike(case):
            return f"{PROGRAM} has no {self._unlike(case)}"
        if isinstance(self._endpoint, str):
            return f"{self._host}: {self._endpoint}"
        return cuda_problem(self._host) if case.pattern == "device" else None

    def overflows(self, case: Case, count: int, layout: Layout) -> str | None:
        size = count * DTYPES[case.dtype].itemsize
        return None if 0 < size <= _MOST_BYTES else f"size: got {size} bytes, expected 1 byte to 2 GiB"

    def bind(self, case: Case, count: int, layout: Layout) -> BoundCall:
        raise CannotRun(f"{PROGRAM} is a program of its own: there is no call to bind")

    def measured(self, case: Case, shape: Shape, measure: Measure) -> Measured:
        deadline = time.monotonic() + measure.timeout_s - _SPARE_S
        size = shape.size_bytes
        first = self._test(case, size, _LEAST_ITERATIONS, deadline)
        if isinstance(first, _Failure):
            return first.status, {"reason": first.reason}
        iterations = iterations_of(first, measure)
        report = self._test(case, size, iterations, deadline) if iterations > first.iterations else first
        if isinstance(report, _Failure):
            return report.status, {"reason": report.reason}
        rate = report.bytes_per_s / 1e9
        return "ok", {
            "algorithm": " ".join(self._words(case, size, report.iterations)),
            "warmup_iterations": 0 if report is first else first.iterations,
            "iterations": report.iterations,
            "stopped_by": "iterations" if report.iterations >= measure.most_iterations else "budget",
            "clock": "host",
            "seed": None,  # what it sends is its own
            "algbw_GBps": rate,
            "busbw_GBps": rate,
        }

    def abort(self) -> None:
        if self._running is not None:
            self._running.kill()

    @property
    def _host(self) -> str:
        return self.group.hosts[self.group.rank]

    def _unlike(self, case: Case) -> str:
        """What a case asks for that a program cannot vary; empty where there is nothing."""
        return ", ".join(f"{axis} {getattr(case, axis)}" for axis, own in _AXES.items() if getattr(case, axis) != own)

    def _words(self, case: Case, size: int, iterations: int) -> list[str]:
        """The command on this rank, less the address and the TCP port."""
        assert isinstance(self._endpoint, Endpoint)
        cuda = self.group.local_rank % max(1, visible_devices()) if case.pattern == "device" else None
        return command(self._endpoint, size, iterations, cuda)

    def _test(self, case: Case, size: int, iterations: int, deadline: float) -> Report | _Failure:
        """Run a server and a client; the same on both ranks. Collective."""
        words = self._words(case, size, iterations)
        is_client = self.group.rank == 0
        own = self._client(words, size, iterations, deadline) if is_client else self._server(words, deadline)
        client, server = self.group.all_gather(own)
        if isinstance(client, Report):
            return client
        failures = [one for one in (client, server) if isinstance(one, _Failure)]
        status = "timeout" if any(one.status == "timeout" for one in failures) else "failed"
        reason = "; ".join(one.reason for one in failures)
        if case.pattern == "device" and "allocate MR" in reason:
            remedy = "load nvidia-peermem, which lets an RDMA device reach a GPU's memory"
            return _Failure("skipped", f"{reason}; {remedy}")
        return _Failure(status, reason)

    def _server(self, words: list[str], deadline: float) -> Report | _Failure | None:
        assert isinstance(self._endpoint, Endpoint)
        port = _free_port()
        with Tethered([*words, "-p", str(port)]) as server:
            self._running = server
            up = server.listens(port, min(_LISTEN_S, _left(deadline)))
            self.group.broadcast((self._endpoint.address or self._host, port) if up else None, root=1)
            if up:
                self.group.meet_quietly()  # until the client has ended
            server.wait(_END_S)
        self._running = None
        if up and not server.code:  # a server whose client did not come has no end; the client says why
            return None
        return self._failure(server, "the server" if up else "the server, before it listened,")

    def _client(self, words: list[str], size: int, iterations: int, deadline: float) -> Report | _Failure | None:
        waits: tuple[str, int] | None = self.group.broadcast(None, root=1)
        if waits is None:
            return None
        with Tethered([*words, "-p", str(waits[1]), waits[0]]) as client:
            self._running = client
            client.wait(_left(deadline))
        self._running = None
        self.group.meet_quietly()
        if client.code != 0:
            return self._failure(client, f"the client (of {waits[0]})")
        try:
            return parse(client.out, size_bytes=size, iterations=iterations)
        except CollbenchError as error:
            return _Failure("failed", str(error))

    def _failure(self, program: Tethered, who: str) -> _Failure:
        if program.code is None:
            return _Failure("timeout", f"{PROGRAM} on {self._host}: {who} did not end in time: {program.last_words}")
        told = f"{PROGRAM} on {self._host}: {who} ended with exit code {program.code}: {program.last_words}"
        return _Failure("failed", told)


def command(own: Endpoint, size: int, iterations: int, cuda: int | None = None) -> list[str]:
    """The program and its options: a port, a message, how many of them, in Gbit/s; `cuda` is a device's number."""
    words = [PROGRAM, "-d", own.device, "-i", str(own.port)]
    words += ["-x", str(own.gid_index)] if own.gid_index is not None else []
    words += ["-s", str(size), "-n", str(iterations), "-F", "--report_gbits"]  # -F: a clock that varies is no error
    return words + ([f"--use_cuda={cuda}"] if cuda is not None else [])


def iterations_of(first: Report, measure: Measure) -> int:
    """How many messages take the time of a case, by the rate of a short test."""
    fitting = int(measure.time_budget_s * first.bytes_per_s / first.size_bytes)
    return max(_LEAST_ITERATIONS, min(measure.most_iterations, fitting))


def cuda_problem(host: str) -> str | None:
    """One sentence that says why ib_write_bw cannot take a device's memory on this host; None if it can."""
    if "--use_cuda" not in _answer("--help"):
        return f"{host}: this {PROGRAM} was built without CUDA (its help has no --use_cuda); build perftest with it"
    return driver_problem()


def _left(deadline: float) -> float:
    return max(_LEAST_S, deadline - time.monotonic())


def _version() -> str:
    return version_in(_answer("--version"))


@cache
def _answer(option: str) -> str:
    """What the program says of itself; whatever its exit code, which is not 0 for some."""
    try:
        said = subprocess.run(
            [PROGRAM, option], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout + said.stderr


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])
