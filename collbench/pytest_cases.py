"""Cases as pytest sees them: the items of a scenario with readable names, and the case that a test asks for."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import CollbenchError, UsageError
from collbench.plan import Case, expand
from collbench.scenario import Measure, Scenario, nearest

CASES: pytest.StashKey[dict[Path, tuple[tuple[str, Case], ...]]] = pytest.StashKey()
"""The cases of each scenario file of the session, by name."""
FIXTURE = "collective_benchmark"

_USUAL = {
    "operation": ("", "sum"),
    "root": ("", "0"),
    "call": ("blocking",),
    "caller": ("compiled",),
    "mode": ("latency",),
    "sync": ("library",),
    "buffer": ("plain",),
    "buffers": (1,),
    "pages": ("default",),
    "pattern": ("", "uniform"),
    "topology": ("world",),
    "neighbour": ("alone",),
}
"""Values that a name leaves out: a name stays when a scenario gets more axes."""
_LONGEST = 24
_AXES = {
    "backend": "backends", "collective": "collectives", "dtype": "dtypes", "operation": "operations", "root": "roots",
    "placement": "placements", "caller": "callers", "call": "calls", "sync": "syncs", "buffer": "buffer",
    "buffers": "buffers", "pages": "pages", "topology": "topologies", "neighbour": "neighbours", "pattern": "patterns",
}  # fmt: skip
"""What a test calls the axes, and what a scenario file does."""


def name_of(case: Case, backend: str) -> str:
    """Name a case, such as all_reduce-8B-float32-out_of_place; `backend` is what "default" stands for here."""
    from collbench.units import format_size

    words = [case.collective]
    if case.dtype:
        words += [format_size(case.requested_bytes).replace(" ", ""), case.dtype, case.placement]
    words += [case.backend] if case.backend != backend else []
    for axis, usual in _USUAL.items():
        value = getattr(case, axis)
        if value not in usual:
            text = str(value).replace(" ", "_")
            said = text if axis in ("operation", "call", "caller", "mode", "topology", "pattern") else f"{axis}_{text}"
            words.append(said if len(said) <= _LONGEST and "::" not in said else f"{axis}_{case.case_id}")
    return "-".join(words)


def named(cases: Sequence[Case], backend: str) -> tuple[tuple[str, Case], ...]:
    """Name all cases of a plan, each by a name of its own."""
    names = [name_of(case, backend) for case in cases]
    times = Counter(names)
    return tuple(
        (name if times[name] == 1 else f"{name}-{case.case_id}", case) for name, case in zip(names, cases, strict=True)
    )


def case_of(axes: object, *, ranks: int, backend: str, measure: Measure) -> Case:
    """Return the case that a test means by axes such as collective="all_reduce", size="64 KiB"; else a UsageError."""
    from collbench.scenario_model import build

    if not isinstance(axes, Mapping):
        raise UsageError(
            f'{FIXTURE}: got {axes!r}, expected the axes of a case; write e.g. collective="all_reduce", size="64 KiB"'
        )
    known = (*_AXES, "size", "mode")
    for axis in axes:
        if axis not in known:
            remedy = nearest(axis, known, "leave it out")
            raise UsageError(f"{FIXTURE}: got axis {axis!r}, expected one of {', '.join(known)}; {remedy}")
    if "collective" not in axes:
        raise UsageError(f'{FIXTURE}: collective: got nothing, expected a name; write e.g. collective="all_reduce"')
    sweep = {_AXES[axis]: [value] for axis, value in axes.items() if axis in _AXES}
    if "root" in axes:
        sweep["roots"] = [int(axes["root"]) if str(axes["root"]).isdigit() else axes["root"]]
    if "size" in axes:
        size = axes["size"]
        sweep["sizes"] = [f"{size} B" if type(size) is int else size]
    document = {"schema": 1, "sweep": [sweep]}
    if "mode" in axes:
        document["measure"] = {"modes": [axes["mode"]]}
    scenario: Scenario = build(document, name=FIXTURE, where=FIXTURE)
    modes = scenario.measure.modes
    cases = expand(replace(scenario, measure=replace(measure, modes=modes)), ranks=ranks, backend=backend).cases
    if len(cases) != 1:
        raise UsageError(f"{FIXTURE}: got {len(cases)} cases, expected one; give each axis one value")
    return cases[0]


class Replay:
    """A timer that tells durations which were measured before: what pytest-benchmark reads it for is their difference.

    Every other reading is 0, so that a difference is the very sample. Where none are loaded it is a clock.
    """

    __name__ = "collbench"

    def __init__(self) -> None:
        self._readings: Iterator[float] | None = None

    def load(self, durations_s: Sequence[float]) -> None:
        """Take durations in seconds, to be told one after the other."""
        self._readings = chain.from_iterable((0.0, one) for one in durations_s)

    def __call__(self) -> float:
        return time.perf_counter() if self._readings is None else next(self._readings)


class ScenarioFile(pytest.File):
    """A scenario whose cases are tests."""

    def collect(self) -> Iterator["CaseItem"]:
        for name, case in self.config.stash[CASES][self.path]:
            item: CaseItem = CaseItem.from_parent(self, name=name, callobj=_test_of(case))
            item.add_marker(pytest.mark.benchmark(group=case.collective))
            yield item


class CaseItem(pytest.Function):
    """One case of a scenario."""

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, 0, self.name  # pytest reports no skip without a line

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CollbenchError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


def _test_of(case: Case) -> Callable[[Any], None]:
    def test(collective_benchmark: Any) -> None:
        collective_benchmark(case)

    return test
