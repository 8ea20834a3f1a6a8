"""Rows as the runner makes them, in one process over the loopback."""

import os
from typing import Any

import pytest

from collbench.backends.loopback import Loopback
from collbench.backends.mpi import Mpi
from collbench.clock import Clock
from collbench.collectives import Layout, collective_of
from collbench.collectives.all_reduce import AllReduce
from collbench.plan import Case, expand
from collbench.record import Record
from collbench.runner import Place, Runner
from collbench.scenario import Measure, Scenario, Sweep
from collbench.watchdog import Watchdog
from collbench.world import World

QUICK = Measure(time_budget_s=0.002, least_time_s=0.0, least_iterations=2, warmup_time_s=0.0)


def rows(**axes: Any) -> list[Record]:
    """Measure a sweep on one rank."""
    sweep = Sweep(**{"collectives": ("all_reduce",), "sizes": (8,)} | axes)
    scenario = Scenario(name="t", title="t", sweeps=(sweep,), measure=QUICK)
    found: list[Record] = []
    runner = Runner(
        world=World(), watchdog=Watchdog(), scenario=scenario, clock=Clock(1e-9, 1e-8),
        place=Place(oversubscribed=False, binding="0"), run_id="r", launch=0,
        announce=lambda bases: None, record=found.extend,
    )  # fmt: skip
    runner.run(expand(scenario, backend="loopback"))
    return found


def test_a_skipped_row_says_what_size_was_asked_for() -> None:
    (row,) = rows(calls=("persistent",), sizes=(10,))
    assert (row.status, row.requested_bytes, row.size_bytes, row.count) == ("skipped", 10, 8, 2)
    assert row.reason == "call persistent: loopback has blocking only"
    (row,) = rows(collectives=("all_to_all_v",), matrix=((0.0, 1.0), (1.0, 0.0)))
    assert (row.status, row.size_bytes, row.count) == ("skipped", None, None)  # a matrix for two ranks


def test_a_count_that_a_library_cannot_take_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loopback, "overflows", Mpi.overflows)
    monkeypatch.setattr("collbench.backends.mpi._MOST_COUNT", 100)
    fits, skipped = rows(sizes=(400, 404))
    assert (fits.status, skipped.status) == ("ok", "skipped")
    assert skipped.reason == "count: got 101 elements, expected at most 100 (MPI's int); ask for a smaller size"
    assert skipped.count == 101


def overflow(collective: str, pattern: str, count: int, ranks: int) -> str | None:
    case = Case(**dict.fromkeys(Case.__dataclass_fields__, ""))  # type: ignore[arg-type]
    layout: Layout = collective_of(collective, pattern, ranks).layout(count, ranks, 0)
    return Mpi.overflows(object.__new__(Mpi), case, count, layout)


def test_mpi_counts_with_an_int() -> None:
    assert overflow("all_reduce", "", 2**31 - 1, 2) is None
    assert "got 2147483648 elements" in str(overflow("all_reduce", "", 2**31, 2))
    # Each block and each place of one must fit; the whole need not.
    assert overflow("all_to_all_v", "uniform", 2**32 - 2, 2) is None
    assert "got 2147483648 elements" in str(overflow("all_to_all_v", "uniform", 2**32, 2))
    assert "got 3221225472 elements" in str(overflow("all_to_all_v", "uniform", 2**32, 4))


def test_a_row_names_the_pages() -> None:
    (row,) = rows(sizes=(1 << 22,), pages=("small",))
    assert row.page_bytes == os.sysconf("SC_PAGE_SIZE")


def test_the_bus_bandwidth_of_a_row_is_of_the_elements_that_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AllReduce, "bus_factor", lambda self, ranks, count: float(10 * ranks + count))
    (row,) = rows(sizes=(12,))
    assert row.busbw_GBps == pytest.approx(13 * (row.algbw_GBps or 0))
