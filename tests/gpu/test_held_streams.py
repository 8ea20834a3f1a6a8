"""What a held stream keeps out of a device's time, and what must not happen on one; real or emulated devices."""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launching
from collbench.backends import backend_named, on_stream
from collbench.backends.base import Backend, BoundCall
from collbench.collectives import collective_of
from collbench.dtypes import DTYPES
from collbench.pattern import Pattern
from collbench.plan import expand
from collbench.results import read
from collbench.scenario import Measure, Scenario, Sweep
from collbench.timing import loop_of, sample
from collbench.verify import Check, check_case
from collbench.world import World

cupy = pytest.importorskip("cupy", reason="cupy is not installed", exc_type=ImportError)

PROGRAM = Path(__file__).with_name("run_cases.py")
QUICK = Measure(time_budget_s=0.003, least_time_s=0.0, least_iterations=2, most_iterations=32, warmup_time_s=0.0)


def needs(devices: int) -> None:
    if launching.cuda_devices() < devices:
        pytest.skip(f"{devices} CUDA devices are needed")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("backend", ["nccl", "peer"])
def test_a_late_host_is_no_part_of_the_devices_time(backend: str, tmp_path: Path) -> None:
    """Rank 1 takes 50 ms more to queue each operation: the others' devices must not wait for it."""
    needs(2)
    common = {"collective": "all_reduce", "operation": "sum", "count": 100, "late": 1}
    modes, callers = ("latency", "graph"), ("compiled", "python")
    cases = [{**common, "mode": mode, "caller": caller} for mode in modes for caller in callers]
    given = tmp_path / "cases.json"
    given.write_text(json.dumps({"backend": backend, "cases": cases}))
    done = launching.mpirun(2, [sys.executable, PROGRAM, given], timeout=90).expect(0)
    for case, outcomes in zip(cases, json.loads(done.out), strict=True):
        assert [(one["failed"], one["damage"]) for one in outcomes] == [(None, None)] * 2, case
        times = outcomes[0]["times"]
        operations = 16 if case["mode"] == "graph" else 1
        assert times["enqueue"] >= 0.05 / operations, case
        for name in ("device", "host"):
            assert operations * times[name] < 0.025, (case, name)
        assert times["skew"] < 0.025, case


@pytest.fixture
def device() -> Iterator[Any]:
    needs(1)
    opened = backend_named("device")(World())
    yield opened
    opened.close()


def copied(backend: Backend, mode: str, caller: str) -> tuple[BoundCall, Check]:
    """A copy of 4000 bytes on one device, bound, and what verifies it."""
    sweep = Sweep(backends=("device",), collectives=("copy",), patterns=("engine",), sizes=(4000,), callers=(caller,))
    scenario = Scenario(name="t", title="t", sweeps=(sweep,), measure=Measure(modes=(mode,)))
    case = expand(scenario).cases[0]
    count = collective_of("copy", case.pattern, 1).shape(4000, DTYPES[case.dtype].itemsize, 1).count
    layout = backend.layout(case, count)
    check = Check(0, layout, Pattern(DTYPES[case.dtype], "move", 1, 7))
    bound = backend.bind(case, count, layout)
    check.prepare_all(bound.buffers)
    return bound, check


def test_no_graph_is_launched_for_the_first_time_while_the_stream_is_held(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = cupy.cuda.runtime
    held: dict[int, bool] = {}
    launch = runtime.graphLaunch

    def launched(graph: int, stream: int) -> None:
        held.setdefault(graph, bool(device._flag[0] == 0))
        launch(graph, stream)

    monkeypatch.setattr(runtime, "graphLaunch", launched)
    bound, check = copied(device, "graph", "python")
    sample(bound, World(), QUICK, mode="graph", step_s=1e-8)
    assert check_case(bound, check, timed=True) is None
    bound.close()
    assert held
    assert set(held.values()) == {False}
    assert len(held) == 2  # that which is timed, and that which is verified


@pytest.mark.parametrize("caller", ["compiled", "python"])
def test_too_many_launches_are_not_held(device: Any, caller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_stream, "_MOST_HELD", 0)
    bound, check = copied(device, "latency", caller)
    assert bound.notes == ("stream_not_held",)
    bound.prime()
    device._flag[0] = 0  # nobody may wait for it
    assert loop_of(bound)(0, 1, np.empty((1, 3), np.int64)) == 0
    device._release()
    assert check.damage(bound.buffers[0]) is None
    bound.close()


def test_launches_that_wait_for_the_device_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    needs(1)
    for setting, holds in (("1", False), ("0", True)):
        monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", setting)
        backend = backend_named("device")(World())
        bound, _ = copied(backend, "latency", "compiled")
        assert bound.notes == (() if holds else ("stream_not_held",))
        bound.close()
        backend.close()


def test_the_clock_of_the_device_is_measured_and_goes_with_its_times(device: Any) -> None:
    clock = device.device_clock
    assert 0 < clock.floor_s < 1e-3
    assert 1e-9 < clock.step_s < 1e-3
    for mode, expected in (("latency", clock), ("graph", clock), ("throughput", None)):
        bound, _ = copied(device, mode, "compiled")
        bound.prime()
        assert bound.device_clock == expected
        bound.close()


def test_an_abort_lets_a_held_stream_go(device: Any) -> None:
    device._hold()
    event = cupy.cuda.Event()
    event.record(device._stream)
    assert not event.done
    device.abort()
    deadline = time.monotonic() + 5
    while not event.done and time.monotonic() < deadline:
        time.sleep(0.001)
    assert event.done


STOPS = """
import os, sys, time
import collbench.backends.nccl as module
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1":
    before, calls = module._bound, [0]
    def bound(method, words):
        call = before(method, words)
        def stopping():
            calls[0] += 1
            if calls[0] == 5:
                time.sleep(1000)
            return call()
        return stopping
    module._bound = bound
from collbench.cli import main
sys.exit(main(sys.argv[1:]))
"""


def write_scenario(path: Path, measure: str = "") -> Path:
    path.write_text(
        f'schema = 1\n[measure]\ntime_budget = "20 ms"\nleast_time = "1 ms"\n{measure}\n[[sweep]]\n'
        'backends = ["nccl"]\ncollectives = ["all_reduce"]\ncallers = ["python"]\nsizes = ["8 B"]\n'
    )
    return path


def test_a_rank_that_never_queues_ends_the_run_at_its_deadline(tmp_path: Path) -> None:
    """The others wait for it with their streams held."""
    needs(2)
    scenario, program, run = write_scenario(tmp_path / "s.toml", 'timeout = "3 s"'), tmp_path / "p.py", tmp_path / "run"
    program.write_text(STOPS)
    done = launching.mpirun(2, [sys.executable, program, "run", scenario, "-o", run], timeout=60)
    assert done.code != 0
    assert "no progress for 3 s" in done.err
    assert done.seconds < 30
    assert [row.status for row in read(run)] == ["timeout"]


def test_communicators_that_do_not_block_are_refused(tmp_path: Path) -> None:
    needs(2)
    scenario, run = write_scenario(tmp_path / "s.toml"), tmp_path / "run"
    settings = {"NCCL_COMM_BLOCKING": "0"}
    launching.collbench(["launch", scenario, "-n", "2", "-o", run, "--no-choices"], env=settings).expect(7)
    (row,) = read(run)
    assert row.status == "skipped"
    assert "NCCL_COMM_BLOCKING: got '0', expected 1 or nothing" in str(row.reason)


def test_a_file_of_settings_cannot_make_communicators_that_do_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    needs(1)
    monkeypatch.delenv("NCCL_COMM_BLOCKING", raising=False)
    backend = backend_named("nccl")(World())
    assert os.environ["NCCL_COMM_BLOCKING"] == "1"  # NCCL's files do not overwrite what the environment has
    backend.close()
