"""Runs a plan on every rank: prepare -> warm up -> sample -> verify -> record, one case after the other."""

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from collbench import memory, noise
from collbench.backends import backend_named
from collbench.backends.base import Backend
from collbench.beside import Neighbours, Reached, health, health_columns, limit_columns
from collbench.clock import Clock
from collbench.collectives import collective_of
from collbench.common_clock import History
from collbench.dtypes import DTYPES
from collbench.errors import Agreed, AgreedCannotRun, CannotRun, CollbenchError, UsageError
from collbench.figures import Point, figures
from collbench.figures import known as known_of
from collbench.opened import Opened, on_rank, refusal
from collbench.paths import Paths, merged
from collbench.pattern import Pattern
from collbench.plan import Case, Plan, spoken
from collbench.provenance import listed
from collbench.record import Record
from collbench.row_parts import page_bytes, sizes, wrong
from collbench.scenario import Scenario
from collbench.timing import ALL_LATE, Sampled, sample
from collbench.topology import AGAIN, Group, Round, rounds, unfit
from collbench.verdicts import expectation, verdict
from collbench.verify import Check, check_case
from collbench.watchdog import Watchdog
from collbench.world import World

if TYPE_CHECKING:  # two dozen patterns, of use to NCCL alone
    from collbench.nccl_log import Choice

T = TypeVar("T")

_NEIGHBOUR_S = 60.0
"""What a neighbour takes to start at the most (collbench.neighbour)."""

Outcome = tuple[str, dict[str, Any], Sampled | None]
"""The status of a row, what it says besides, and the samples where they are kept; whole on a group's rank 0."""


@dataclass(frozen=True)
class Place:
    """Where the launch runs, as far as every row says it; found once, the same on every rank."""

    oversubscribed: bool
    binding: str


@dataclass
class Runner:
    """Everything that stays the same from case to case.

    On rank 0 `announce` hears of the rows of each round before it begins, and `record` gets them when it has ended.
    `done` are the keys (case, group) of rows that are there already.
    """

    world: World
    watchdog: Watchdog
    scenario: Scenario
    clock: Clock
    place: Place
    run_id: str
    launch: int
    announce: Callable[[list[dict[str, Any]]], None]
    record: Callable[[list[Record]], None]
    keep_samples: Callable[[Case, Group, Sampled], None] | None = None
    done: frozenset[tuple[str, str]] = frozenset()
    rows: Callable[[], list[Record]] = list
    """The rows of this launch so far, on rank 0."""
    choices: Mapping[tuple[str, str], "Choice"] = field(default_factory=dict)
    """What libraries said that they choose, by the case's `spoken_id` and group; the same on every rank."""
    _topology: str = "world"
    _neighbours: Neighbours = field(default_factory=Neighbours)
    _reached: Reached = field(default_factory=Reached)
    _clock_history: History = field(default_factory=History)
    _opened: Opened = field(init=False)
    _paths: Paths = field(init=False)

    def __post_init__(self) -> None:
        self._opened = Opened(self.world, self.watchdog)
        self._paths = Paths(self.world, self.scenario.measure.link_rate)

    def run(self, plan: Plan) -> list[str]:
        """Run all cases; the statuses of their rows, on rank 0. Collective over the world."""
        digests = self.world.all_gather(plan.digest)
        if len(set(digests)) > 1:
            other = next(rank for rank, digest in enumerate(digests) if digest != digests[0])
            raise CannotRun(
                f"plan: rank {other} on {self.world.hosts[other]} made another plan than rank 0 on "
                f"{self.world.hosts[0]}; the hosts must have the same version of collbench"
            )
        self.open()
        statuses = [status for case in plan.cases for status in self.case(case)]
        if any(one.startswith("pairs") for sweep in self.scenario.sweeps for one in sweep.topologies):
            from collbench import again

            for case, one in self.world.from_root(lambda: again.wanted(self.rows())):
                if (case.case_id, one[0].name) not in self.done:
                    self._opened.close_groups()
                    statuses += self._round(case, one, None)
        self.close()
        return self.world.broadcast(statuses)

    def open(self) -> None:
        """Before the first case. Collective over the world, as all that follows."""
        self._paths.open()
        self.world.from_root(lambda: self._reached.take(self.rows()))

    def close(self) -> None:
        """After the last case."""
        self.watchdog.enter("close", self.scenario.measure.timeout_s)
        self._neighbours.stop()
        self._opened.close()

    def choose(self, plan: Plan) -> dict[tuple[str, str], "Choice"]:
        """Run each case's operation once, untimed, and hear what its library chose; on rank 0. Collective."""
        found: dict[tuple[str, str], Choice] = {}
        for case in dict.fromkeys(spoken(case) for case in plan.cases if backend_named(case.backend).tells_choices):
            self.watchdog.enter("choose", self.scenario.measure.timeout_s, case.label, case.case_id)
            with contextlib.suppress(CollbenchError):  # the same on every rank; the timed launch says it
                for groups in rounds(case.topology, self.world.hosts):
                    outcomes = self.world.gather(self._on_groups(case, groups, self._overhear)) or []
                    for group in groups if outcomes else ():
                        if (choice := outcomes[group.ranks[0]][1].get("choice")) is not None:
                            found[case.case_id, group.name] = choice
            self._opened.close_groups()
        self.close()
        return found

    def _overhear(self, point: Point) -> Outcome:
        """Hear what the library chooses for one case on this rank's group."""
        bound = self._opened.together(
            point.group, lambda: point.backend.bind(point.case, point.shape.count, point.layout)
        )
        try:
            choice = self._alone(
                lambda: point.backend.overheard(point.case, point.shape.size_bytes, lambda: bound.prime())
            )
        finally:
            bound.close()
        return "ok", {"choice": choice}, None

    def case(self, case: Case) -> list[str]:
        """Measure a case on each round of its topology's groups; the statuses of the rows, on rank 0."""
        if case.topology != self._topology:
            self.watchdog.enter("close", self.scenario.measure.timeout_s)
            self._opened.close_groups()
            self._topology = case.topology
        try:
            played = rounds(case.topology, self.world.hosts)
            reason = None
        except CannotRun as error:
            played, reason = (unfit(case.topology),), str(error)
        statuses = []
        for one in played:
            if all((case.case_id, group.name) in self.done for group in one):
                continue
            statuses += self._round(case, one, reason)
        return statuses

    def _round(self, case: Case, groups: Round, reason: str | None) -> list[str]:
        """Measure a case on disjoint groups at once; the statuses of the rows, on rank 0."""
        timeout_s = self.scenario.measure.timeout_s
        self.watchdog.enter("prepare", timeout_s, case.label, case.case_id)
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        bases = [self._base(case, started_at, group) for group in groups]
        self.world.from_root(lambda: self.announce(bases))
        outcome: Outcome = ("skipped", {"reason": reason}, None)
        if reason is None:
            try:
                outcome = self._on_groups(case, groups, self._measured)
            except CollbenchError as error:  # the same on every rank
                outcome = _unmeasured(error)
        self.watchdog.enter("record", timeout_s, case.label, case.case_id)
        whole = len(groups[0].ranks) == self.world.size
        outcomes = [outcome] if whole else self.world.gather(outcome)
        statuses: list[str] = []

        def write() -> None:
            assert outcomes is not None
            found = [outcomes[group.ranks[0] if len(outcomes) > 1 and group.ranks else 0] for group in groups]
            rows = []
            for base, group, (status, values, _) in zip(bases, groups, found, strict=True):
                more = self._reached.columns(case, group.name, status, values)
                rows.append(Record(**(base | values | more | {"status": status})))
            statuses.extend(verdict(row) for row in rows)
            self.record(rows)
            if self.keep_samples is not None:
                for group, (_, _, sampled) in zip(groups, found, strict=True):
                    if sampled is not None:
                        self.keep_samples(case, group, sampled)

        # What the disk refuses must end all ranks, not rank 0 alone.
        self.world.from_root(write)
        return statuses

    def _on_groups(self, case: Case, groups: Round, work: Callable[[Point], Outcome]) -> Outcome:
        """Do the work of a case on this rank's group, beside the others; an error that it raises is every rank's."""
        group, backend = self._opened.for_round(case.backend, groups)
        point: Point | None = None
        outcome: Outcome = ("skipped", {}, None)
        if group is not None and backend is not None:
            try:
                name = next(one.name for one in groups if self.world.rank in one.ranks)
                point = self._point(case, name, group, backend)
            except CollbenchError as error:
                outcome = _unmeasured(error)
        self._fits(backend.memory_bytes(case, point.layout) if backend is not None and point is not None else 0)
        if point is not None:
            try:
                outcome = work(point)
            except CollbenchError as error:  # the same on every rank of the group: see Opened.together
                outcome = _unmeasured(error)
        elif group is None:
            # As long as those may take that measure; they have deadlines of their own.
            self.watchdog.enter("idle", 4 * self.scenario.measure.timeout_s, case.label, case.case_id)
            self.world.meet_quietly()
            return outcome
        if self.world.size > sum(len(one.ranks) for one in groups):
            self.world.meet_quietly()
        return outcome

    def _point(self, case: Case, name: str, group: World, backend: Backend) -> Point:
        """What a case is on a group; CannotRun says why it cannot run there."""
        if case.root and int(case.root) >= group.size:
            raise CannotRun(f"root {case.root}: the group has ranks 0 to {group.size - 1}")
        problem = group.first_problem(backend.refuse(case))
        if problem is not None:
            raise CannotRun(problem[1])
        collective = collective_of(case.collective, case.pattern, group.size)
        if group.size < collective.least_ranks:
            raise CannotRun(f"{case.collective} needs at least {collective.least_ranks} ranks; there are {group.size}")
        itemsize = DTYPES[case.dtype].itemsize if case.dtype else 1
        shape = collective.shape(case.requested_bytes, itemsize, group.size)
        layout = backend.layout(case, shape.count)
        reason = refusal(backend.overflows(case, shape.count, layout) or backend.lacks(case, layout), group)
        if reason is not None:
            raise CannotRun(reason)
        return Point(case, name, group, backend, collective, shape, layout)

    def _measured(self, point: Point) -> Outcome:
        measure, case, group, backend = self.scenario.measure, point.case, point.group, point.backend
        collective, shape, layout = point.collective, point.shape, point.layout
        known = known_of(point, self.world.thread_level, self._seed(case))
        if (own := self._measured_by_itself(point, known)) is not None:
            return own
        bound = self._opened.together(group, lambda: backend.bind(case, shape.count, layout))
        try:
            contributors = collective.contributors(group.size)
            pattern = Pattern(DTYPES[case.dtype or "int8"], case.operation or "move", contributors, self._seed(case))
            check = Check(group.rank, layout, pattern)
            if bound.buffers:
                self._opened.together(group, lambda: check.prepare_all(bound.buffers))
            self.watchdog.enter("neighbour", measure.timeout_s + _NEIGHBOUR_S, case.label, case.case_id)
            self._neighbours.want(case, group, backend)
            self.watchdog.enter("sample", measure.timeout_s, case.label, case.case_id)
            fresh, before, counted = health(backend), noise.read(), self._paths.before(point)
            sampled = self._alone(
                lambda: sample(
                    bound,
                    group,
                    measure,
                    mode=case.mode,
                    step_s=self.clock.step_s,
                    timed_ranks=collective.timed_ranks,
                    progress=self.watchdog.extend,
                    history=self._clock_history,
                )
            )
            if sampled.failed is not None:
                rank, status = sampled.failed
                reason = f"{bound.library_call}: rank {group.ranks[rank]} got status {status} while it was timed"
                reason += f" ({meaning})" if (meaning := bound.failure(status)) else ""
                return "failed", known | {"reason": reason}, None
            if sampled.stopped_by == ALL_LATE:
                reason = (
                    f"sync clock: all {sampled.late_starts} starts were late within the budget; give it a longer "
                    "time_budget, or a core to each rank"
                )
                late = {"late_starts": sampled.late_starts, "stopped_by": ALL_LATE}
                return "failed", known | late | {"reason": reason}, None
            kept = sampled if self.keep_samples is not None and sampled.durations_s.size else None
            denied = group.gather(noise.denied(before, noise.read()))
            state, flags = health_columns(group, fresh, health(backend))
            problem = group.first_problem(self._neighbours.problem())
            if problem is not None:
                return "failed", known | {"reason": on_rank(problem, group)}, kept
            known["page_bytes"] = page_bytes(bound, group)
            known |= {"algorithm": bound.algorithm or None} | backend.chosen(self._choice(point)) | state
            known |= limit_columns(collective, group, backend, known)
            path = self._paths.columns(point, sampled, counted)
            columns, disagreement = merged(known, path)
            known |= columns
            flags += disagreement
            flags += self._neighbours.flags + ("noisy",) * (max(denied or [0.0]) > noise.HEAVY)
            crowded = self.place.oversubscribed
            values = known | figures(point, bound, sampled, clock=self.clock, oversubscribed=crowded, flags=flags)
            values |= expectation(self.scenario.expect.transport, group, values, path)
            if not (measure.verify and bound.buffers):
                return "ok", values, kept
            self.watchdog.enter("verify", measure.timeout_s, case.label, case.case_id)
            damage = self._alone(lambda: check_case(bound, check, timed=True))
            found = wrong(damage, group)
            if found["wrong"]:
                found["reason"] = "; ".join(filter(None, (found["reason"], backend.known_fault())))
                return "wrong", {name: value for name, value in values.items() if "GBps" not in name} | found, kept
            return "ok", values | found, kept
        finally:
            bound.close()

    def _measured_by_itself(self, point: Point, known: dict[str, Any]) -> Outcome | None:
        """What a backend measures with a program of its own; None where the compiled loop is to."""
        measure, group, backend = self.scenario.measure, point.group, point.backend
        if not backend.by_itself:
            return None
        self.watchdog.enter("sample", measure.timeout_s, point.case.label, point.case.case_id)
        counted = self._paths.before(point)
        found = self._alone(lambda: backend.measured(point.case, point.shape, measure))
        if found is None:
            return None
        status, values = found
        if status == "ok" and len(set(group.hosts)) > 1:  # within a host its ports may count nothing
            made = np.empty((0, values["iterations"]))
            sampled = Sampled(made, made, None, values["warmup_iterations"], 1, values["stopped_by"])
            path = self._paths.columns(point, sampled, counted)
            columns, flags = merged(known, path)
            values |= columns | {"notes": " ".join(flags) or None}
            values |= expectation(self.scenario.expect.transport, group, values, path)
        return status, known | values, None

    def _choice(self, point: Point) -> "Choice | None":
        return self.choices.get((spoken(point.case).case_id, point.name.removeprefix(AGAIN)))

    def _fits(self, need: int) -> None:
        """Refuse a round whose buffers do not fit into the memory of a host, before anything is allocated."""
        needs = self.world.all_gather((self.world.hosts[self.world.rank], need, memory.available()))
        problem = memory.problem(needs)
        if problem is not None:
            raise CannotRun(problem)

    def _alone(self, work: Callable[[], T]) -> T:
        """Do what the other ranks are in the middle of as well: a rank that fails here cannot go on, nor tell them."""
        try:
            return work()
        except (Agreed, AgreedCannotRun):  # raised on every rank
            raise
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            at = f"{Path(last.filename).name}:{last.lineno} in {last.name}"
            self.watchdog.die(CollbenchError(f"{type(error).__name__}: {error}, at {at}"))
            raise

    def _seed(self, case: Case) -> int:
        return int(case.case_id[1:], 16) ^ self.scenario.measure.seed

    def _base(self, case: Case, started_at: str, group: Group) -> dict[str, Any]:
        """What a row says however the case ends."""
        axes = asdict(case)
        del axes["root"]
        hosts = [self.world.hosts[rank] for rank in group.ranks]
        return (
            {name: value if value != "" else None for name, value in axes.items()}
            | {
                "run_id": self.run_id,
                "launch": self.launch,
                "started_at": started_at,
                "scenario": self.scenario.name,
                "case_id": case.case_id,
                "status": "failed",
                "root": int(case.root) if case.root else None,
                "group": group.name,
                "ranks": len(group.ranks) or None,
                "hosts": len(set(hosts)) or None,
                "ranks_per_host": max(Counter(hosts).values(), default=None),
                "oversubscribed": self.place.oversubscribed,
                "binding": self.place.binding,
                "members": listed(hosts) or None,
            }
            | sizes(case, len(group.ranks))
        )


def _unmeasured(error: CollbenchError) -> Outcome:
    """What the row of a case says that an error ended."""
    status = "skipped" if isinstance(error, CannotRun | UsageError) else "failed"
    return status, {"reason": str(error)}, None
