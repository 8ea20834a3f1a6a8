"""What rows are held against: earlier rows of the same launch."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.beside import Neighbours, Reached, health_columns, limit_columns
from collbench.collectives import collective_of
from collbench.device_health import Health
from collbench.device_limits import Limit
from collbench.plan import Case
from collbench.record import Record
from collbench.world import World

CASE = Case(
    variant="", backend="nccl", collective="all_reduce", call="blocking", dtype="float32", operation="sum", root="",
    placement="out_of_place", caller="compiled", mode="latency", sync="library", buffer="plain", buffers=1,
    pages="default", pattern="", topology="world", requested_bytes=8,
)  # fmt: skip
COPY = replace(CASE, backend="device", collective="peer_copy", pattern="engine all")


def row(seconds: float, busbw: float | None = None, limit: float | None = None) -> dict[str, Any]:
    return {"time_p50_s": seconds, "busbw_GBps": busbw, "limit_GBps": limit}


def test_a_slowdown_is_over_the_same_case_alone() -> None:
    reached = Reached()
    busy = replace(CASE, neighbour="compute")
    assert "slowdown" not in reached.columns(busy, "world", "ok", row(9.0))
    assert "slowdown" not in reached.columns(CASE, "world", "ok", row(2.0))
    assert reached.columns(busy, "world", "ok", row(5.0))["slowdown"] == 2.5
    assert "slowdown" not in reached.columns(busy, "0-1", "ok", row(5.0))
    assert "slowdown" not in reached.columns(replace(busy, requested_bytes=16), "world", "ok", row(5.0))


@pytest.mark.parametrize("status", ["failed", "skipped", "wrong", "timeout", "not in this launch"])
def test_a_row_says_why_it_has_no_slowdown(status: str) -> None:
    busy, values = replace(CASE, neighbour="compute"), {**row(5.0), "notes": "noisy", "reason": "transport: got shm"}
    reached, resumed = Reached(), Reached()
    if status != "not in this launch":
        assert reached.columns(CASE, "world", status, row(2.0) if status == "wrong" else {}) == {}
        resumed.take([recorded(CASE, status)])
    said = f"no slowdown: {CASE.case_id}, this alone, is {status}"
    for one in reached, resumed:
        found = one.columns(busy, "world", "ok", values)
        assert found == {"notes": "noisy no_slowdown", "reason": f"transport: got shm; {said}"}
        assert one.columns(busy, "world", "ok", row(5.0)) == {"notes": "no_slowdown", "reason": said}
        assert one.columns(busy, "world", "failed", {"reason": "it ended"}) == {}
    assert Reached().columns(CASE, "world", "ok", row(5.0)) == {}


def test_rows_are_held_against_theory_until_a_copy_was_measured() -> None:
    reached = Reached()
    assert reached.columns(CASE, "world", "ok", row(1.0, 20.0, 50.0)) == {"limit_fraction": 0.4}
    reached.columns(COPY, "world", "ok", row(1.0, 30.0, 50.0))
    reached.columns(COPY, "world", "ok", row(1.0, 40.0, 50.0))
    reached.columns(COPY, "world", "ok", row(1.0, 35.0, 50.0))
    found = reached.columns(CASE, "world", "ok", row(1.0, 20.0, 50.0))
    assert found == {
        "limit_GBps": 40.0,
        "limit_source": "the fastest peer_copy of this launch",
        "limit_fraction": 0.5,
    }
    staged = replace(CASE, backend="staged")
    assert reached.columns(staged, "world", "ok", row(1.0, 20.0, 50.0)) == {"limit_fraction": 0.4}
    # Where there is no limit (several hosts, no bus bandwidth) the copy within one host is none either.
    assert reached.columns(CASE, "world", "ok", row(1.0, 20.0)) == {}


def test_a_copy_on_shared_devices_is_no_limit() -> None:
    reached, resumed = Reached(), Reached()
    reached.columns(COPY, "0-1", "ok", row(1.0, 10.0) | {"ranks_per_device": 2})
    resumed.take([recorded(COPY, time_p50_s=1.0, busbw_GBps=10.0, ranks_per_device=2)])
    for one in reached, resumed:
        assert one.columns(CASE, "world", "ok", row(1.0, 20.0, 50.0)) == {"limit_fraction": 0.4}


def recorded(case: Case, status: str = "ok", **values: Any) -> Record:
    return Record(
        run_id="r", launch=0, started_at="", scenario="s", status=status, case_id=case.case_id, group="world",
        neighbour=case.neighbour, collective=case.collective, backend=case.backend, **values,
    )  # fmt: skip


def test_what_was_there_before_this_process_counts() -> None:
    reached, busy, larger = Reached(), replace(CASE, neighbour="copy"), replace(CASE, requested_bytes=16)
    reached.take([
        recorded(CASE, time_p50_s=2.0), recorded(COPY, time_p50_s=1.0, busbw_GBps=40.0), recorded(larger, "failed"),
        recorded(busy, time_p50_s=9.0),
    ])  # fmt: skip
    found = reached.columns(busy, "world", "ok", row(5.0, 20.0, 50.0))
    assert (found["slowdown"], found["limit_GBps"], found["limit_fraction"]) == (2.5, 40.0, 0.5)
    assert "slowdown" not in reached.columns(replace(larger, neighbour="copy"), "world", "ok", row(5.0))


def test_a_row_has_the_worst_device() -> None:
    world = World()
    before = Health(0.0, sm_clock_hz=2e9, temperature_celsius=50, power_watt=300.0)
    after = Health(1.0, sm_clock_hz=1.5e9, temperature_celsius=60, power_watt=400.0, reasons=("power cap",))
    columns, flags = health_columns(world, before, after)
    assert columns == {"sm_clock_MHz": 1500.0, "temperature_C": 60.0, "power_W": 400.0, "throttle": "power cap"}
    assert flags == ("throttled",)
    assert health_columns(world, None, None) == ({}, ())


def test_a_backend_without_a_device_has_no_neighbours() -> None:
    from collbench.backends.loopback import Loopback
    from collbench.errors import CannotRun

    backend = Loopback(World())
    neighbours = Neighbours()
    neighbours.want(CASE, backend.group, backend)
    assert neighbours.problem() is None
    with pytest.raises(CannotRun, match="backend loopback has no device to share"):
        neighbours.want(replace(CASE, neighbour="copy"), backend.group, backend)


FAST, SLOW = Limit(450e9, "NVLinks"), Limit(100e9, "NVLinks")
PCIE, HALF = Limit(63e9, "PCIe"), Limit(31.5e9, "PCIe x8")


def limit_of(
    monkeypatch: pytest.MonkeyPatch, collective: str, backend: str, *, pattern: str = "", size: int = 4,
    uuids: str = "abcd", known: dict[str, str] | None = None, nvlink: bool = True, slow: str = "", sharers: int = 1,
) -> tuple[float | None, str | None]:  # fmt: skip
    """The limit of a row on devices a to d, whose links are fast but for the one between c and d, and a and d.

    Those in `slow` are in slots of half the width.
    """

    def linked(one: str, other: str) -> Limit | None:
        if not nvlink:
            return None
        return SLOW if {one, other} in ({"c", "d"}, {"a", "d"}) else FAST

    monkeypatch.setattr("collbench.device_limits.nvlink_limit", linked)
    monkeypatch.setattr("collbench.device_limits.pcie_limit", lambda uuid: HALF if uuid in slow else PCIE)
    group: Any = SimpleNamespace(size=size, rank=0, hosts=("h",) * size, all_gather=lambda _: list(uuids[:size]))
    of: Any = SimpleNamespace(name=backend, uuid="a", ranks_per_device=sharers)
    found = limit_columns(collective_of(collective, pattern, size), group, of, known or {})
    return found.get("limit_GBps"), found.get("limit_source")


def test_a_limit_is_of_the_links_that_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = partial(limit_of, monkeypatch)
    assert limit("all_reduce", "nccl", size=3) == (450, "NVLinks")
    assert limit("all_reduce", "nccl", known={"algorithm": "RING"}) == (100, "NVLinks")
    assert limit("all_reduce", "staged") == (63, "PCIe")
    assert limit("all_reduce", "mpi_cuda") == (None, None)
    assert limit("all_reduce", "nccl", uuids="aabc", sharers=2) == (None, None)
    for collective, backend in (("all_reduce", "nccl"), ("all_reduce", "staged"), ("copy", "device")):
        assert limit(collective, backend, sharers=2) == (None, None)
    assert limit("peer_copy", "device", pattern="engine one_way", size=3) == (450, "NVLinks")
    assert limit("peer_copy", "device", pattern="engine one_way") == (100, "NVLinks")
    assert limit("peer_copy", "device", pattern="engine all", size=3) == (450, "NVLinks")


def test_a_limit_over_pcie_is_that_of_the_slower_end(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = partial(limit_of, monkeypatch, nvlink=False)
    one_way = partial(limit, "peer_copy", "device", pattern="engine one_way", size=3)
    assert one_way(slow="a") == one_way(slow="c") == (31.5, "PCIe x8")
    assert one_way(slow="b") == (63, "PCIe")
    assert limit("all_reduce", "nccl", slow="d") == (31.5, "PCIe x8")


def test_a_copy_of_one_rank_is_held_against_the_links_of_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collbench.backends.cuda.visible_devices", lambda: 4)
    monkeypatch.setattr("collbench.backends.cuda.device_uuid", lambda index: "abcd"[index])
    limit = partial(limit_of, monkeypatch, "peer_copy", "device", size=1)
    assert limit(pattern="engine one_way") == (100, "NVLinks")
    assert limit(pattern="kernel all") == (100, "NVLinks")
    monkeypatch.setattr("collbench.backends.cuda.visible_devices", lambda: 3)
    assert limit(pattern="engine one_way") == (450, "NVLinks")
    assert limit_of(monkeypatch, "all_reduce", "nccl", size=1) == (None, None)


def test_a_copy_of_all_is_held_against_the_slowest_of_their_links(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first writes to the last over a fast link, and the third to the fourth over a slow one.
    limit = partial(limit_of, monkeypatch, "peer_copy", "device", uuids="bacd")
    assert limit(pattern="engine both_ways") == (450, "NVLinks")
    assert limit(pattern="engine all") == (100, "NVLinks")


@pytest.mark.parametrize(
    ("collective", "known", "limited"),
    [
        ("all_reduce", {"algorithm": "NVLS"}, False),
        ("all_reduce", {"algorithm": "NVLSTree"}, False),
        ("all_reduce", {"algorithm": "Symmetric", "protocol": "AllReduce_AGxLLMC_R"}, False),
        ("all_reduce", {"algorithm": "Symmetric", "protocol": "AllReduce_AGxLL_R"}, True),
        ("all_reduce", {"transport": "nvls+p2p"}, False),
        ("all_reduce", {"algorithm": "Ring", "transport": "nvls+p2p"}, True),
        ("send_recv", {"transport": "nvls+p2p"}, True),
    ],
)
def test_multicast_has_no_limit_of_links(
    monkeypatch: pytest.MonkeyPatch, collective: str, known: dict[str, str], limited: bool
) -> None:
    assert limit_of(monkeypatch, collective, "nccl", known=known) == ((100, "NVLinks") if limited else (None, None))
