"""Our own kernels, and the driver's copies, as points of a sweep; needs CUDA devices, real or emulated."""

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launching
from collbench.backends.cuda import device_uuid
from collbench.clock import Clock
from collbench.collectives import collective_of
from collbench.dtypes import DTYPES
from collbench.kernels import pattern as host
from collbench.pattern import Pattern
from collbench.plan import expand
from collbench.record import Record
from collbench.results import read
from collbench.runner import Place, Runner
from collbench.scenario import Measure, Scenario, Sweep
from collbench.watchdog import Watchdog
from collbench.world import World

cupy = pytest.importorskip("cupy", reason="cupy is not installed", exc_type=ImportError)
copy_cuda = pytest.importorskip("collbench.kernels.copy_cuda", exc_type=ImportError)
reduce_cuda = pytest.importorskip("collbench.kernels.reduce_cuda", exc_type=ImportError)

PROGRAM = Path(__file__).with_name("run_cases.py")
WAYS = {name: collective_of(name, "", 2).ways for name in ("copy", "host_copy", "peer_copy")}


def needs(devices: int) -> None:
    if launching.cuda_devices() < devices:
        pytest.skip(f"{devices} CUDA devices are needed")


def measured(
    ranks: int, cases: list[dict[str, Any]], folder: Path, env: dict[str, str] | None = None
) -> list[list[dict[str, Any]]]:
    needs(ranks)
    given = folder / "cases.json"
    given.write_text(json.dumps({"backend": "device", "cases": cases}))
    done = launching.mpirun(ranks, [sys.executable, PROGRAM, given], timeout=90, env=env).expect(0)
    found: list[list[dict[str, Any]]] = json.loads(done.out)
    return found


def test_copy_moves_what_it_should_and_nothing_else() -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    source = cupy.asarray(np.arange(1 << 16, dtype=np.uint32).view(np.uint8)[: 1 << 16].copy())
    expected = source.get()
    sizes = (0, 1, 15, 16, 17, 31, 1000, 8192 * 4 + 9)
    for to, start, size in itertools.product((0, 1, 2, 4, 8, 15), (0, 1, 4, 6, 8), sizes):
        target = cupy.full(1 << 16, 0xA5, np.uint8)
        cupy.cuda.Device().synchronize()
        blocks, arguments = copy_cuda.arguments(int(target.data.ptr) + to, int(source.data.ptr) + start, size)
        copy_cuda.kernel().launch(blocks, arguments, stream)
        stream.synchronize()
        made = target.get()
        assert (made[to : to + size] == expected[start : start + size]).all(), (to, start, size)
        assert (made[:to] == 0xA5).all()
        assert (made[to + size :] == 0xA5).all()


def test_threads_stride_over_what_is_longer_than_the_grid() -> None:
    stream, size = cupy.cuda.Stream(non_blocking=True), 10 * 512 * 16 + 5
    source = cupy.asarray(np.random.default_rng(1).integers(0, 256, size, np.uint8))
    target = cupy.zeros(size, np.uint8)
    cupy.cuda.Device().synchronize()
    arguments = copy_cuda.arguments(int(target.data.ptr), int(source.data.ptr), size)[1]
    copy_cuda.kernel().launch(2, arguments, stream)
    stream.synchronize()
    assert (target.get() == source.get()).all()


def test_each_device_gets_as_many_blocks_as_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    needs(2)
    held = "occupancyMaxActiveBlocksPerMultiprocessor"
    monkeypatch.setattr(cupy.cuda.driver, held, lambda *_: 1 + cupy.cuda.Device().id)
    copy_cuda._kernel_of.cache_clear()
    blocks = []
    for device in (0, 1):
        with cupy.cuda.Device(device) as current:
            blocks.append(copy_cuda.arguments(0, 0, 1 << 40)[0] / current.attributes["MultiProcessorCount"])
    copy_cuda._kernel_of.cache_clear()
    assert blocks == [1, 2]


REDUCED = [
    (dtype, operation)
    for dtype, operation in itertools.product(DTYPES, ("sum", "prod", "min", "max"))
    if reduce_cuda.problem(dtype, operation) is None
    and (operation == "sum" or dtype in ("float16", "bfloat16", "float64", "int8", "uint64"))
]


@pytest.mark.parametrize(("dtype", "operation"), REDUCED)
def test_reduce_makes_the_hosts_bits(dtype: str, operation: str) -> None:
    kind, stream = DTYPES[dtype], cupy.cuda.Stream(non_blocking=True)
    pattern = Pattern(kind, operation, 2, 5)
    kernel = reduce_cuda.kernel(dtype, operation)
    for (out, one, other), count in itertools.product(
        ((0, 0, 0), (3, 3, 3), (1, 0, 2)), (1, 16 // kind.itemsize, 1037)
    ):
        inputs = np.zeros((2, 1100), kind.view)
        for row, start, rank in zip(inputs, (one, other), (0, 1), strict=True):
            host.fill(row[start : start + count], pattern.words(rank, rank), 9)
        on_device, made = cupy.asarray(inputs), cupy.full(1100, 0xA5, kind.view)
        cupy.cuda.Device().synchronize()
        base, item = int(on_device.data.ptr), kind.itemsize
        places = int(made.data.ptr) + out * item, base + one * item, base + (1100 + other) * item
        blocks, arguments = reduce_cuda.arguments(kernel, *places, count, item)
        kernel.launch(blocks, arguments, stream)
        stream.synchronize()
        found = made.get()
        assert host.compare(found[out : out + count], pattern.words(0, 1), 9) == (0, -1), (out, one, other, count)
        assert (found[:out] == 0xA5).all()
        assert (found[out + count :] == 0xA5).all()


def bfloat16(values: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """Round finite values to the nearest, ties to even: of the two neighbours by their distance."""
    low = values.view(np.uint32) >> 16
    neighbours = [(bits << 16).view(np.float32).astype(np.float64) for bits in (low, low + 1)]
    below, above = (abs(values - neighbour) for neighbour in neighbours)
    up = (above < below) | ((above == below) & (low % 2 == 1))
    return np.asarray(low + up, np.uint16)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_rounded_to_the_nearest(dtype: str) -> None:
    count, stream = 4000, cupy.cuda.Stream(non_blocking=True)
    values = np.random.default_rng(7).normal(size=(2, count)).astype(np.float32)
    values[1, ::2] = values[0, ::2] * np.float32(2.0**-8)  # many ties
    if dtype == "float16":
        inputs = values.astype(np.float16)
        expected = (inputs[0].astype(np.float32) + inputs[1].astype(np.float32)).astype(np.float16).view(np.uint16)
        bits = inputs.view(np.uint16)
    else:
        bits = np.stack([bfloat16(row) for row in values])
        wide = (bits.astype(np.uint32) << 16).view(np.float32)
        expected = bfloat16(wide[0] + wide[1])
    on_device, made = cupy.asarray(bits), cupy.zeros(count, np.uint16)
    cupy.cuda.Device().synchronize()
    kernel, base = reduce_cuda.kernel(dtype, "sum"), int(on_device.data.ptr)
    blocks, arguments = reduce_cuda.arguments(kernel, int(made.data.ptr), base, base + 2 * count, count, 2)
    kernel.launch(blocks, arguments, stream)
    stream.synchronize()
    assert (made.get() == expected).all()


MODES = (("latency", "compiled"), ("throughput", "python"), ("graph", "compiled"), ("graph", "python"))


def test_every_way_is_verified_and_a_lost_tail_is_seen(tmp_path: Path) -> None:
    ways = [(name, way) for name in ("copy", "host_copy") for way in WAYS[name]]
    common: dict[str, Any] = {"count": 1013, "dtype": "int8", "buffers": 2}
    whole = [
        {**common, "collective": name, "pattern": way, "mode": mode, "caller": caller}
        for (name, way), (mode, caller) in itertools.product(ways, MODES)
    ]
    whole += [
        {"collective": "reduce_local", "operation": "sum", "dtype": dtype, "mode": mode, "caller": caller, "count": 101}
        for (mode, caller), dtype in zip(MODES, ("float32", "float16", "bfloat16", "uint8"), strict=True)
    ]
    short = [{**common, "collective": name, "pattern": way, "shorten": 0} for name, way in ways]
    short.append({**common, "collective": "reduce_local", "operation": "max", "shorten": 0})
    outcomes = measured(1, [*whole, *short], tmp_path)
    for case, (found,) in zip(whole, outcomes, strict=False):
        pageable = "pageable" in case.get("pattern", "")
        if pageable and case["mode"] == "graph":
            assert "cannot be captured" in found["refused"]
            continue
        assert (found["failed"], found["damage"]) == (None, None), case
        waits = pageable and case["mode"] == "latency"
        # Not every driver lets a stream wait for a word; where it does not, nothing is held.
        assert found["notes"] == (["stream_not_held"] if waits else []) or not launching.emulated()
        assert set(found["notes"]) <= {"stream_not_held"}
    for case, (found,) in zip(short, outcomes[len(whole) :], strict=True):
        assert "received[1012]" in str(found["damage"]), case


def test_peer_copies_arrive_and_a_lost_tail_is_seen(tmp_path: Path) -> None:
    ranks, ways = 3, WAYS["peer_copy"]
    common: dict[str, Any] = {"collective": "peer_copy", "count": 1013, "dtype": "int8", "buffers": 2}
    modes = ({"mode": "latency"}, {"mode": "throughput", "caller": "python"}, {"mode": "graph"})
    whole = [{**common, "pattern": way, **mode} for way in ways for mode in modes]
    late = {**common, "pattern": "engine one_way", "mode": "throughput", "late": 0}
    whole.append(late)  # its reader must not look too early
    short = [{**common, "pattern": way, "shorten": 0} for way in ways]
    found = measured(ranks, [*whole, *short], tmp_path, {"EMUGPU_JITTER_US": "200"})
    for case, outcomes in zip(whole, found, strict=False):
        assert [(one["failed"], one["damage"]) for one in outcomes] == [(None, None)] * ranks, case
        for one in outcomes:
            assert {size % (2 << 20) for size in one["taken"]} == {0}  # pages of its own: others map them
            assert sum(one["taken"]) == one["planned"]
    for case, outcomes in zip(short, found[len(whole) :], strict=True):
        reader = 1 if case["pattern"].endswith(" all") else ranks - 1
        seen = [one["damage"] and one["damage"].partition(":")[2][:15] for one in outcomes]
        assert seen == [" received[1012]" if rank == reader else None for rank in range(ranks)], case


def test_one_rank_copies_between_the_devices_that_it_sees(tmp_path: Path) -> None:
    needs(2)
    ways = WAYS["peer_copy"]
    common: dict[str, Any] = {"collective": "peer_copy", "count": 1013, "dtype": "int8", "buffers": 2}
    whole = [
        {**common, "pattern": way, "mode": mode, "caller": caller}
        for way, (mode, caller) in itertools.product(ways, MODES)
    ]
    short = [{**common, "pattern": way, "shorten": 0} for way in ways]
    swapped = [{**common, "pattern": f"engine {between}", "swap": 0} for between in ("both_ways", "all")]
    found = measured(1, [*whole, *short, *swapped], tmp_path, {"EMUGPU_JITTER_US": "200"})
    for case, (one,) in zip(whole, found, strict=False):
        assert (one["failed"], one["damage"], one["algorithm"]) == (None, None, case["pattern"].split()[0]), case
        assert one["notes"] == [] or not launching.emulated()
    for case, (one,) in zip(short, found[len(whole) :], strict=False):
        assert ": received[1012]" in str(one["damage"]), case
    for case, (one,) in zip(swapped, found[len(whole) + len(short) :], strict=True):
        assert ": received[0]" in str(one["damage"]), case


ONE_PROCESS = """
schema = 1
[measure]
time_budget = "10 ms"
least_time = "1 ms"
warmup_time = "5 ms"
[[sweep]]
kind = "kernel"
kernels = ["peer_copy", "copy"]
sizes = ["4 KiB"]
"""


def launched(tmp_path: Path, ranks: int = 1, topologies: str = "", env: dict[str, str] | None = None) -> list[Record]:
    scenario, run = tmp_path / "s.toml", tmp_path / "run"
    scenario.write_text(ONE_PROCESS + topologies)
    launching.collbench(["launch", scenario, "-n", str(ranks), "-o", run], env=env).expect(0)
    return [row for row in read(run) if row.collective == "peer_copy"]


def test_rows_of_one_rank_say_which_devices_they_joined(tmp_path: Path) -> None:
    needs(3)
    rows = launched(tmp_path)
    last = launching.cuda_devices() - 1
    joined = {
        "one_way": [(0, last)],
        "both_ways": [(0, last), (last, 0)],
        "all": [(one, (one + 1) % (last + 1)) for one in range(last + 1)],
    }
    assert [row.pattern for row in rows] == list(WAYS["peer_copy"])
    for row in rows:
        by, between = str(row.pattern).split()
        assert (row.status, row.wrong, row.ranks, row.algorithm, row.transport) == ("ok", 0, 1, by, "p2p"), row
        named = [f"{one} -> {other} ({row.device})" for one, other in joined[between]]
        assert row.peer_device == "; ".join(named)
        assert row.busbw_GBps == row.algbw_GBps
        assert row.limit_source or not launching.emulated()
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    # What the numbers in peer_device stand for, and what lies between them.
    uuids = [device_uuid(number) for number in range(last + 1)]
    visible = environment["visible_devices"]
    assert [str(one["uuid"])[-36:].replace("-", "") for one in visible] == uuids
    assert environment["ranks"]["device"] == {"0": visible[0]}
    for name in ("device_links", "device_access"):
        (rows_of_words,) = environment[name].values()
        assert [row.split()[k] for k, row in enumerate(rows_of_words)] == ["X"] * len(uuids)


def test_why_one_rank_cannot_copy_between_devices(tmp_path: Path) -> None:
    needs(2)
    (tmp_path / "one").mkdir()
    (row, *_) = launched(tmp_path / "one", env=launching.one_device())
    assert (row.status, str(row.reason).partition(" (")[0]) == (
        "skipped", "peer_copy of one rank is between the devices that it sees, and it sees one",
    )  # fmt: skip
    (tmp_path / "part").mkdir()
    (row, *_) = launched(tmp_path / "part", 2, 'topologies = ["first:1"]')
    assert (row.status, row.ranks) == ("skipped", 1)
    assert str(row.reason).startswith("peer_copy of one rank is for a launch of one rank")
    if launching.emulated():
        (tmp_path / "apart").mkdir()
        for row in launched(tmp_path / "apart", env={"EMUGPU_PEER": "0"}):
            assert row.status == "skipped"
            assert str(row.reason).startswith("devices 0 and ")
            assert str(row.reason).endswith(
                "have no peer access to each other's memory: cudaDeviceCanAccessPeer says no"
            )


def test_memory_is_planned_on_each_device() -> None:
    needs(2)
    from collbench.backends.device import Device

    backend, last = Device(World()), launching.cuda_devices() - 1
    sweep = Sweep(backends=("device",), collectives=("peer_copy",), patterns=("engine one_way", "engine both_ways"))
    one_way, both_ways = expand(Scenario(name="kernels", title="", sweeps=(sweep,))).cases
    with cupy.cuda.Device(last):
        half = int(cupy.cuda.runtime.memGetInfo()[0]) // 2
        taken = cupy.cuda.Memory(half)
    layout = backend.layout(one_way, half // DTYPES[one_way.dtype].itemsize)
    assert "device memory: the buffers need" in str(backend.lacks(one_way, layout))
    del taken
    assert backend.lacks(one_way, layout) is None
    # Both ways a device has what it sends and what it receives.
    assert "device memory: the buffers need" in str(backend.lacks(both_ways, layout))
    backend.close()


def test_ranks_that_cannot_reach_each_other_are_named(tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = [{"collective": "peer_copy", "pattern": "kernel one_way", "count": 8}]
    (outcomes,) = measured(2, cases, tmp_path, launching.one_device())
    for one in outcomes:
        assert one["refused"].startswith("ranks 0 and 1 (")
        assert one["refused"].endswith(" have the same device; expected one each")


def test_rows_have_the_memorys_traffic_and_collectives_are_refused() -> None:
    sweeps = (
        Sweep(backends=("device",), collectives=("copy",), patterns=("kernel", "engine"), sizes=(4001,)),
        Sweep(backends=("device",), collectives=("reduce_local",), operations=("min",), sizes=(4001,)),
        Sweep(backends=("device",), collectives=("all_reduce", "peer_copy"), patterns=("kernel all",), sizes=(4001,)),
    )
    measure = Measure(time_budget_s=0.01, least_time_s=0.0, warmup_time_s=0.001)
    scenario = Scenario(name="kernels", title="", measure=measure, sweeps=sweeps)
    rows: list[Record] = []
    runner = Runner(
        World(), Watchdog(), scenario, Clock(1e-8, 1e-8), Place(False, ""), "run", 0, lambda bases: None, rows.extend
    )
    runner.run(expand(scenario))
    kernel, engine, reduced, *skipped = rows
    for row, way, factor in ((kernel, "kernel", 2), (engine, "engine", 2), (reduced, "kernel", 3)):
        assert (row.status, row.wrong, row.algorithm, row.size_bytes) == ("ok", 0, way, 4000)
        assert row.library is not None
        assert row.library.startswith("CUDA ")
        assert row.algbw_GBps is not None
        assert row.busbw_GBps == pytest.approx(factor * row.algbw_GBps)
    assert (reduced.send_bytes, reduced.recv_bytes) == (8000, 4000)
    refused, peer = skipped
    assert refused.status == "skipped"
    assert "all_reduce is a collective" in str(refused.reason)
    assert peer.status == ("ok" if launching.cuda_devices() > 1 else "skipped")
