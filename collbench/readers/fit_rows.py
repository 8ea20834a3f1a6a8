"""The rows of results as curves: time over size in one setting on one number of ranks, launch by launch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.errors import UsageError
from collbench.evidence import UNDECIDED
from collbench.provenance import expanded
from collbench.record import Record
from collbench.replay import NAME

Floats = NDArray[np.float64]

SETTING = (
    "collective", "variant", "backend", "library", "operation", "root", "dtype", "placement", "caller", "call", "mode",
    "sync", "buffer", "buffers", "pages", "pattern", "neighbour", "device", "ranks_per_device",
)  # fmt: skip
"""What a family of curves has in common, besides transport, kind of topology, and whether ranks share cores."""

SHARED = "cores shared"
"""Of a family whose ranks are more than their cores."""

_MOST = 1e18
"""Seconds, or bytes."""

_NOTED = ("noisy", "throttled", "shared_device", "timer_floor")


@dataclass(frozen=True, eq=False)
class Curve:
    """Times over sizes on one group of ranks: `log_times` is launches x sizes, nan where a launch has no such size."""

    ranks: int
    hosts: int
    ranks_per_host: int
    sizes: Floats
    log_times: Floats
    oversubscribed: bool = False
    notes: tuple[str, ...] = ()
    touched_bytes: int | None = None
    """Buffers of a host's ranks at the largest size, all sets: what a cache would have to hold."""

    @property
    def launches(self) -> int:
        """Launches that have any of its sizes."""
        return int(self.log_times.shape[0])

    @property
    def times(self) -> Floats:
        """In seconds, by size: the geometric mean of the launches' medians."""
        return np.asarray(np.exp(np.nanmean(self.log_times, axis=0)), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Family:
    """Curves that differ in the number of ranks and hosts alone."""

    setting: tuple[tuple[str, str], ...]
    curves: tuple[Curve, ...]

    def value(self, name: str) -> str:
        """One of its setting's; empty where it is not known."""
        return dict(self.setting).get(name, "")

    @property
    def label(self) -> str:
        """The setting in words."""
        return " ".join(value for name, value in self.setting if value and name != "library")


def curve(
    sizes: Sequence[float], times: Sequence[Sequence[float]] | Sequence[float] | Floats, ranks: int = 2, hosts: int = 1
) -> Curve:
    """Make one of times in seconds: launches x sizes, or those of one launch."""
    table = np.atleast_2d(np.asarray(times, dtype=np.float64))
    return Curve(ranks, hosts, -(-ranks // hosts), np.asarray(sizes, dtype=np.float64), np.log(table))


def families(records: Iterable[Record]) -> tuple[Family, ...]:
    """Sort the rows that have a time and a size into families; those with the most curves are not put first."""
    rows: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        if record.collective == NAME:  # of several sizes at once
            continue
        if max(record.time_p50_s or 0, record.size_bytes or 0) > _MOST:
            raise UsageError(
                f"{record.run_id}: {record.case_id}: got {record.time_p50_s} s for {record.size_bytes} B, which "
                "nothing has measured, expected results as collbench wrote them; take them from the run folder again"
            )
        if record.status != "ok" or not record.ranks or min(record.time_p50_s or 0, record.size_bytes or 0) <= 0:
            continue
        kind, place = _where(record)
        key = (*(getattr(record, name) for name in SETTING), kind, place)
        rows.setdefault(key, []).append(record)
    found = []
    for key, its in rows.items():
        for transport, same in _by_transport(its).items():
            words = [("" if value is None else str(value)) for value in key]
            if any((row.topology or "").startswith("first:") for row in same):
                words[-2] = "first"
            names = (*SETTING, "topology", "group")
            setting = (*zip(names, words, strict=True), ("transport", transport))
            crowded = [row for row in same if _crowded(row)]
            alone = [row for row in same if not _crowded(row)]
            found += [Family((*setting, ("cores", "")), _curves(alone))] if alone else []
            found += [Family((*setting, ("cores", SHARED)), _curves(crowded))] if crowded else []
    return tuple(found)


def _crowded(row: Record) -> bool:
    """Whether its ranks share cores: another regime, of which those with a core each tell nothing.

    A launch of four ranks on two cores is marked whole, but its groups of two ranks have a core each.
    """
    cores: set[int] = set()
    try:
        for part in (row.binding or "").split(";"):
            cores |= expanded(part)
    except ValueError:  # a list that was cut
        cores = set()
    if not cores:
        return bool(row.oversubscribed)
    return bool(row.oversubscribed) and (row.ranks_per_host or row.ranks or 1) > len(cores)


def _where(record: Record) -> tuple[str, str]:
    """The kind of topology, and the group where it stands for its place and not for its size alone.

    All ranks are the first of them too: which the family is called, `families` says.
    """
    topology = record.topology or ""
    kind = "world" if topology.startswith("first:") else topology
    return kind, "" if kind == "world" else record.group or ""


def _by_transport(rows: Sequence[Record]) -> dict[str, list[Record]]:
    """Rows whose transport is not known (too little to count) go with the one that is, where there is one."""
    names = ["" if row.transport in (None, UNDECIDED) else str(row.transport) for row in rows]
    known = sorted(set(names) - {""})
    if len(known) < 2:
        return {known[0] if known else rows[0].transport or "": list(rows)}
    sorted_rows: dict[str, list[Record]] = {}
    for name, row in zip(names, rows, strict=True):
        sorted_rows.setdefault(name, []).append(row)
    return sorted_rows


def _curves(rows: Sequence[Record]) -> tuple[Curve, ...]:
    groups: dict[tuple[int, int, int], list[Record]] = {}
    for row in rows:
        ranks, hosts = row.ranks or 1, row.hosts or 1
        groups.setdefault((ranks, hosts, row.ranks_per_host or -(-ranks // hosts)), []).append(row)
    return tuple(_curve(*key, its) for key, its in sorted(groups.items()))


def _curve(ranks: int, hosts: int, ranks_per_host: int, rows: Sequence[Record]) -> Curve:
    sizes = sorted({row.size_bytes or 0 for row in rows})
    launches = sorted({(row.run_id or "", row.launch) for row in rows})
    total, count = np.zeros((len(launches), len(sizes))), np.zeros((len(launches), len(sizes)))
    for row in rows:
        at = launches.index((row.run_id or "", row.launch)), sizes.index(row.size_bytes or 0)
        total[at] += np.log(row.time_p50_s or 1.0)
        count[at] += 1
    log_times = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    words = [set((row.notes or "").split()) for row in rows]
    notes = tuple(
        f"{marked} of {len(rows)} rows {note}" for note in _NOTED if (marked := sum(note in its for its in words))
    )
    over = any(row.oversubscribed or "oversubscribed" in its for row, its in zip(rows, words, strict=True))
    touched = None
    if (buffers := [row for row in rows if row.send_bytes is not None and row.recv_bytes is not None]) == list(rows):
        touched = max(
            ((row.send_bytes or 0) + (row.recv_bytes or 0)) * (row.buffers or 1) * ranks_per_host for row in buffers
        )
    return Curve(ranks, hosts, ranks_per_host, np.array(sizes, dtype=np.float64), log_times, over, notes, touched)
