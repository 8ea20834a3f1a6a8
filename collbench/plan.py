"""Scenario x world -> ordered cases, the same on every rank."""

import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import product

from collbench.collectives import entry_named
from collbench.scenario import Rule, Scenario, Sweep


@dataclass(frozen=True)
class Case:
    """One point of the sweep: its axes, and nothing of where it runs. An axis that does not apply is empty."""

    variant: str
    backend: str
    collective: str
    call: str
    dtype: str
    operation: str
    root: str
    placement: str
    caller: str
    mode: str
    sync: str
    buffer: str
    buffers: int
    pages: str
    pattern: str
    topology: str
    requested_bytes: int

    @property
    def case_id(self) -> str:
        """The same point has the same name on every machine and in every version: 12 hexadecimal digits.

        An axis that came later and has its first default leaves older names as they were.
        """
        axes = {name: value for name, value in asdict(self).items() if _LATER_AXES.get(name) != value}
        return hashlib.sha256(json.dumps(axes, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """The case in words, for messages."""
        words = [self.backend, self.collective, self.dtype, self.operation, f"{self.requested_bytes} B"]
        words += [self.placement, self.caller, self.call, self.mode, self.topology]
        return " ".join(word for word in words if word)


_LATER_AXES = {"pages": "default", "pattern": ""}


@dataclass(frozen=True)
class Plan:
    """The cases of one launch in the order in which they run."""

    cases: tuple[Case, ...]

    @property
    def digest(self) -> str:
        """What all ranks compare before the first case."""
        listed = [[*asdict(case).values()] for case in self.cases]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def expand(scenario: Scenario, *, variant: str = "", backend: str = "mpi", launch: int = 0, launches: int = 1) -> Plan:
    """List the cases of one launch; `backend` is what "default" stands for here.

    Points that differ only in axes that do not apply (the operation of a broadcast, the dtype of a barrier) are one
    case. The order is that of the file, or, with several launches, shuffled by the launch's number: what drifts then
    does not always meet the same case.
    """
    cases = list(dict.fromkeys(case for sweep in scenario.sweeps for case in _cases(scenario, sweep, variant, backend)))
    order = scenario.measure.order
    if order == "random" or (order == "auto" and launches > 1):
        random.Random(f"{scenario.measure.seed}:{launch}:{variant}").shuffle(cases)
    return Plan(tuple(cases))


def _cases(scenario: Scenario, sweep: Sweep, variant: str, default_backend: str) -> Iterator[Case]:
    axes = product(
        sweep.backends, sweep.topologies, sweep.collectives, sweep.patterns, sweep.dtypes, sweep.operations,
        sweep.roots, sweep.calls, sweep.callers, scenario.measure.modes, sweep.syncs, sweep.buffer, sweep.buffers,
        sweep.pages, sweep.placements, sweep.sizes or (0,),
    )  # fmt: skip
    for (backend, topology, collective, pattern, dtype, operation, root, call, caller, mode, sync, buffer, buffers,
         pages, placement, size) in axes:  # fmt: skip
        case = Case(
            variant=variant, backend=default_backend if backend == "default" else backend, collective=collective,
            call=call, dtype=dtype, operation=operation, root=root, placement=placement, caller=caller, mode=mode,
            sync=sync, buffer=buffer, buffers=buffers, pages=pages, pattern=pattern, topology=topology,
            requested_bytes=size,
        )  # fmt: skip
        case = _applicable(case)
        if _wanted(case, sweep.include, sweep.exclude):
            yield case


def _applicable(case: Case) -> Case:
    """Empty the axes that the collective does not have."""
    collective = entry_named(case.collective).collective
    placement = case.placement
    if placement == "default":
        placement = "out_of_place"
    case = replace(
        case,
        operation=case.operation if collective.reduces else "",
        root=case.root if collective.rooted else "",
        placement=placement,
        pattern=case.pattern if getattr(collective, "has_patterns", False) else "",
    )
    if not collective.has_data:
        case = replace(
            case, dtype="", placement="", buffer="plain", buffers=1, pages="default", requested_bytes=0
        )
    return case


def _wanted(case: Case, include: Iterable[Rule], exclude: Iterable[Rule]) -> bool:
    include = tuple(include)
    return (not include or any(_matches(case, rule) for rule in include)) and not any(
        _matches(case, rule) for rule in exclude
    )


def _matches(case: Case, rule: Rule) -> bool:
    if rule.least_size is not None and case.requested_bytes < rule.least_size:
        return False
    if rule.most_size is not None and case.requested_bytes > rule.most_size:
        return False
    return all(str(getattr(case, axis)) in {str(value) for value in values} for axis, values in rule.match)


AXES = tuple(field.name for field in fields(Case))
