"""What each process of a launch does: come up, learn the plan from rank 0, run it, go down."""

import atexit
import contextlib
import faulthandler
import gc
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collbench.errors import CollbenchError, UsageError
from collbench.watchdog import Watchdog, block_signals

if TYPE_CHECKING:
    from collbench.choices import Choices
    from collbench.plan import Case, Plan
    from collbench.record import Record
    from collbench.results import RunFolder
    from collbench.scenario import Scenario
    from collbench.timing import Sampled
    from collbench.topology import Group
    from collbench.world import World

START_TIMEOUT_S = 120.0
"""For everything before the first case: a missing peer in MPI_Init shows as this."""
STOP_TIMEOUT_S = 30.0
"""For MPI_Finalize, where some libraries hang after all is done."""
_LAST_WORDS_S = 0.05
"""Time for the other ranks' words when the launcher ends them all: KILL follows TERM within 0.2 s."""
_BOOKS_WAIT_S = 1.0
"""The main thread may be stuck in a write: then the case that it writes of is in question, and the disk."""
LAUNCHED = "COLLBENCH_LAUNCHED"
"""Set by `collbench launch` for its ranks, a word of its own for each start: it names their faults, and says that the
launch accounts for the case that the run died in."""
TERMINAL = "COLLBENCH_TERMINAL"
"""Set by `collbench launch` where its own output is a terminal (the ranks' output never is)."""


@dataclass(frozen=True)
class RankOptions:
    """What `collbench run` was told."""

    scenario: str
    output: Path | None = None
    resume: bool = False
    variant: str = ""
    launch: int = 0
    launches: int = 1
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
    from collbench.start import Deferred, import_all, launcher_rank, start_world, stop_world

    watchdog = Watchdog(launcher_rank())
    start = os.environ.get(LAUNCHED, "")
    if start and options.output is not None:
        watchdog.on_fault = _keep_fault(options.output, start)
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
        if launcher_rank() == 0:
            print(f"collbench: {error}", file=sys.stderr)
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


@dataclass(frozen=True)
class _Job:
    """What rank 0 found out and tells the others."""

    scenario: "Scenario"
    folder: Path
    done: dict[tuple[str, str, int], str]
    """The rows that are there already, and their statuses."""
    launch: int
    start: str
    """Names what this launch leaves behind: `collbench launch`'s word, or rank 0's under a bare mpirun."""


def _keep_fault(path: Path, start: str) -> Callable[[dict[str, Any]], bool]:
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
    watchdog.on_fault = _keep_fault(job.folder, job.start)
    wait_for_imports()
    from collbench.choices import load as load_choices
    from collbench.runner import Runner, exit_code

    gc.freeze()
    gc.enable()
    world = replace(world, ranks_per_device=job.scenario.measure.ranks_per_device)
    _set_up_nccl(job, options, world)
    plan = _plan(job, options, world)
    launch = _Launch(options, job, folder, world, plan)
    if options.choices:
        return _choose(launch, job, options, world, watchdog, plan)
    world.from_root(launch.begin)
    if world.rank == 0:
        watchdog.on_fault = launch.closing_the_books(watchdog.on_fault)
        if LAUNCHED not in os.environ:
            watchdog.on_death = launch.on_death
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
        done=_done_in(job),
        choices=world.from_root(lambda: load_choices(folder.path, options.variant)),
    )
    statuses = runner.run(plan)
    watchdog.enter("end", STOP_TIMEOUT_S)
    code = exit_code([*job.done.values(), *statuses])
    world.from_root(lambda: launch.end(code))
    # `collbench launch` has the code from the run folder; from the ranks Open MPI would print a page about it.
    return 0 if LAUNCHED in os.environ else code


def _choose(
    launch: "_Launch", job: _Job, options: RankOptions, world: "World", watchdog: Watchdog, plan: "Plan"
) -> int:
    """Ask the libraries what they choose, and keep it for the launches that follow."""
    from collbench.runner import Runner

    runner = Runner(
        world=world,
        watchdog=watchdog,
        scenario=job.scenario,
        clock=launch.clock,
        place=launch.place,
        run_id=launch.run_id,
        launch=job.launch,
        announce=lambda bases: None,
        record=lambda records: None,
    )
    choices = runner.choose(plan)
    world.from_root(lambda: launch.keep_choices(options.variant, choices))
    return 0


def _set_up_nccl(job: _Job, options: RankOptions, world: "World") -> None:
    """Say to NCCL, before it is loaded, where it writes its log, and that ranks may share a device."""
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


def _job(options: RankOptions, world: "World", scenario: "Scenario") -> _Job:
    """Rank 0: make or open the run folder."""
    from collbench.runner import verdict
    from collbench.runs import begin_or_open_run, drop_unfinished

    names = [variant.name for variant in scenario.variants]
    if names and options.variant not in names:
        raise UsageError(
            f"{scenario.name}: variants {', '.join(names)} need processes of their own; "
            "use `collbench launch`, or name one with --variant"
        )
    if options.variant and options.variant not in names:
        known = f"expected one of {', '.join(names)}" if names else "expected none; the scenario has no variants"
        raise UsageError(f"--variant: got {options.variant!r}, {known}")
    folder = begin_or_open_run(options.output, scenario, options.scenario, world.size, options.launches)
    _LOCKED.append(folder)
    begun = os.environ.get(LAUNCHED) or options.resume
    if options.resume:
        drop_unfinished(folder)
    done = {(row.case_id, row.group or "", row.launch): verdict(row) for row in folder.read()}
    if not begun and any(launch == options.launch for _, _, launch in done):
        raise UsageError(
            f"{folder.path}: got launch {options.launch}, which this run has already; "
            "complete it with --resume, or say another number with --launch"
        )
    named = replace(scenario, name=folder.read_info().scenario)  # the run's copy is called scenario.toml
    return _Job(named, folder.path.resolve(), done, options.launch, os.environ.get(LAUNCHED) or uuid.uuid4().hex)


_LOCKED: list["RunFolder"] = []
"""The folder that this process holds the lock of; the lock lives as long as the process."""


def _plan(job: _Job, options: RankOptions, world: "World") -> "Plan":
    from collbench.plan import expand

    plan = expand(
        job.scenario,
        ranks=world.size,
        variant=options.variant,
        backend=default_backend(world),
        launch=job.launch,
        launches=options.launches,
    )
    left = [case for case in plan.cases if not _is_done(case, world.hosts, _done_in(job))]
    return replace(plan, cases=tuple(left))


def _done_in(job: _Job) -> frozenset[tuple[str, str]]:
    """The rows that this launch has already, by case and group."""
    return frozenset((case_id, group) for case_id, group, launch in job.done if launch == job.launch)


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


def shown_path(path: Path) -> Path:
    """Return a path as a user in this folder would write it."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


class _Launch:
    """Rank 0's books: the table, the rows, the pending case; on the other ranks only what all ranks find out."""

    def __init__(self, options: RankOptions, job: _Job, folder: "RunFolder", world: "World", plan: "Plan") -> None:
        from collbench.clock import measure_clock
        from collbench.provenance import collect_rank, summarise
        from collbench.runner import Place
        from collbench.topology import group_names

        self._folder = _LOCKED[0] if world.rank == 0 else folder
        self._world, self._job, self._plan = world, job, plan
        self._rows, self._began_at = 0, 0.0
        self._total = sum(len(group_names(case.topology, world.hosts)) for case in plan.cases)
        self._books = threading.Lock()
        self._links = _device_links(world, plan)
        described = collect_rank() | _device_facts(world, plan)
        ranks = world.all_gather((described, measure_clock()))
        self.clock = max((clock for _, clock in ranks), key=lambda clock: clock.floor_s)
        self._ranks = summarise([facts for facts, _ in ranks])
        bindings = [str(facts["binding"]) for facts, _ in ranks]
        self.place = Place(oversubscribed=_oversubscribed(world, bindings), binding=_joined(bindings))
        if world.rank == 0:
            from collbench.table import Table, varying

            watched = True if os.environ.get(TERMINAL) else None
            columns = varying(plan.cases)
            if any(case.topology != "world" for case in plan.cases):
                columns = (*columns, "group", "ranks")
            self._table = Table(sys.stdout, columns, quiet=options.quiet, terminal=watched)

    def begin(self) -> None:
        """Write down what runs where, and open the table."""
        from collbench.provenance import collect_launch

        if self._job.scenario.measure.samples:
            from collbench.samples import check_available

            check_available()
        environment = collect_launch(self._world.library or None) | {"ranks": self._ranks} | self._links
        self._folder.write_environment(self._job.launch, environment)
        scenario, world = self._job.scenario, self._world
        hosts = len(set(world.hosts))
        self._table.line(f"{scenario.name}: {scenario.title}" if scenario.title != scenario.name else scenario.name)
        self._table.line(
            f"{world.size} rank{'s' * (world.size > 1)} on {hosts} host{'s' * (hosts > 1)}, cores {self.place.binding}"
            f"{' (more ranks than cores: functional, not performance)' if self.place.oversubscribed else ''}; "
            f"{world.library or 'no MPI'}; launch {self._job.launch}"
        )
        self._began_at = time.monotonic()

    @property
    def run_id(self) -> str:
        """Name of the run folder."""
        return self._folder.run_id

    def keep_choices(self, variant: str, choices: "Choices") -> None:
        """What the libraries choose is known."""
        from collbench import choices as kept

        kept.keep(self._folder.path, variant, choices)
        self._folder.write_ending(self._job.start, 0)

    def announce(self, bases: list[dict[str, Any]]) -> None:
        """A case begins on some groups of ranks."""
        from collbench.faults import pending_rows

        with self._books:
            self._folder.set_pending(pending_rows(self._job.start, bases))
        done, total = self._rows, self._total
        spent = time.monotonic() - self._began_at
        left = spent / done * (total - done) if done else None
        self._table.progress(done, total, left, f"{bases[0]['collective']} {bases[0]['requested_bytes']} B")

    def keep_samples(self, case: "Case", group: "Group", sampled: "Sampled") -> None:
        """A case has its samples."""
        from collbench import samples

        samples.write(self._folder.path, self._job.launch, case.case_id, group.name, group.ranks, sampled)

    def record(self, records: list["Record"]) -> None:
        """A case has the rows of some groups."""
        done = _done_in(self._job)
        new = [record for record in records if (record.case_id, record.group) not in done]
        with self._books:
            self._folder.append(new)
            self._folder.clear_pending()
        self._rows += len(new)
        for record in new:
            self._table.row(record)

    def end(self, code: int) -> None:
        """All cases have their rows."""
        self._folder.write_ending(self._job.start, code)
        path = shown_path(self._folder.results_path)
        self._table.close(
            [
                f"results: {path}",
                f"next: open it in anything that reads CSV; columns: results/README.md; what ran where: "
                f"{path.with_name('environment.json')}",
            ]
        )

    def closing_the_books(self, report: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
        """Let the main thread, slow and not stuck, begin or end no more cases once the watchdog has begun to report."""

        def closed(fault: dict[str, Any]) -> object:
            told = report(fault)
            self._books.acquire(timeout=_BOOKS_WAIT_S)
            return told

        return closed

    def on_death(self, fault: dict[str, Any]) -> None:
        """Rank 0 dies under a bare mpirun: the case that it was in gets its row here; `launch` does it otherwise."""
        from collbench.faults import account_for, reason_of

        time.sleep(_LAST_WORDS_S)
        start = self._job.start
        faults = [one for one in self._folder.read_faults() if one.get("start") == start]
        reason = reason_of(faults or [fault], self._world.hosts)
        if reason is not None:
            account_for(self._folder, start, reason.status, reason.text)


def _uses_devices(plan: "Plan") -> bool:
    from collbench.backends import backend_named

    return any(backend_named(name).on_device for name in {case.backend for case in plan.cases})


def _device_facts(world: "World", plan: "Plan") -> dict[str, object]:
    """What this rank's device is, where the plan has anything to do with devices."""
    if not _uses_devices(plan):
        return {}
    from collbench import devices
    from collbench.backends.cuda import device_index, device_uuid, driver_problem

    if (problem := driver_problem()) is not None:
        return {"device": {"cuda": problem}}
    try:
        return {"device": devices.facts(device_uuid(device_index(world)))}
    except Exception as error:  # CuPy's own types; the backend will say what it cannot do
        return {"device": {"cuda": str(error)}}


def _device_links(world: "World", plan: "Plan") -> dict[str, object]:
    """How the devices of each host are linked, in the words of `nvidia-smi topo -m`; by rank, collective."""
    if not _uses_devices(plan):
        return {}
    from collbench import devices
    from collbench.backends.cuda import device_index, device_uuid, driver_problem

    uuid = ""
    if driver_problem() is None:
        with contextlib.suppress(Exception):  # CuPy's own types; the backend will say what it cannot do
            uuid = device_uuid(device_index(world))
    host = world.hosts[world.rank]
    found = world.all_gather((host, uuid))
    own = [its for where, its in found if where == host and its]
    rows = world.gather((host, devices.paths(own) if world.local_rank == 0 else None)) or []
    return {"device_links": {where: matrix for where, matrix in rows if matrix}}


def _oversubscribed(world: "World", bindings: list[str]) -> bool:
    """Whether a host has more ranks than cores that they may use."""
    from collbench.provenance import expanded

    for host in set(world.hosts):
        ranks = [rank for rank, name in enumerate(world.hosts) if name == host]
        if len(ranks) > len(set().union(*(expanded(bindings[rank]) for rank in ranks))):
            return True
    return False


def _joined(bindings: list[str]) -> str:
    """Return one text for all ranks' cores: by rank where they differ, once where they do not."""
    if len(set(bindings)) == 1:
        return bindings[0]
    return ";".join(bindings) if len(bindings) <= 64 else ";".join(bindings[:64]) + ";..."
