"""CUDA-aware MPI: the library is handed addresses on the device. A library that cannot take them would crash."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from functools import cache

import numpy as np

from collbench.backends.base import BoundCall, Call, Steps, call_list
from collbench.backends.meeting import mpi_address
from collbench.backends.staged import MpiOnDevice
from collbench.collectives import Layout
from collbench.plan import Case
from collbench.world import World

_PROBE_S = 60.0
_SYNCHRONISATIONS = 100
_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA
_LAUNCHER_VARIABLES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_", "HYDI_", "MPI_LOCAL", "SLURM_", "COLLBENCH_")
"""What would make a child a rank of this launch."""

_PROBE = """
import mpi4py
mpi4py.rc.thread_level = "serialized"
from mpi4py import MPI
import cupy
comm, sent = MPI.COMM_SELF, cupy.arange(1, 4097, dtype=cupy.float32)
got = cupy.zeros_like(sent)
cupy.cuda.get_current_stream().synchronize()
comm.Allreduce(sent, got)
comm.Sendrecv(sent, 0, 0, got, 0, 0)
comm.Alltoall(sent, got)
raise SystemExit(0 if (got.get() == sent.get()).all() else 3)
"""


_ASK = """
import json
from collbench.backends.mpi_cuda import says_no
from collbench.start import start_world, stop_world
world = start_world()
print(json.dumps([world.library, says_no()]))
stop_world(world)
"""
"""The question may be asked only after MPI_Init (Open MPI's manual, MPIX_Query_cuda_support)."""


class MpiCuda(MpiOnDevice):
    """MPI on device memory. Each stream is synchronised before MPI is called, and what that costs is told apart."""

    name = "mpi_cuda"
    summary = "CUDA-aware MPI on device memory"

    @classmethod
    def lacking(cls) -> str | None:
        problem = cls.unavailable()
        if problem is not None:
            return problem
        child = _child(_ASK)
        if child is None or child.returncode:
            return f"the MPI library could not be asked whether it is CUDA-aware ({_ending(child)})"
        library, no = json.loads(child.stdout.splitlines()[-1])
        if no is not None:
            return _not_aware(library, no)
        return None if (trial := probe_problem()) is None else _cannot(library, trial)

    @classmethod
    def misfit(cls, world: World) -> str | None:
        problem = super().misfit(world)
        if problem is not None:
            return problem
        first = world.first_problem(says_no())
        if first is not None:
            return _not_aware(world.library, first[1])
        first = world.first_problem(probe_problem() if world.local_rank == 0 else None)
        return None if first is None else _cannot(world.library, first[1])

    def bind(self, case: Case, count: int, layout: Layout) -> BoundCall:
        bound = super().bind(case, count, layout)
        wait = Call(self._driver.address("cuStreamSynchronize"), (self._stream.ptr,))
        bound.stream_sync_s = _median_s(wait)
        if bound.steps is not None:
            meet = bound.steps.meet

            def met(k: int) -> None:
                meet(k)
                self._stream.synchronize()

            bound.steps = Steps(met, bound.steps.run, bound.steps.finish)
        else:
            bound.meet = np.concatenate([bound.meet, call_list([wait])], axis=1)
        return bound


def says_no() -> str | None:
    """What the library answers when it says itself that it is not CUDA-aware; None where it does not say so."""
    if address := mpi_address("MPIX_Query_cuda_support"):
        return None if ctypes.CFUNCTYPE(ctypes.c_int)(address)() else "MPIX_Query_cuda_support says no"
    if address := mpi_address("MPIX_GPU_query_support"):
        supported = ctypes.c_int(0)
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(address)(_CUDA, ctypes.addressof(supported))
        return None if supported.value else "MPIX_GPU_query_support says no"
    return None


def _not_aware(library: str, why: str) -> str:
    return f"{library} is not CUDA-aware ({why}); use backend staged, or an MPI that was built with CUDA"


def _cannot(library: str, why: str) -> str:
    return f"{library} cannot take memory of the device ({why}); use backend staged"


@cache
def probe_problem() -> str | None:
    """Let a child process try, since a wrong guess is a segmentation fault; what befell it, None if all was well."""
    child = _child(_PROBE)
    return _ending(child) if child is None or child.returncode else None


def _child(program: str) -> "subprocess.CompletedProcess[str] | None":
    """Run a program in a process that is no rank of this launch; None where it did not end in time."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHER_VARIABLES)}
    try:
        return subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return None


def _ending(child: "subprocess.CompletedProcess[str] | None") -> str:
    """How a child ended that did not do what it should."""
    if child is None:
        return f"a child process that tried did not end within {_PROBE_S:g} s"
    if child.returncode < 0:
        return f"a child process that tried died of {signal.Signals(-child.returncode).name}"
    if child.returncode == 3:
        return "a child process that tried got wrong data"
    last = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    return f"a child process that tried failed: {last[:200]}"


def _median_s(call: Call) -> float:
    """Seconds of one call, by the loop that measures everything."""
    from collbench.kernels.call_loop import call_loop

    nothing = call_list()
    stamps = np.empty((_SYNCHRONISATIONS, 3), np.int64)
    call_loop(nothing, call_list([call]), nothing, 0, 1, stamps)
    return float(np.median(stamps[:, 1] - stamps[:, 0])) * 1e-9
