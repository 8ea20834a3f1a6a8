"""Scenario x world -> ordered cases, the same on every rank."""

import hashlib
import json
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import Any

from collbench.collectives import entry_named
from collbench.errors import ScenarioError
from collbench.ladder import sweeps
from collbench.replay import short
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
    neighbour: str = "alone"

    @property
    def case_id(self) -> str:
        """The same point has the same name on every machine and in every version: a letter and 11 hexadecimal digits.

        The letter comes first so that no reader of the CSV takes a name such as 123e45 for a number.

        An axis that came later and has its first default leaves older names as they were.
        """
        axes = {name: value for name, value in asdict(self).items() if _LATER_AXES.get(name) != value}
        return "c" + hashlib.sha256(json.dumps(axes, sort_keys=True).encode()).hexdigest()[:11]

    @property
    def label(self) -> str:
        """The case in words, for messages."""
        words = [self.backend, self.collective, self.dtype, self.operation, f"{self.requested_bytes} B"]
        words += [short(self.pattern), self.placement, self.caller, self.call, self.mode, self.topology]
        words += [f"beside {self.neighbour}"] if self.neighbour != "alone" else []
        return " ".join(word for word in words if word)


_MOST_POINTS = 100_000
"""A day of measuring at one second each; more is a slip of the pen."""

_MPI = ("mpi", "mpi_cuda", "staged")
"""The backends that call MPI: what has one buffer there is in place."""

_LATER_AXES = {"pages": "default", "pattern": "", "neighbour": "alone"}


@dataclass(frozen=True)
class Plan:
    """The cases of one launch in the order in which they run."""

    cases: tuple[Case, ...]

    @property
    def digest(self) -> str:
        """What all ranks compare before the first case."""
        listed = [[*asdict(case).values()] for case in self.cases]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def expand(
    scenario: Scenario,
    *,
    ranks: int = 1,
    variant: str = "",
    backend: str = "mpi",
    launch: int = 0,
    launches: int = 1,
) -> Plan:
    """List the cases of one launch on so many ranks; `backend` is what "default" stands for here.

    Points that differ only in axes that do not apply (the operation of a broadcast, the dtype of a barrier) are one
    case. The order is that of the file, or, with several launches, shuffled by the launch's number: what drifts then
    does not always meet the same case.
    """
    context = _Context(variant, backend, ranks, scenario.measure.modes)
    blocks = [one for sweep in scenario.sweeps for one in sweeps(sweep)]
    points = sum(math.prod(map(len, _axes(sweep, context).values())) for sweep in blocks)
    if points > _MOST_POINTS:
        raise ScenarioError(
            f"{scenario.name}: sweep: got {points} points, expected at most {_MOST_POINTS}; leave values or sizes out"
        )
    cases = list(dict.fromkeys(case for sweep in blocks for case in _cases(sweep, context)))
    if not cases:
        raise ScenarioError(
            f"{scenario.name}: sweep: got no case, expected one; its include and exclude rules leave none"
        )
    order = scenario.measure.order
    if order == "random" or (order == "auto" and launches > 1):
        random.Random(f"{scenario.measure.seed}:{launch}:{variant}").shuffle(cases)
    return Plan(alone_first(cases))


def alone_first(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Put of each point the case alone before those beside a neighbour, which are held against it, in their places."""
    ordered = list(cases)
    places: dict[Case, list[int]] = {}
    for place, case in enumerate(ordered):
        places.setdefault(replace(case, neighbour="alone"), []).append(place)
    for its in places.values():
        those = sorted((ordered[place] for place in its), key=lambda case: case.neighbour != "alone")
        for place, case in zip(its, those, strict=True):
            ordered[place] = case
    return tuple(ordered)


@dataclass(frozen=True)
class _Context:
    """What a sweep leaves open: what "default" and "all" stand for in this launch."""

    variant: str
    backend: str
    ranks: int
    modes: tuple[str, ...]


def _axes(sweep: Sweep, context: _Context) -> dict[str, tuple[Any, ...]]:
    """The values of each axis; the one that is named first changes slowest."""
    return {
        "variant": (context.variant,),
        "backend": tuple(context.backend if name == "default" else name for name in sweep.backends),
        "topology": sweep.topologies,
        "collective": sweep.collectives,
        "pattern": _patterns(sweep),
        "dtype": sweep.dtypes,
        "operation": sweep.operations,
        "root": tuple(root for named in sweep.roots for root in (_every(context) if named == "all" else (named,))),
        "call": sweep.calls,
        "caller": sweep.callers,
        "mode": context.modes,
        "sync": sweep.syncs,
        "buffer": sweep.buffer,
        "neighbour": sweep.neighbours,
        "buffers": sweep.buffers,
        "pages": sweep.pages,
        "placement": sweep.placements,
        "requested_bytes": sweep.sizes or (0,),
    }


def _cases(sweep: Sweep, context: _Context) -> Iterator[Case]:
    """The cross product."""
    axes = _axes(sweep, context)
    for values in product(*axes.values()):
        case = _applicable(Case(**dict(zip(axes, values, strict=True))))
        ways = entry_named(case.collective).collective.ways
        if ways and case.pattern not in ways:
            continue
        if _wanted(case, sweep.include, sweep.exclude):
            yield case


def _every(context: _Context) -> tuple[str, ...]:
    return tuple(str(rank) for rank in range(context.ranks))


def _patterns(sweep: Sweep) -> tuple[str, ...]:
    """The ways of kernels; a given matrix takes the place of named patterns, as the text that all_to_all_v reads."""
    if sweep.kind == "kernel":
        ways = (way for name in sweep.collectives for way in entry_named(name).collective.ways)
        return sweep.patterns or tuple(dict.fromkeys(ways)) or ("",)
    if sweep.matrix is None:
        return sweep.patterns
    return ("; ".join(" ".join(map(_weight, row)) for row in sweep.matrix),)


def _weight(weight: float) -> str:
    """Write a weight exactly, and as short as that allows: 1.0 is "1"."""
    short = f"{weight:g}"
    return short if float(short) == weight else repr(weight)


def _applicable(case: Case) -> Case:
    """Empty the axes that the collective does not have, and settle what "default" placement is."""
    entry = entry_named(case.collective)
    collective = entry.collective
    placement = case.placement
    if placement == "default":
        placement = "in_place" if entry.one_buffer and case.backend in _MPI else "out_of_place"
    case = replace(
        case,
        operation=case.operation if collective.reduces else "",
        root=case.root if collective.rooted else "",
        placement=placement,
        pattern=case.pattern if collective.has_patterns else "",
        mode=collective.only_mode or case.mode,
    )
    if not collective.has_data:
        case = replace(case, dtype="", placement="", buffer="plain", buffers=1, pages="default", requested_bytes=0)
    return case


def spoken(case: Case) -> Case:
    """Return the case that stands for it where a library is asked what it chooses: how it is timed does not matter."""
    return replace(case, call="blocking", caller="compiled", mode="throughput", sync="library", neighbour="alone")


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
