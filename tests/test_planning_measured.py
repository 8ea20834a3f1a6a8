"""A fabric of measurements: who is asked what, and what of the answers is passed on."""

import pytest

from collbench.errors import UsageError
from collbench.planning import large, measured, step_tables, workload
from collbench.planning.costs import Range
from collbench.planning.fabric import Layout
from collbench.planning.measured import Ask, Told

Question = tuple[str, str, int, int, int]


def tier(name: str, asked: list[Question], answer: Told) -> Ask:
    def ask(collective: str, size_bytes: int, ranks: int, hosts: int) -> Told:
        asked.append((name, collective, size_bytes, ranks, hosts))
        return answer

    return ask


def test_tiers_are_asked_by_their_groups() -> None:
    asked: list[Question] = []
    vm, rails = tier("vm", asked, Told(2.0, 1.0, 4.0)), tier("rails", asked, Told(20.0, 10.0, 40.0))
    found = measured.fabric("a and b", 4, vm=vm, rails=rails, at_once=4)
    cost = found.cost("all_reduce", 4000, Layout(8, 2))
    assert asked == [
        ("vm", "reduce_scatter", 4000, 4, 1), ("vm", "all_gather", 4000, 4, 1), ("rails", "all_reduce", 1000, 2, 2),
    ]  # fmt: skip
    assert (cost.vm, cost.across) == (Range(2, 4, 8), Range(10, 20, 40))
    assert list(found.assumptions) == ["fabric measured: a and b"]
    found.cost("all_reduce", 4000, Layout(4, 2))
    assert found.assumptions[-1] == "between hosts 4 devices of each worked at once, and 2 are asked about"


def test_groups_of_all_ranks_answer_at_once() -> None:
    asked: list[Question] = []
    found = measured.fabric("world", 4, whole=tier("whole", asked, Told(3.0, 2.0, 5.0)))
    across, alone = (found.cost("all_reduce", 4000, Layout(devices, devices // 4)) for devices in (8, 4))
    assert asked == [("whole", "all_reduce", 4000, 8, 2), ("whole", "all_reduce", 4000, 4, 1)]
    assert (across.vm.middle, across.across) == (0, Range(2, 3, 5))
    assert (alone.vm, alone.across.middle) == (Range(2, 3, 5), 0)
    with pytest.raises(UsageError, match=r"world: all_reduce: got no times among 2 hosts, .*topology rail"):
        found.cost("all_reduce", 4000, Layout(2, 2, at_once=4))
    with pytest.raises(UsageError, match=r"world: all_reduce: got no times among 2 devices of a host, .*topology host"):
        found.cost("all_reduce", 4000, Layout(2, 1, at_once=4))


def test_large_scale_by_groups_of_all_ranks() -> None:
    found = measured.fabric("world", 4, whole=tier("whole", [], Told(1e-3, 1e-3, 2e-3)))
    row = large.table(found, 1000, (8,)).rows[0]
    assert (row["all_reduce_s"], row["all_reduce_high_s"], row["reduce_scatter_vm_s"]) == (1e-3, 2e-3, None)


def test_marks_and_missing_intervals_reach_the_output() -> None:
    found = measured.fabric("world", 4, whole=tier("whole", [], Told(1e-3, marks=("extrapolated: size beyond 1 MiB",))))
    assert found.cost("all_reduce", 4000, Layout(4, 1)).total == Range(1e-3, 1e-3, 1e-3)
    chosen = workload.with_compute(workload.load("resnet18"), ("32=20ms",))
    table, _ = step_tables.table(chosen, found, step_tables.Asked((1, 4)))
    assert "all_reduce: extrapolated: size beyond 1 MiB" in table.notes
    assert len([note for note in table.notes if "have no interval" in note]) == 1


def test_what_a_limit_is_tried_with_is_no_assumption() -> None:
    """Steps and bytes are told apart by what a few bytes cost, which stands nowhere in the table."""

    def ask(collective: str, size_bytes: int, ranks: int, hosts: int) -> Told:
        return Told(1e-3, 1e-3, 1e-3, ("of a few bytes",)) if size_bytes == 8 else Told(1e-2, 1e-2, 1e-2, ("of all",))

    found = measured.fabric("world", 4, whole=ask)
    chosen = workload.with_compute(workload.load("resnet18"), ("32=20ms",))
    table, (step,) = step_tables.table(chosen, found, step_tables.Asked((4,)))
    assert step.limit == "links in the VM (bandwidth)"
    assert "all_reduce: of all" in table.notes
    assert not any("few bytes" in note for note in table.notes)


def test_fewer_rails_than_share_the_links_are_no_answer() -> None:
    def ask(collective: str, size_bytes: int, ranks: int, hosts: int) -> measured.Told:
        return measured.Told(1e-3)

    found = measured.fabric("run", 4, vm=ask, rails=ask, at_once=1)
    with pytest.raises(UsageError, match="got rails of 1 device of each host at once, expected 4"):
        found.cost("all_reduce", 4000, Layout(8, 2))


def test_what_is_extrapolated_is_told_on() -> None:
    def ask(collective: str, size_bytes: int, ranks: int, hosts: int) -> Told:
        return Told(1.0, 0.9, 1.1 if ranks > 2 else None, extrapolated=ranks > 2)

    found = measured.fabric("beyond", 8, whole=ask)
    assert found.cost("all_reduce", 1000, Layout(4, 1)).total.extrapolated
    assert not found.cost("all_reduce", 1000, Layout(2, 1)).total.extrapolated


def test_tiers_that_were_measured_together_are_not_told_apart() -> None:
    """8 ranks on 2 hosts of 4, and nothing in one VM or between hosts alone: the slow links may be either's."""

    def ask(collective: str, size_bytes: int, ranks: int, hosts: int) -> Told:
        return Told(1e-3 + size_bytes / 1e9)

    found = measured.fabric("world", 4, whole=ask)
    chosen = workload.with_compute(workload.load("resnet18"), ("32=20ms",))
    table, (inside, both) = step_tables.table(chosen, found, step_tables.Asked((4, 8)))
    assert both.limit == "VM and hosts measured together (bandwidth)"
    assert inside.limit == "links in the VM (bandwidth)"
    assert [row["communication_vm_s"] is None for row in table.rows] == [False, True]
    assert table.rows[1]["communication_across_s"] == pytest.approx(both.communication.total.middle)
    assert len([note for note in table.notes if "measure the topologies host" in note and "and rail" in note]) == 1
    alone, (across,) = step_tables.table(chosen, measured.fabric("world", 1, whole=ask), step_tables.Asked((2,)))
    assert across.limit == "links between hosts (bandwidth)"  # one device on each host: no other links are in it
    assert alone.rows[0]["communication_vm_s"] == 0
    assert not any("measure the topologies host" in note for note in alone.notes)
