"""Rank 0's books of a launch: where it runs, the case in progress, the rows, the table that the user sees."""

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collbench.output import tell

if TYPE_CHECKING:
    from collbench.choices import Choices
    from collbench.plan import Case, Plan
    from collbench.record import Record
    from collbench.results import RunFolder
    from collbench.scenario import Scenario
    from collbench.timing import Sampled
    from collbench.topology import Group
    from collbench.world import World

LAUNCHED = "COLLBENCH_LAUNCHED"
"""Set by `collbench launch` for its ranks, a word of its own for each start: it names their faults, and says that the
launch accounts for the case that the run died in."""
TERMINAL = "COLLBENCH_TERMINAL"
"""Set by `collbench launch` where its own output is a terminal (the ranks' output never is)."""
_LAST_WORDS_S = 0.05
"""Time for the other ranks' words when the launcher ends them all: KILL follows TERM within 0.2 s."""
_BOOKS_WAIT_S = 1.0
"""The main thread may be stuck in a write: then the case that it writes of is in question, and the disk."""


@dataclass(frozen=True)
class Job:
    """What rank 0 found out and tells the others."""

    scenario: "Scenario"
    folder: Path
    done: dict[tuple[str, str, int], str]
    """The rows that are there already, and their statuses."""
    launch: int
    launches: int
    start: str
    """Names what this launch leaves behind: `collbench launch`'s word, or rank 0's under a bare mpirun."""
    tries: dict[str, int]
    """How often each case was begun without an end."""


def done_in(job: Job) -> frozenset[tuple[str, str]]:
    """The rows that this launch has already, by case and group."""
    return frozenset((case_id, group) for case_id, group, launch in job.done if launch == job.launch)


def shown_path(path: Path) -> Path:
    """Return a path as a user in this folder would write it."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


class Books:
    """Rank 0's books: the table, the rows, the pending case; on the other ranks only what all ranks find out."""

    def __init__(
        self, job: Job, folder: "RunFolder", world: "World", plan: "Plan", *, variant: str = "", quiet: bool = False
    ) -> None:
        from collbench import rank_devices
        from collbench.clock import measure_clock
        from collbench.provenance import collect_rank, listed, summarise
        from collbench.runner import Place
        from collbench.topology import group_names

        self._folder = folder
        self._world, self._job, self._plan = world, job, plan
        self._rows, self._began_at, self._quiet = 0, 0.0, quiet
        self._variant = variant
        self._total = sum(len(group_names(case.topology, world.hosts)) for case in plan.cases)
        self._books = threading.Lock()
        self._devices = rank_devices.find(world, job.scenario, plan)
        described = {**collect_rank(), **self._devices.facts}
        ranks = world.all_gather((described, measure_clock()))
        self.clock = max((clock for _, clock in ranks), key=lambda clock: clock.floor_s)
        self._ranks = summarise([facts for facts, _ in ranks])
        bindings = [str(facts["binding"]) for facts, _ in ranks]
        self.place = Place(oversubscribed=_oversubscribed(world, bindings), binding=listed(bindings))
        if world.rank == 0:
            from collbench.table import Table, varying

            watched = True if os.environ.get(TERMINAL) else None
            columns = varying(plan.cases)
            if any(case.topology != "world" for case in plan.cases):
                columns = (*columns, "group", "ranks")
            if len(set(world.hosts)) > 1:
                columns = (*columns, "transport")
            self._table = Table(sys.stdout, columns, quiet=quiet, terminal=watched)

    def check_devices(self) -> None:
        """Refuse to go on with other devices than the run began with."""
        from collbench.runs import check_devices

        check_devices(self._folder, self._variant, self._devices.used, self._world.hosts)

    def begin(self) -> None:
        """Write down what runs where, and open the table."""
        from collbench.doctor import settings
        from collbench.provenance import collect_launch
        from collbench.topology import sampled

        environment = collect_launch(self._world.library or None) | {"ranks": self._ranks, **self._devices.described}
        environment["settings_in_files"] = settings.by_file()
        self._folder.write_environment(self._job.launch, environment)
        scenario, world = self._job.scenario, self._world
        hosts = len(set(world.hosts))
        self._table.line(f"{scenario.name}: {scenario.title}" if scenario.title != scenario.name else scenario.name)
        self._table.line(
            f"{world.size} rank{'s' * (world.size > 1)} on {hosts} host{'s' * (hosts > 1)}, cores {self.place.binding}"
            f"{' (more ranks than cores: functional, not performance)' if self.place.oversubscribed else ''}; "
            f"{world.library or 'no MPI'}; launch {self._job.launch}"
            f"{f'; variant {self._variant}' if self._variant else ''}"
        )
        for topology in dict.fromkeys(case.topology for case in self._plan.cases):
            if told := sampled(topology, world.hosts):
                self._table.line(told)
        self._began_at = time.monotonic()

    @property
    def run_id(self) -> str:
        """Name of the run folder."""
        return self._folder.run_id

    def keep_choices(self, variant: str, choices: "Choices") -> None:
        """What the libraries choose is known."""
        from collbench import choices as kept

        kept.keep(self._folder.path, variant, choices)
        self._say_ended(0)

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
        from collbench.collectives import entry_named

        operations = entry_named(case.collective).collective.operations_per_iteration
        key = self._job.launch, case.case_id, group.name
        samples.write(self._folder.path, *key, group.ranks, sampled, operations)

    def record(self, records: list["Record"]) -> None:
        """A case has the rows of some groups."""
        done = done_in(self._job)
        new = [record for record in records if (record.case_id, record.group) not in done]
        with self._books:
            self._folder.append(new)
            self._folder.clear_pending()
        self._rows += len(new)
        for record in new:
            self._table.row(record)

    def end(self, code: int) -> None:
        """All cases have their rows."""
        self._say_ended(code)
        path = shown_path(self._folder.results_path)
        if self._quiet and LAUNCHED not in os.environ:
            tell(str(path))
        self._table.close(
            [
                *self._ladders(),
                *self._pairs(),
                f"results: {path}",
                "next: open it in anything that reads CSV; columns: `collbench schema --columns`; what ran where: "
                f"{path.with_name('environment.json')}",
            ]
        )

    def rows(self) -> list["Record"]:
        """The rows of this launch so far."""
        return [row for row in self._folder.read() if row.launch == self._job.launch]

    def _pairs(self) -> list[str]:
        """What the pairs of the run so far say, where the scenario has any; their matrices go beside the results."""
        sweeps = self._job.scenario.sweeps
        if not any(one.startswith("pairs") for sweep in sweeps for one in sweep.topologies):
            return []
        from collbench.readers import pair_tables

        rows = self._folder.read()
        pair_tables.write(rows, self._folder.path)
        return [] if self._quiet else [*pair_tables.lines(rows), ""]

    def _ladders(self) -> list[str]:
        """The ladders of the run so far, where the scenario has any."""
        if self._quiet or all(sweep.kind != "ladder" for sweep in self._job.scenario.sweeps):
            return []
        from collbench.readers.ladder import lines

        return [*lines(self._folder.read()), ""]

    def _say_ended(self, code: int) -> None:
        if LAUNCHED in os.environ:  # nobody reads it elsewhere
            self._folder.write_ending(self._job.start, code)

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


def _oversubscribed(world: "World", bindings: list[str]) -> bool:
    """Whether a host has more ranks than cores that they may use."""
    from collbench.provenance import expanded

    for host in set(world.hosts):
        ranks = [rank for rank, name in enumerate(world.hosts) if name == host]
        if len(ranks) > len(set().union(*(expanded(bindings[rank]) for rank in ranks))):
            return True
    return False
