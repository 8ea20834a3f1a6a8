"""Replays: what a sweep of kind "replay" becomes, the calls that are made of it, and that damage is found."""

import ctypes
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench import scenario
from collbench.backends.base import BoundCall
from collbench.backends.loopback import Loopback
from collbench.backends.messages import part_of, pause, refused_as_messages
from collbench.collectives import Message, collective_of, entry_named, names
from collbench.dtypes import DTYPES
from collbench.errors import CannotRun, ScenarioError, UsageError
from collbench.pattern import Pattern
from collbench.plan import Case, expand
from collbench.planning import workload
from collbench.replay import Replayed, parse, short
from collbench.scenario import Measure
from collbench.timing import sample
from collbench.verify import Check, Damage, check_case
from collbench.world import World

HEAD = 'schema = 1\n[[sweep]]\nkind = "replay"\n'
RESNET18 = (2052000, 28852224, 15853824)  # as pytorch issue 48880 shows NCCL's sizes
SMALL = Replayed("small", "ddp", (400, 1200, 400))
QUICK = Measure(time_budget_s=0.02, least_time_s=0.0, warmup_time_s=0.01)
CASE = Case(
    variant="", backend="loopback", collective="replay", call="blocking", dtype="float32", operation="sum",
    root="", placement="out_of_place", caller="compiled", mode="latency", sync="library", buffer="plain", buffers=2,
    pages="default", pattern=SMALL.text, topology="world", requested_bytes=2000,
)  # fmt: skip


def cases(text: str) -> tuple[Case, ...]:
    return expand(scenario.parse(HEAD + text, name="t")).cases


@pytest.mark.parametrize(
    ("replayed", "text"),
    [
        (Replayed("resnet18", "ddp", RESNET18), "resnet18/ddp/none: 2052000 28852224 15853824"),
        (Replayed("a.b-c", "none", (4,), 0.02, 0.5), "a.b-c/none/20 ms backward 0.5: 4"),
        (Replayed("x", "layers", (4, 8), 1.5e-6, 1.0), "x/layers/0.0015 ms backward 1: 4 8"),
    ],
)
def test_a_pattern_says_all_of_a_replay(replayed: Replayed, text: str) -> None:
    assert replayed.text == text
    assert parse(text) == replayed


@pytest.mark.parametrize("text", ["", "uniform", "resnet18/ddp/none", "x/ddp/none: ", "x/ddp/20 ms: 4", "x/ddp: 4"])
def test_another_pattern_is_refused(text: str) -> None:
    with pytest.raises(CannotRun, match="expected WORKLOAD/BUCKETING/COMPUTE: SIZES"):
        parse(text)


def test_tables_have_a_pattern_without_its_sizes() -> None:
    assert short("resnet18/ddp/20 ms backward 0.667: 2052000 28852224") == "resnet18/ddp/20 ms"
    assert short("resnet18/ddp/none: 4") == "resnet18/ddp/none"
    assert short("0 1; 1 0") == "0 1; 1 0"
    (case,) = cases('workloads = ["resnet18"]')
    assert "resnet18/ddp/none" in case.label
    assert "2052000" not in case.label


def test_what_is_computed_before_each_bucket_ends_when_it_is_ready() -> None:
    its = Replayed("x", "ddp", (100, 300, 600), 0.03, 0.5)
    assert its.pauses_ns == (15_000_000 + 1_500_000, 4_500_000, 9_000_000)
    assert sum(its.pauses_ns) == 30_000_000
    assert replace(its, compute_s=0.0).pauses_ns == (0, 0, 0)
    uneven = Replayed("x", "none", (7,) * 13, 1e-3, 0.667)
    assert sum(uneven.pauses_ns) == 1_000_000  # no nanosecond is lost by rounding


def test_buckets_are_ready_when_the_planner_says() -> None:
    found = workload.load("resnet50").buckets()
    its = Replayed("resnet50", "ddp", tuple(bucket.size_bytes for bucket in found))
    assert its.shares == tuple(bucket.ready for bucket in found)


def test_resnet18_has_the_buckets_that_were_seen() -> None:
    (case,) = cases('workloads = ["resnet18"]')
    assert case.collective == "replay"
    assert parse(case.pattern) == Replayed("resnet18", "ddp", RESNET18)
    assert case.requested_bytes == sum(RESNET18) == 4 * 11_689_512
    assert (case.placement, case.dtype, case.call) == ("in_place", "float32", "blocking")


def test_a_type_and_a_bucketing_have_sizes_of_their_own() -> None:
    text = 'workloads = ["resnet18", "resnet50"]\ndtypes = ["float32", "float16"]\nbucketings = ["ddp", "none"]\n'
    found = cases(text + 'computes = ["none", "20 ms"]\ncalls = ["blocking", "nonblocking"]')
    assert len({case.case_id for case in found}) == len(found) == 2**5
    for case in found:
        its = parse(case.pattern)
        parameters = {"resnet18": 11_689_512, "resnet50": 25_557_032}[its.workload]
        itemsize = DTYPES[case.dtype].itemsize
        assert case.requested_bytes == sum(its.sizes) == itemsize * parameters
        assert its.compute_s in (0.0, 0.02)
        if its.bucketing == "none":
            assert len(its.sizes) == {"resnet18": 62, "resnet50": 161}[its.workload]
    half = {case.pattern for case in found if case.dtype == "float16"}
    (ddp,) = (one for one in half if one.startswith("resnet50/ddp/none"))
    assert parse(ddp).sizes == (4098000, 28878848, 18137216)


def test_the_workloads_own_times_and_type_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'schema = 1\ntitle = "t"\nsource = "s"\ndtype = "float16"\nbackward = 0.5\n'
        '[[compute]]\nbatch = 4\ntime = "3 ms"\n[[compute]]\nbatch = 8\ntime = "5 ms"\n'
        "[[group]]\n[group.tensors]\n" + '"w" = [1000, 1000]\n'
    )
    found = cases(f'workloads = ["{path}"]\ncomputes = ["given", "none"]')
    assert [case.pattern for case in found] == [
        f"mine/ddp/{compute}: 2000000" for compute in ("3 ms backward 0.5", "5 ms backward 0.5", "none")
    ]
    assert {case.dtype for case in found} == {"float16"}


def test_a_workload_with_a_fault_says_where(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("schema = 2")
    with pytest.raises(UsageError, match=r"bad\.toml: schema: got 2"):
        cases(f'workloads = ["{path}"]')


def test_a_file_name_that_would_not_fit_into_a_pattern_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "my model.toml"
    path.write_text('schema = 1\ntitle = "t"\nsource = "s"\ndtype = "float16"\n[[group]]\n[group.tensors]\n"w" = [4]\n')
    with pytest.raises(ScenarioError, match=r"sweep\[0\]\.workloads\[0\]: .*expected a file whose name has"):
        cases(f'workloads = ["{path}"]')


def test_no_sweep_of_collectives_names_it() -> None:
    assert "replay" not in names()
    assert "replay" not in scenario.known()["collective"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_it_is_an_all_reduce_of_the_whole_gradient(ranks: int) -> None:
    its, whole = collective_of("replay", SMALL.text, ranks), entry_named("all_reduce").collective
    assert its.shape(2000, 4, ranks) == whole.shape(2000, 4, ranks)
    assert its.layout(500, ranks, 0) == whole.layout(500, ranks, 0)
    assert its.bus_factor(ranks, 500) == whole.bus_factor(ranks, 500)
    assert its.reduces


def test_its_messages_cover_the_buffers_once() -> None:
    found = collective_of("replay", Replayed("x", "ddp", (400, 1200, 400), 1e-3).text, 2).messages(4)
    assert [(one.offset, one.length) for one in found] == [(0, 100), (100, 300), (400, 100)]
    assert [one.pause_ns for one in found] == [200_000, 600_000, 200_000]
    assert entry_named("all_reduce").collective.messages(4) == ()


def test_a_part_moves_the_addresses_that_are_some() -> None:
    words = {"send": 1000, "recv": 5000, "count": 9, "comm": 3}
    assert part_of(words, Message(10, 7), 4) == {"send": 1040, "recv": 5040, "count": 7, "comm": 3}
    assert part_of(words, Message(10, 7), 4, besides="send")["send"] == 1000


def test_computing_takes_its_time() -> None:
    (call,) = pause(Message(0, 1, 3_000_000))
    began = time.monotonic_ns()
    assert ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(call.address)(*call.words) == 0
    assert 3_000_000 <= time.monotonic_ns() - began < 1_000_000_000
    assert pause(Message(0, 1)) == []


def bound_case(case: Case = CASE) -> tuple[BoundCall, Check]:
    backend = Loopback(World())
    layout = backend.layout(case, 500)
    bound = backend.bind(case, 500, layout)
    check = Check(0, layout, Pattern(DTYPES[case.dtype], case.operation, 1, 7))
    check.prepare_all(bound.buffers)
    return bound, check


def verdict(bound: BoundCall, check: Check) -> Damage | None:
    sampled = sample(bound, World(), QUICK, mode="latency", step_s=1e-8)
    assert sampled.failed is None
    return check_case(bound, check, timed=True)


@pytest.mark.parametrize("placement", ["out_of_place", "in_place"])
def test_a_replay_runs_bucket_by_bucket_and_is_right(placement: str) -> None:
    computing = replace(SMALL, compute_s=1e-3)
    bound, check = bound_case(replace(CASE, placement=placement, pattern=computing.text))
    assert bound.run.shape[:2] == (2, 6)  # both sets: three times computation and a bucket
    assert [int(call[4]) for call in bound.run[0][1::2]] == [400, 1200, 400]
    sampled = sample(bound, World(), QUICK, mode="latency", step_s=1e-8)
    assert sampled.durations_s.min() >= 1e-3
    assert check_case(bound, check, timed=True) is None


def test_swapped_buckets_are_found() -> None:
    bound, check = bound_case()
    first, last = bound.run[:, 0].copy(), bound.run[:, 2].copy()
    bound.run[:, 0, 2], bound.run[:, 2, 2] = last[:, 2], first[:, 2]  # each goes where the other belongs
    damage = verdict(bound, check)
    assert damage is not None
    assert (damage.where, damage.index, damage.wrong) == ("received", 0, 200)


def test_a_bucket_that_was_left_out_is_found() -> None:
    bound, check = bound_case()
    bound.run = np.ascontiguousarray(bound.run[:, [0, 2]])
    damage = verdict(bound, check)
    assert damage is not None
    assert (damage.where, damage.index, damage.wrong) == ("received", 100, 300)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"call": "persistent"}, "call persistent: replay can be blocking or nonblocking here"),
        ({"collective": "all_reduce", "pattern": "", "call": "persistent"}, None),
        ({"caller": "python"}, "caller python: replay is called by the compiled loop alone"),
    ],
)
def test_what_cannot_be_replayed_says_why(change: dict[str, Any], reason: str | None) -> None:
    assert refused_as_messages(replace(CASE, **change), ("blocking", "nonblocking")) == reason
