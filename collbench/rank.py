"""What each process of a launch does: come up, learn the plan from rank 0, run it, go down."""

import atexit
import faulthandler
import gc
import importlib.util
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collbench.books import LAUNCHED, Books, Job, done_in
from collbench.errors import CollbenchError, UsageError
from collbench.output import complain
from collbench.watchdog import Watchdog, block_signals

if TYPE_CHECKING:
    from collbench.plan import Case, Plan
    from collbench.results import RunFolder
    from collbench.scenario import Scenario
    from collbench.world import World

START_TIMEOUT_S = 120.0
"""For everything before the first case: a missing peer in MPI_Init shows as this."""
STOP_TIMEOUT_S = 30.0
"""For MPI_Finalize, where some libraries hang after all is done."""


_NCCL_RANKS = 2
"""So many ranks NCCL can have on a device as it is; more hang where the device has no room for all of their blocks, and
NCCL_MAX_CTAS is to limit them (NCCL user guide, NCCL_MULTI_RANK_GPU_ENABLE)."""
_LEAST_MULTIPROCESSORS = 14
"""Of the smallest instance of a device (MIG 1g of an A100): one block of some rank on each."""


@dataclass(frozen=True)
class RankOptions:
    """What `collbench run` was told."""

    scenario: str
    output: Path | None = None
    resume: bool = False
    variant: str = ""
    launch: int = 0
    launches: int | None = None
    """None: as the run began with, and one for a new run."""
    quiet: bool = False
    choices: bool = False
    """Nothing is timed: the libraries are asked what they choose, for the launches that follow."""


_BESIDE = ("collbench.kernels.call_loop", "collbench.kernels.pattern", "collbench.runner")
"""What is imported while MPI_Init waits for the other ranks."""


def main(options: RankOptions) -> int:
    """Run this process's part; its exit code. Must be called before anything has started a thread."""
    block_signals()
    # What is imported stays: to look among it for garbage costs a tenth of a second now, and more when the interpreter
    # ends, unless it is frozen (below).
    gc.disable()
    # numba asks for scipy, and where it is installed takes a quarter of a second to import it for nothing.
    sys.modules.setdefault("scipy", None)  # type: ignore[arg-type]
    # Each rank is one of many on its host: a thread pool for linear algebra that nobody uses costs start-up.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    # numpy's import would set these itself while MPI_Init reads the environment in another thread: getenv crashes then.
    for name in ("OPENBLAS_MAIN_FREE", "GOTOBLAS_MAIN_FREE"):
        os.environ.setdefault(name, "1")
    from collbench.start import Deferred, after_rank_0, import_all, launcher_rank, start_world, stop_world

    watchdog = Watchdog(launcher_rank())
    start = os.environ.get(LAUNCHED, "")
    if start and options.output is not None:
        watchdog.on_fault = keep_fault(options.output, start)
    watchdog.start()
    watchdog.enter("start", START_TIMEOUT_S)
    # Rank 0's reading of the scenario (pydantic) and every rank's numba go on while MPI_Init waits.
    scenario = Deferred(lambda: _load(options.scenario))
    if launcher_rank() == 0:
        scenario.start()
    imports: Deferred[None] = Deferred(lambda: import_all(*_BESIDE))
    try:
        world = start_world(imports.start)
    except CollbenchError as error:
        if start:
            watchdog.die(error)  # it may be this rank's alone
        watchdog.stop()
        # Rank 0 mostly has the same to say, and with that the launcher ends this one; else it is this rank's alone.
        after_rank_0(launcher_rank())
        complain(f"collbench: {error}")
        return error.exit_code
    watchdog.rank = world.rank
    try:
        code = _run(options, world, watchdog, scenario.result, imports.result)
    except CollbenchError as error:  # the same on all ranks
        if world.rank == 0:
            watchdog.tell(error)
        code = error.exit_code
    except Exception as error:
        import traceback

        traceback.print_exc()
        watchdog.die(CollbenchError(f"{type(error).__name__}: {error}; this is a defect of collbench"))
        raise
    watchdog.enter("finalize", STOP_TIMEOUT_S)
    sys.stdout.flush()
    stop_world(world)
    watchdog.stop()
    # Nobody watches what the libraries do when the interpreter ends; this is C, and needs nobody.
    faulthandler.dump_traceback_later(STOP_TIMEOUT_S, exit=True)
    return code


def keep_fault(path: Path, start: str) -> Callable[[dict[str, Any]], bool]:
    """Write faults to the run folder; they are told there to `collbench launch`, which tells the user."""
    from collbench.results import RunFolder

    folder, launched = RunFolder(path), LAUNCHED in os.environ
    return lambda fault: folder.write_fault(int(fault["rank"]), fault | {"start": start}) and launched


def _load(name: str) -> "Scenario":
    from collbench.scenario import load

    return load(name)


def _run(
    options: RankOptions,
    world: "World",
    watchdog: Watchdog,
    load: Callable[[], "Scenario"],
    wait_for_imports: Callable[[], None],
) -> int:
    from collbench.results import RunFolder

    if world.rank != 0:
        wait_for_imports()  # while rank 0 makes the run folder
    job = world.from_root(lambda: _job(options, world, load()))
    folder = RunFolder(job.folder)
    watchdog.on_fault = keep_fault(job.folder, job.start)
    wait_for_imports()
    from collbench.choices import load as load_choices
    from collbench.runner import Runner
    from collbench.verdicts import exit_code

    gc.freeze()
    gc.enable()
    world = replace(world, ranks_per_device=job.scenario.measure.ranks_per_device)
    set_up_nccl(job, options, world)
    plan = _plan(job, options, world)
    locked = _LOCKED[0] if world.rank == 0 else folder
    launch = Books(job, locked, world, plan, variant=options.variant, quiet=options.quiet)
    runner = Runner(
        world=world,
        watchdog=watchdog,
        scenario=job.scenario,
        clock=launch.clock,
        place=launch.place,
        run_id=folder.run_id,
        launch=job.launch,
        announce=launch.announce,
        record=launch.record,
        keep_samples=launch.keep_samples if job.scenario.measure.samples else None,
        done=done_in(job),
        rows=launch.rows,
        choices=world.from_root(lambda: load_choices(folder.path, options.variant)),
    )
    world.from_root(launch.check_devices)
    if options.choices:
        choices = runner.choose(plan)
        world.from_root(lambda: launch.keep_choices(options.variant, choices))
        return 0
    world.from_root(launch.begin)
    if world.rank == 0:
        watchdog.on_fault = launch.closing_the_books(watchdog.on_fault)
        if LAUNCHED not in os.environ:
            watchdog.on_death = launch.on_death
    statuses = runner.run(plan)
    watchdog.enter("end", STOP_TIMEOUT_S)
    code = exit_code([*job.done.values(), *statuses])
    world.from_root(lambda: launch.end(code))
    # `collbench launch` has the code from the run folder; from the ranks Open MPI would print a page about it.
    return 0 if LAUNCHED in os.environ else code


def set_up_nccl(job: Job, options: RankOptions, world: "World") -> None:
    """Say to NCCL, before it is loaded, where it writes its log, and how ranks may share a device."""
    if importlib.util.find_spec("cupy") is None:
        return
    from collbench import nccl_log

    logs = job.folder / "nccl"
    try:
        logs.mkdir(exist_ok=True)
    except OSError:  # on another host, without the run's file system
        logs = Path(tempfile.mkdtemp(prefix="collbench-nccl-"))
        atexit.register(shutil.rmtree, logs, ignore_errors=True)
    os.environ.update(nccl_log.settings(logs, os.environ, tuning=options.choices))
    if world.ranks_per_device > 1:
        os.environ.setdefault("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    if world.ranks_per_device > _NCCL_RANKS and "NCCL_MAX_NCHANNELS" not in os.environ:
        os.environ.setdefault("NCCL_MAX_CTAS", str(max(1, _LEAST_MULTIPROCESSORS // world.ranks_per_device)))


def _job(options: RankOptions, world: "World", scenario: "Scenario") -> Job:
    """Rank 0: make or open the run folder."""
    from collbench.runs import begin_or_open_run, check_launches, drop_unfinished
    from collbench.verdicts import verdict

    names = [variant.name for variant in scenario.variants]
    if names and options.variant not in names:
        raise UsageError(
            f"{scenario.name}: variants {', '.join(names)} need processes of their own; "
            "use `collbench launch`, or name one with --variant"
        )
    if options.variant and options.variant not in names:
        known = f"expected one of {', '.join(names)}" if names else "expected none; the scenario has no variants"
        raise UsageError(f"--variant: got {options.variant!r}, {known}")
    if scenario.measure.samples:
        from collbench.samples import check_available

        check_available()
    folder = begin_or_open_run(options.output, scenario, options.scenario, world.size, options.launches or 1)
    _LOCKED.append(folder)
    info = folder.read_info()
    begun = os.environ.get(LAUNCHED) or options.resume
    if options.resume:
        check_launches(info, options.launches)
        drop_unfinished(folder)
    done = {(row.case_id, row.group or "", row.launch): verdict(row) for row in folder.read()}
    if not begun and any(launch == options.launch for _, _, launch in done):
        raise UsageError(
            f"{folder.path}: got launch {options.launch}, which this run has already; "
            "complete it with --resume, or say another number with --launch"
        )
    # The run's copy is called scenario.toml; a scenario without a title has its name for one.
    title = info.scenario if scenario.title == scenario.name else scenario.title
    named = replace(scenario, name=info.scenario, title=title)
    start = os.environ.get(LAUNCHED) or uuid.uuid4().hex
    launches = options.launches or info.launches
    return Job(named, folder.path.resolve(), done, options.launch, launches, start, folder.read_tries())


_LOCKED: list["RunFolder"] = []
"""The folder that this process holds the lock of; the lock lives as long as the process."""


def _plan(job: Job, options: RankOptions, world: "World") -> "Plan":
    from collbench.plan import expand
    from collbench.runs import tried_last

    plan = expand(
        job.scenario,
        ranks=world.size,
        variant=options.variant,
        backend=default_backend(world),
        launch=job.launch,
        launches=job.launches,
    )
    left = [case for case in plan.cases if not _is_done(case, world.hosts, done_in(job))]
    return replace(plan, cases=tried_last(left, job.tries))


def _is_done(case: "Case", hosts: tuple[str, ...], done: frozenset[tuple[str, str]]) -> bool:
    from collbench.topology import group_names

    return bool(done) and all((case.case_id, name) in done for name in group_names(case.topology, hosts))


def default_backend(world: "World") -> str:
    """Name what "default" stands for: nccl where every rank has a device of its own, else mpi, else loopback."""
    from collbench.backends import backend_named

    if world.comm is None:
        return "loopback"
    nccl = backend_named("nccl")
    problem = world.first_problem(nccl.unavailable())
    return "mpi" if problem or world.first_problem(nccl.misfit(world)) else "nccl"
