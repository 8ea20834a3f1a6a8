"""What a pytest session measures: a run folder, the cases one by one, and their samples for pytest-benchmark."""

import contextlib
import shutil
import tempfile
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collbench import samples
from collbench.books import Books, Job, shown_path
from collbench.collectives import collective_of
from collbench.errors import CannotRun, CollbenchError, ExpectationFailed, UsageError, WrongData
from collbench.plan import Case, Plan
from collbench.rank import RankOptions, keep_fault, set_up_nccl
from collbench.record import Record
from collbench.results import RunFolder, RunInfo
from collbench.runner import Runner
from collbench.runs import begin_run
from collbench.scenario import Scenario
from collbench.timing import Sampled
from collbench.topology import Group
from collbench.verdicts import verdict
from collbench.watchdog import Watchdog
from collbench.world import World

NO_SCENARIO = Scenario(name="pytest", title="tests that use collective_benchmark", sweeps=())
"""What is measured where the tests say it themselves."""
_INFO = ("size_bytes", "busbw_GBps", "algbw_GBps", "ranks", "hosts", "backend", "library", "transport", "stopped_by")


@dataclass(frozen=True)
class Measured:
    """The rows of a case, one a group, and of each group's samples the largest over its ranks, in seconds."""

    case: Case
    rows: tuple[Record, ...]
    samples_s: dict[str, list[float]]

    @property
    def slowest(self) -> Record:
        """The row that stands for the case: of several groups the one with the largest median."""
        return max(self.rows, key=lambda row: row.time_p50_s or 0.0)

    @property
    def info(self) -> dict[str, Any]:
        """What pytest-benchmark keeps beside the samples."""
        row = self.slowest
        told = {name: getattr(row, name) for name in ("case_id", "group", "notes", *_INFO)}
        if len(self.rows) > 1:
            told["groups_p50_s"] = {row.group: row.time_p50_s for row in self.rows}
        return {name: value for name, value in told.items() if value is not None}

    def problem(self) -> CollbenchError | None:
        """Why the test of this case fails or, as a CannotRun, is skipped."""
        for status, kind in (("wrong", WrongData), ("failed", CollbenchError), ("unexpected", ExpectationFailed)):
            for row in self.rows:
                if verdict(row) == status:
                    return kind(_sentence(self.case, row, len(self.rows) > 1))
        skipped = [row for row in self.rows if row.status == "skipped"]
        if len(skipped) == len(self.rows):
            return CannotRun(str(skipped[0].reason) if skipped else "no group of ranks measures it")
        if not any(self.samples_s.values()):
            return CannotRun("a program of its own measured it: its row has the figures, and there are no samples")
        return None


class Bench:
    """The run of a session; every method is collective over the world."""

    def __init__(self, world: World, watchdog: Watchdog, scenario: Scenario | None, plan: Plan) -> None:
        self.scenario = scenario or NO_SCENARIO
        self.world = replace(world, ranks_per_device=self.scenario.measure.ranks_per_device)
        self.note = ""
        """What the user should know of the run folder."""
        self._watchdog, self._plan, self._given = watchdog, plan, scenario is not None
        self._rows: list[Record] = []
        self._samples: dict[str, list[float]] = {}
        self._measured: dict[str, str] = {}
        self._folder: RunFolder | None = None
        self._job: Job | None = None
        self._books: Books | None = None
        self._runner: Runner | None = None
        self._temporary: Path | None = None
        self._parquet = False

    @property
    def path(self) -> Path | None:
        """The run folder, where it is kept."""
        return self._job.folder if self._job is not None and self._temporary is None else None

    def open(self, output: Path | None, *, keep: bool = True) -> None:
        """Begin the run in a new folder; one that is not kept is temporary."""
        job = self.world.from_root(lambda: self._begin(output, keep))
        self._job = job
        folder = self._folder or RunFolder(job.folder)
        self._watchdog.on_fault = keep_fault(job.folder, job.start)
        set_up_nccl(job, RankOptions(self.scenario.source), self.world)
        books = self._books = Books(job, folder, self.world, self._plan, quiet=True)
        self._runner = Runner(
            world=self.world,
            watchdog=self._watchdog,
            scenario=self.scenario,
            clock=books.clock,
            place=books.place,
            run_id=job.folder.name,
            launch=0,
            announce=books.announce,
            record=self._record,
            keep_samples=self._keep,
            rows=books.rows,
        )
        self.world.from_root(books.begin)
        if self.world.rank == 0:
            self._watchdog.on_fault = books.closing_the_books(self._watchdog.on_fault)
            self._watchdog.on_death = books.on_death
        self._runner.open()

    def measure(self, case: Case, test: str) -> Measured:
        """Measure a case for a test; what comes of it is the same on every rank."""
        assert self._runner is not None
        if (other := self._measured.get(case.case_id)) is not None:
            raise UsageError(
                f"{test}: got the case that {other} has measured ({case.label}), expected each case once in a session; "
                "take it out of one of them"
            )
        self._measured[case.case_id] = test
        self._rows, self._samples = [], {}
        self._runner.case(case)
        rows, found = self.world.broadcast((tuple(self._rows), self._samples))
        return Measured(case, rows, found)

    def close(self) -> None:
        """End the run."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        if self._folder is not None:
            with contextlib.suppress(CollbenchError):
                self._folder.unlock()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _begin(self, output: Path | None, keep: bool) -> Job:
        """Rank 0: make the run folder."""
        try:
            samples.check_available()
            self._parquet = True
        except CannotRun:
            if self.scenario.measure.samples:
                raise
            self.note = "no samples.parquet: pip install 'collbench[samples]' brings what writes it"
        scenario, ranks = self.scenario, self.world.size
        if not keep:
            output = self._temporary = Path(tempfile.mkdtemp(prefix="collbench-pytest-"))
        if self._given:
            self._folder = begin_run(output, scenario, scenario.source, ranks, 1)
        else:
            self._folder = RunFolder.create(scenario.name, output)
            self._folder.lock()
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self._folder.write_info(RunInfo(scenario.name, scenario.digest, ranks, now, 1))
        return Job(scenario, self._folder.path.resolve(), {}, 0, 1, uuid.uuid4().hex, {})

    def _record(self, rows: list[Record]) -> None:
        assert self._books is not None
        self._books.record(rows)
        self._rows += rows

    def _keep(self, case: Case, group: Group, sampled: Sampled) -> None:
        assert self._books is not None
        if self._parquet:
            self._books.keep_samples(case, group, sampled)
        self._samples[group.name] = largest_s(case, len(group.ranks), sampled)


def largest_s(case: Case, ranks: int, sampled: Sampled) -> list[float]:
    """Return each sample's largest duration over the ranks that count, in seconds of one operation, as in its row."""
    collective = collective_of(case.collective, case.pattern, ranks)
    durations = sampled.durations_s if sampled.device_s is None else sampled.device_s
    if collective.timed_ranks >= 0:
        durations = durations[: collective.timed_ranks]
    return [float(one) for one in durations.max(axis=0) / collective.operations_per_iteration]


def told_path(path: Path) -> str:
    """A path as the user in this folder would write it."""
    return str(shown_path(path))


def _sentence(case: Case, row: Record, grouped: bool) -> str:
    where = case.label + (f", group {row.group}" if grouped else "")
    if row.status == "wrong":
        elements = f"{row.wrong} wrong element{'s' * (row.wrong != 1)}"
        return f"{where}: got {elements}, expected none; the first: {row.reason}"
    return f"{where}: {row.reason}"
