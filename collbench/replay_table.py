"""A sweep of kind "replay" as its user writes it: which keys it has, and the sweeps that it stands for."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from collbench import replay
from collbench.errors import UsageError
from collbench.planning import values, workload
from collbench.scenario import Sweep, nearest
from collbench.scenario_values import refused

if TYPE_CHECKING:
    from collbench.scenario_model import SweepTable

KEYS = ("workloads", "bucketings", "computes")
"""Keys that no other kind has."""
_AXES = (
    "backends", "operations", "placements", "callers", "calls", "syncs", "buffer", "buffers", "pages", "topologies",
    "neighbours",
)  # fmt: skip
"""Keys whose values go on to the cases as they are."""
_PLACEMENT = ("in_place",)
"""Frameworks reduce gradients in place."""


def agree(table: "SweepTable") -> None:
    """Refuse what does not fit together."""
    for key in type(table).model_fields:
        if key in table.model_fields_set and key not in ("kind", "dtypes", *KEYS, *_AXES):
            raise refused('none with kind = "replay"', f"remove {key}", at=(key,))
    if table.workloads is None:
        raise refused("at least one workload", at=("workloads",), got="nothing")
    for index, name in enumerate(table.workloads):
        its = _workload(name, index)
        if (expected := replay.problem(its)) is not None:
            raise refused(expected, "name another", at=("workloads", index))
        if replay.GIVEN in (table.computes or ()) and not its.compute_s:
            place = (table.computes or []).index(replay.GIVEN)
            raise refused(
                f"a time, since {its.name} gives none at any batch", 'write e.g. "20 ms"', at=("computes", place)
            )


def sweeps(table: "SweepTable") -> Iterator[Sweep]:
    """Return the ordinary sweeps."""
    axes = {key: tuple(getattr(table, key)) for key in _AXES}
    if "placements" not in table.model_fields_set:
        axes["placements"] = _PLACEMENT
    plain = Sweep(kind=replay.NAME, collectives=(replay.NAME,), **axes)
    found = [_workload(name, index) for index, name in enumerate(table.workloads or ())]
    dtypes = table.dtypes if "dtypes" in table.model_fields_set else ()
    yield from replay.sweeps(plain, found, table.bucketings or (), dtypes, table.computes or (replay.NONE,))


def _workload(name: str, index: int) -> workload.Workload:
    names = workload.shipped()
    try:
        path = values.find(name, workload.FOLDER, "workload")
    except UsageError:
        remedy = nearest(name, names, "write one of them or a file's path")
        raise refused(f"a file or one of {', '.join(names)}", remedy, at=("workloads", index)) from None
    return workload.load(str(path))
