"""Plans: the cross product, what does not apply, order, digests, names that never change."""

from dataclasses import replace
from typing import Any

import pytest

from collbench.errors import ScenarioError
from collbench.plan import AXES, Case, alone_first, expand
from collbench.scenario import Measure, Rule, Scenario, Sweep


def scenario(*sweeps: Sweep, **measure: object) -> Scenario:
    return Scenario(name="t", title="t", sweeps=sweeps, measure=replace(Measure(), **measure))  # type: ignore[arg-type]


WIDE = Sweep(
    collectives=("all_reduce", "send_recv", "barrier"),
    dtypes=("float32", "int32"),
    operations=("sum", "max"),
    placements=("out_of_place", "in_place"),
    sizes=(8, 1024),
)


def test_axes_that_do_not_apply_make_no_cases() -> None:
    cases = expand(scenario(WIDE)).cases
    count = {name: sum(case.collective == name for case in cases) for name in WIDE.collectives}
    assert count == {"all_reduce": 16, "send_recv": 8, "barrier": 1}
    barrier = next(case for case in cases if case.collective == "barrier")
    assert (barrier.dtype, barrier.operation, barrier.placement, barrier.requested_bytes) == ("", "", "", 0)
    assert all(case.root == "" for case in cases)


def test_blocks_add_up_and_equal_points_are_one_case() -> None:
    once, twice = expand(scenario(WIDE)), expand(scenario(WIDE, WIDE))
    assert once.cases == twice.cases
    assert len({case.case_id for case in once.cases}) == len(once.cases)


def test_default_backend_and_placement() -> None:
    case = expand(scenario(Sweep(collectives=("all_reduce",), sizes=(8,))), backend="nccl").cases[0]
    assert (case.backend, case.placement) == ("nccl", "out_of_place")


def test_include_and_exclude() -> None:
    rules = {
        "include": (Rule(match=(("collective", ("all_reduce",)),)), Rule(match=(("collective", ("send_recv",)),))),
        "exclude": (Rule(match=(("dtype", ("int32",)),), least_size=100), Rule(match=(("operation", ("max",)),))),
    }
    cases = expand(scenario(replace(WIDE, **rules))).cases  # type: ignore[arg-type]
    assert {case.collective for case in cases} == {"all_reduce", "send_recv"}
    assert {(case.dtype, case.requested_bytes) for case in cases} == {("float32", 8), ("float32", 1024), ("int32", 8)}
    assert {case.operation for case in cases} == {"sum", ""}


def test_order_is_the_files_for_one_launch_and_shuffled_for_several() -> None:
    listed = expand(scenario(WIDE)).cases
    first, second = (expand(scenario(WIDE), launch=launch, launches=2).cases for launch in (0, 1))
    assert set(first) == set(second) == set(listed)
    assert len({listed, first, second}) == 3
    assert expand(scenario(WIDE), launch=0, launches=2).cases == first
    assert expand(scenario(WIDE, order="listed"), launch=1, launches=2).cases == listed
    assert expand(scenario(WIDE, order="random")).cases != listed


def test_the_digest_tells_plans_apart() -> None:
    plan = expand(scenario(WIDE))
    assert plan.digest == expand(scenario(WIDE)).digest
    assert plan.digest != expand(scenario(replace(WIDE, sizes=(8,)))).digest


def test_case_ids_are_public_and_never_change() -> None:
    case = Case(
        variant="", backend="mpi", collective="all_reduce", call="blocking", dtype="float32", operation="sum", root="",
        placement="out_of_place", caller="compiled", mode="latency", sync="library", buffer="plain", buffers=1,
        pages="default", pattern="", topology="world", requested_bytes=8,
    )  # fmt: skip
    assert case.case_id == "c3cf919f6218"
    for axis in AXES:
        other: Any = 9 if isinstance(getattr(case, axis), int) else "other"
        assert replace(case, **{axis: other}).case_id != case.case_id


def test_a_plan_without_a_case_or_with_too_many_is_refused() -> None:
    none = replace(WIDE, exclude=(Rule(match=(("caller", ("compiled",)),)),))
    with pytest.raises(ScenarioError, match="got no case"):
        expand(scenario(none))
    many = replace(WIDE, buffers=tuple(range(1, 1025)), sizes=tuple(range(10_000)))
    with pytest.raises(ScenarioError, match="expected at most 100000"):
        expand(scenario(many))


def test_every_root_is_a_case_of_its_own() -> None:
    sweep = Sweep(collectives=("broadcast",), roots=("all",), sizes=(8,))
    assert [case.root for case in expand(scenario(sweep), ranks=3).cases] == ["0", "1", "2"]
    assert expand(scenario(sweep), ranks=3, backend="mpi").cases[0].placement == "in_place"  # MPI_Bcast has one buffer
    assert expand(scenario(sweep), ranks=3, backend="nccl").cases[0].placement == "out_of_place"


def test_weights_are_exact_and_whole_ones_as_they_were() -> None:
    matrix = ((0.0, 1.0, 0.5), (1e6, 0.123456789, 0.1234567), (1e-300, 12345678.0, 100.0))
    sweep = Sweep(collectives=("all_to_all_v",), matrix=matrix, sizes=(8,))
    (case,) = expand(scenario(sweep), ranks=3).cases
    assert case.pattern == "0 1 0.5; 1e+06 0.123456789 0.1234567; 1e-300 12345678.0 100"
    assert tuple(tuple(map(float, row.split())) for row in case.pattern.split(";")) == matrix


@pytest.mark.parametrize("order", ["file", "random"])
def test_each_point_is_first_measured_alone(order: str) -> None:
    both = replace(WIDE, neighbours=("communicate", "alone", "copy"))
    later = (replace(WIDE, neighbours=("compute",), sizes=(16,)), replace(WIDE, sizes=(16,)))
    cases = expand(scenario(both, *later, order=order)).cases
    assert len(cases) == 25 * 3 + 13 + 12
    place = {case: number for number, case in enumerate(cases)}
    for case in cases:
        assert place[replace(case, neighbour="alone")] <= place[case], case.label
    only = expand(scenario(replace(WIDE, neighbours=("copy",)), order=order)).cases
    assert {case.neighbour for case in only} == {"copy"}


def test_what_has_no_neighbours_stays_in_its_place() -> None:
    cases = expand(scenario(replace(WIDE, neighbours=("alone", "copy")))).cases
    assert [case.neighbour for case in cases[:4]] == ["alone", "alone", "alone", "alone"]
    assert alone_first(cases) == cases
