"""CUDA-aware MPI: the library is handed addresses on the device. A library that cannot take them would crash."""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from functools import cache

import numpy as np

from collbench.backends.base import BoundCall, Call, Steps, call_list
from collbench.backends.meeting import mpi_address
from collbench.backends.mpi import function_name
from collbench.backends.mpi_cuda_trial import WRONG_DATA, functions
from collbench.backends.staged import MpiOnDevice
from collbench.collectives import Layout, entry_named
from collbench.plan import Case
from collbench.world import World

_PROBE_S = 60.0
_SYNCHRONISATIONS = 100
_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA
_LAUNCHER_VARIABLE = re.compile(
    "OMPI_(?!MCA_)|OMPI_MCA_(orte_|ess|pmix|num_procs|num_restarts|initial_wdir)|PMIX_(?!MCA_|PREFIX)|PMI_|PRTE_"
    "|HYDRA_|HYDI_|MPI_LOCAL|SLURM_|COLLBENCH_"
)
"""What would make a child a rank of this launch; Open MPI 4 also has it in MCA parameters (orte/mca/schizo/ompi).

What else the user has set decides what the library does with memory of a device, and is the child's as well.
"""
_BUSY = "cudaErrorDevicesUnavailable"

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
        said, ending = _child("-c", _ASK)
        if ending:
            return f"the MPI library could not be asked whether it is CUDA-aware (a child process that tried {ending})"
        library, no = json.loads(said.splitlines()[-1])
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

    def __init__(self, group: World) -> None:
        super().__init__(group)
        self._refused_calls: dict[tuple[str, bool], str | None] = {}

    def refuse(self, case: Case) -> str | None:
        problem = super().refuse(case)
        if problem is not None or not case.dtype:
            return problem
        key = case.call, entry_named(case.collective).collective.reduces
        if key not in self._refused_calls:
            self._refused_calls[key] = self._refuse_call(*key)
        return self._refused_calls[key]

    def _refuse_call(self, call: str, reduces: bool) -> str | None:
        """Say why calls of a form cannot be made; tried once on each host. Collective."""
        if reduces and (fault := crash_in_reductions(self.library, call)):
            return fault
        group = self.group
        first_of_host = group.hosts.index(group.hosts[group.rank]) == group.rank
        tried = probe_problem(call, reduces=reduces, device=self._device) if first_of_host else None
        first = group.first_problem(tried)
        return None if first is None else _cannot(self.library, first[1])

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
    if _BUSY in why:
        return (
            f"what {library} does with memory of the device could not be tried: a child process cannot have the device "
            "beside its rank, as in compute mode exclusive process; set the mode to default, or use backend staged"
        )
    return f"{library} cannot take memory of the device ({why}); use backend staged"


def crash_in_reductions(library: str, call: str) -> str | None:
    """Say why a form of reduction would crash where no trial shows it: a process alone has nothing to add up."""
    if call == "blocking" or not library.startswith("Open MPI"):
        return None
    return (
        f"{library} would add up memory of the device on the host in {call} reductions, and crash "
        "(open-mpi/ompi#9845, #12045); use call blocking, or backend staged"
    )


def probe_problem(call: str = "blocking", *, reduces: bool = False, device: int = 0) -> str | None:
    """Let a child process try a form of call, since a wrong guess is a segmentation fault; what befell it, or None.

    `device` is the number of a visible one.

    Where it got through what only moves data it may still fail in reductions.
    """
    done, ending = _tried(call, device)
    missing = [function for function in functions(call, reduces=reduces) if function not in done]
    return f"a child process that tried {function_name(missing[0], call)} {ending}" if missing else None


@cache
def _tried(call: str, device: int) -> tuple[list[str], str]:
    """The functions that a child got through in a form of call, and what befell it in the next one."""
    said, ending = _child("-m", "collbench.backends.mpi_cuda_trial", call, str(device))
    return said.split(), ending


def _child(*arguments: str) -> tuple[str, str]:
    """Run Python in a process that is no rank of this launch: what it printed, and how it ended, empty for well."""
    environment = {name: value for name, value in os.environ.items() if not _LAUNCHER_VARIABLE.match(name)}
    try:
        child = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace"), f"did not end within {_PROBE_S:g} s"
    return child.stdout.decode(errors="replace"), _ending(child.returncode, child.stderr.decode(errors="replace"))


def _ending(code: int, complaints: str) -> str:
    """How a child ended that did not do what it should; empty for one that did."""
    if code == 0:
        return ""
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    if code == WRONG_DATA:
        return "got wrong data"
    last = (complaints.strip().splitlines() or [f"exit code {code}"])[-1]
    return f"failed: {last[:200]}"


def _median_s(call: Call) -> float:
    """Seconds of one call, by the loop that measures everything."""
    from collbench.kernels.call_loop import call_loop

    nothing = call_list()
    stamps = np.empty((_SYNCHRONISATIONS, 3), np.int64)
    call_loop(nothing, call_list([call]), nothing, 0, 1, stamps)
    return float(np.median(stamps[:, 1] - stamps[:, 0])) * 1e-9
