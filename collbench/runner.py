"""Runs a plan on every rank: prepare -> warm up -> sample -> verify -> record, one case after the other."""

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from collbench import memory, noise
from collbench.backends import backend_named
from collbench.backends.base import Backend, BoundCall
from collbench.clock import Clock
from collbench.collectives import Collective, Shape, collective_of
from collbench.dtypes import DTYPES
from collbench.errors import Agreed, CannotRun, CollbenchError, UsageError
from collbench.pattern import Pattern
from collbench.plan import Case, Plan
from collbench.record import Record
from collbench.scenario import Scenario
from collbench.stats import slowest_rank, summarise
from collbench.timing import Sampled, sample
from collbench.verify import Check, Damage, check_case
from collbench.watchdog import Watchdog
from collbench.world import World

T = TypeVar("T")

_FLOOR_SHARE = 0.05
"""A clock that costs more than this share of a sample marks the row (Hoefler and Belli, SC'15)."""


@dataclass(frozen=True)
class Place:
    """Where the launch runs, as far as every row says it; found once, the same on every rank."""

    oversubscribed: bool
    binding: str


@dataclass
class Runner:
    """Everything that stays the same from case to case. `record` is called on rank 0 with each row as it is made."""

    world: World
    watchdog: Watchdog
    scenario: Scenario
    clock: Clock
    place: Place
    run_id: str
    launch: int
    announce: Callable[[dict[str, Any]], None]
    record: Callable[[Record], None]
    keep_samples: Callable[[Case, Sampled], None] | None = None
    _opened: dict[str, Backend] = field(default_factory=dict)
    _refusals: dict[str, str | None] = field(default_factory=dict)

    def run(self, plan: Plan) -> list[str]:
        """Run all cases; the statuses of their rows. Collective over the world."""
        digests = self.world.all_gather(plan.digest)
        if len(set(digests)) > 1:
            other = next(rank for rank, digest in enumerate(digests) if digest != digests[0])
            raise CannotRun(
                f"plan: rank {other} on {self.world.hosts[other]} made another plan than rank 0 on "
                f"{self.world.hosts[0]}; the hosts must have the same version of collbench"
            )
        statuses = [self._case(case) for case in plan.cases]
        self.watchdog.enter("close", self.scenario.measure.timeout_s)
        for backend in self._opened.values():
            backend.close()
        return statuses

    def _case(self, case: Case) -> str:
        timeout_s = self.scenario.measure.timeout_s
        self.watchdog.enter("prepare", timeout_s, case.label, case.case_id)
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        base = self._base(case, started_at)
        self.world.from_root(lambda: self.announce(base))
        try:
            status, values = self._measured(case)
        except CollbenchError as error:  # the same on every rank: see _together
            status, values = (
                ("skipped" if isinstance(error, CannotRun | UsageError) else "failed"),
                {"reason": str(error)},
            )
        self.watchdog.enter("record", timeout_s, case.label, case.case_id)
        # What the disk refuses must end all ranks, not rank 0 alone.
        self.world.from_root(lambda: self.record(Record(**(base | values | {"status": status}))))
        return status

    def _measured(self, case: Case) -> tuple[str, dict[str, Any]]:
        measure = self.scenario.measure
        backend = self._backend(case)
        collective = collective_of(case.collective, case.pattern, self.world.size)
        if self.world.size < collective.least_ranks:
            raise CannotRun(
                f"{case.collective} needs at least {collective.least_ranks} ranks; this launch has {self.world.size}"
            )
        itemsize = DTYPES[case.dtype].itemsize if case.dtype else 1
        shape = collective.shape(case.requested_bytes, itemsize, self.world.size)
        layout = backend.layout(case, shape.count)
        known = self._known(case, backend, shape, collective, itemsize)
        self._fits(backend.memory_bytes(case, layout))
        bound = self._together(lambda: backend.bind(case, shape.count, layout))
        try:
            contributors = collective.contributors(self.world.size)
            pattern = Pattern(DTYPES[case.dtype or "int8"], case.operation or "move", contributors, self._seed(case))
            check = Check(self.world.rank, layout, pattern)
            if bound.buffers:
                self._together(lambda: check.prepare_all(bound.buffers))
            self.watchdog.enter("sample", measure.timeout_s, case.label, case.case_id)
            before = noise.read()
            sampled = self._alone(
                lambda: sample(
                    bound,
                    self.world,
                    measure,
                    mode=case.mode,
                    step_s=self.clock.step_s,
                    timed_ranks=collective.timed_ranks,
                    progress=self.watchdog.extend,
                )
            )
            if sampled.failed is not None:
                rank, status = sampled.failed
                reason = f"{bound.library_call}: rank {rank} got status {status} while it was timed"
                reason += f" ({bound.failure})" if bound.failure else ""
                return "failed", known | {"reason": reason}
            if self.keep_samples is not None:
                keep = self.keep_samples
                self.world.from_root(lambda: keep(case, sampled))
            denied = self.world.gather(noise.denied(before, noise.read()))
            values = known | self._figures(case, shape, bound, sampled, max(denied or [0.0]))
            if not (measure.verify and bound.buffers):
                return "ok", values
            self.watchdog.enter("verify", measure.timeout_s, case.label, case.case_id)
            damage = self._alone(lambda: check_case(bound, check, timed=True))
            wrong = self._wrong(damage)
            if wrong["wrong"]:
                return "wrong", {name: value for name, value in values.items() if "GBps" not in name} | wrong
            return "ok", values | wrong
        finally:
            bound.close()

    def _backend(self, case: Case) -> Backend:
        """Open the case's backend, or raise why it cannot run the case; all ranks do the same."""
        if case.topology != "world":
            raise CannotRun(f"topology {case.topology}: only world can be measured")
        if case.root and int(case.root) >= self.world.size:
            raise CannotRun(f"root {case.root}: the group has ranks 0 to {self.world.size - 1}")
        name = case.backend
        kind = backend_named(name)
        if name not in self._refusals:
            problem = self.world.first_problem(kind.unavailable())
            problem = problem or self.world.first_problem(kind.misfit(self.world))
            self._refusals[name] = self._on_rank(problem) if problem else None
        if self._refusals[name] is not None:
            raise CannotRun(str(self._refusals[name]))
        if name not in self._opened:
            self._opened[name] = self._together(lambda: kind(self.world))
        backend = self._opened[name]
        problem = self.world.first_problem(backend.refuse(case))
        if problem is not None:
            raise CannotRun(problem[1])
        return backend

    def _fits(self, need: int) -> None:
        """Refuse a case whose buffers do not fit into the memory of a host, before anything is allocated."""
        needs = self.world.all_gather((self.world.hosts[self.world.rank], need, memory.available()))
        problem = memory.problem(needs)
        if problem is not None:
            raise CannotRun(problem)

    def _together(self, work: Callable[[], T]) -> T:
        """Do what may fail on some ranks: if it does on any, all raise the same error, and nobody waits for nobody."""
        result: list[T] = []
        try:
            result.append(work())
            problem = None
        except Agreed:  # raised on every rank
            raise
        except MemoryError:
            problem = "out of memory; a smaller size, or fewer ranks on a host, would fit"
        except CollbenchError as error:
            problem = str(error)
        except Exception as error:  # a library's own exception types are not known here
            problem = f"{type(error).__name__}: {error}"
        phase = self.watchdog.phase
        self.watchdog.enter(f"{phase.name} done, waiting for the others", phase.timeout_s, phase.case, phase.case_id)
        first = self.world.first_problem(problem)
        self.watchdog.enter(phase.name, phase.timeout_s, phase.case, phase.case_id)
        if first is None:
            return result[0]
        if result and isinstance(result[0], BoundCall):
            result[0].close()
        raise CollbenchError(self._on_rank(first))

    def _alone(self, work: Callable[[], T]) -> T:
        """Do what the other ranks are in the middle of as well: a rank that fails here cannot go on, nor tell them."""
        try:
            return work()
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            at = f"{Path(last.filename).name}:{last.lineno} in {last.name}"
            self.watchdog.die(CollbenchError(f"{type(error).__name__}: {error}, at {at}"))
            raise

    def _on_rank(self, problem: tuple[int, str]) -> str:
        rank, text = problem
        return text if self.world.size == 1 else f"rank {rank} on {self.world.hosts[rank]}: {text}"

    def _seed(self, case: Case) -> int:
        return int(case.case_id[1:], 16) ^ self.scenario.measure.seed

    def _base(self, case: Case, started_at: str) -> dict[str, Any]:
        """What a row says however the case ends."""
        axes = asdict(case)
        del axes["root"]
        return {name: value if value != "" else None for name, value in axes.items()} | {
            "run_id": self.run_id,
            "launch": self.launch,
            "started_at": started_at,
            "scenario": self.scenario.name,
            "case_id": case.case_id,
            "status": "failed",
            "root": int(case.root) if case.root else None,
            "group": "world",
            "ranks": self.world.size,
            "hosts": len(set(self.world.hosts)),
            "ranks_per_host": self.world.ranks_per_host,
            "oversubscribed": self.place.oversubscribed,
            "binding": self.place.binding,
        }

    def _known(
        self, case: Case, backend: Backend, shape: Shape, collective: Collective, itemsize: int
    ) -> dict[str, Any]:
        """What is known of a case before it runs."""
        size, root = self.world.size, int(case.root) if case.root else 0
        asked = range(size) if collective.has_patterns else {0, root}
        layouts = [collective.layout(shape.count, size, rank, root=root) for rank in asked]
        return {
            "library": backend.library,
            "thread_level": self.world.thread_level or None,
            "device": backend.device or None,
            "size_bytes": shape.size_bytes,
            "count": shape.count,
            "send_bytes": max(one.send for one in layouts) * itemsize,
            "recv_bytes": max(one.recv for one in layouts) * itemsize,
            "seed": self._seed(case) if case.dtype else None,
        }

    def _figures(self, case: Case, shape: Shape, bound: BoundCall, sampled: Sampled, denied: float) -> dict[str, Any]:
        """What rank 0 knows after sampling; nothing on the others."""
        if not sampled.durations_s.size:
            return {}
        collective = collective_of(case.collective, case.pattern, self.world.size)
        by_device = sampled.device_s is not None
        durations = sampled.device_s if sampled.device_s is not None else sampled.durations_s
        enqueued = sampled.enqueue_s
        if collective.timed_ranks >= 0:
            durations, enqueued = durations[: collective.timed_ranks], enqueued[: collective.timed_ranks]
        worst = durations.max(axis=0) / collective.operations_per_iteration
        step_s = self.clock.step_s / sampled.batch / collective.operations_per_iteration
        summary = summarise(worst, step_s)
        slowest = slowest_rank(durations)
        notes = list(bound.notes)
        if not by_device and self.clock.floor_s > _FLOOR_SHARE * summary.median_s * sampled.batch:
            notes.append("timer_floor")
        if case.requested_bytes and not shape.size_bytes and case.dtype:
            notes.append("rounded_to_nothing")
        if denied > noise.HEAVY:
            notes.append("noisy")
        if self.place.oversubscribed:
            notes.append("oversubscribed")
        algbw = shape.size_bytes / summary.median_s / 1e9 if summary.median_s > 0 and shape.size_bytes else None
        factor = collective.bus_factor(self.world.size)
        return {
            "notes": " ".join(notes) or None,
            "algorithm": bound.algorithm or None,
            "warmup_iterations": sampled.warmup_iterations,
            "iterations": summary.count * sampled.batch,
            "batch": sampled.batch,
            "stopped_by": sampled.stopped_by,
            "clock": "device" if by_device else "host",
            "clock_step_s": self.clock.step_s,
            "timer_floor_s": self.clock.floor_s,
            "time_min_s": summary.minimum_s,
            "time_p50_s": summary.median_s,
            "time_p50_low_s": summary.low_s,
            "time_p50_high_s": summary.high_s,
            "time_p95_s": summary.p95_s,
            "time_p99_s": summary.p99_s,
            "time_max_s": summary.maximum_s,
            "time_mean_s": summary.mean_s,
            "enqueue_p50_s": float(np.median(enqueued.max(axis=0))) / collective.operations_per_iteration,
            "device_p50_s": float(np.median(worst)) if by_device else None,
            "algbw_GBps": algbw,
            "busbw_GBps": algbw * factor if algbw is not None and factor is not None else None,
            "slowest_rank": self.world.ranks[slowest.rank] if slowest else None,
            "slowest_rank_share": slowest.share if slowest else None,
        }

    def _wrong(self, damage: Damage | None) -> dict[str, Any]:
        """Bring the ranks' damages together: the total, and the first rank's first wrong element."""
        damages = self.world.all_gather(damage)
        total = sum(one.wrong for one in damages if one is not None)
        first = next(((rank, one) for rank, one in enumerate(damages) if one is not None), None)
        if first is None:
            return {"wrong": 0}
        rank, one = first
        return {
            "wrong": total,
            "first_wrong": one.index,
            "first_got": one.got,
            "first_expected": one.expected,
            "reason": one.on(self.world.ranks[rank]),
        }


def exit_code(statuses: list[str]) -> int:
    """Return the exit code of a launch by the statuses of its rows."""
    for status, code in (("wrong", 3), ("timeout", 4), ("failed", 1)):
        if status in statuses:
            return code
    return 0 if "ok" in statuses or not statuses else 7
