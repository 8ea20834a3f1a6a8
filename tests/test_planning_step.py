"""Steps: pipelines of a few messages, by hand."""

from dataclasses import replace

import pytest

from collbench.errors import CannotRun, UsageError
from collbench.planning import groups, pipeline, step_tables, tables
from collbench.planning.costs import Cost, Link, Range
from collbench.planning.fabric import Across, Fabric, Layout
from collbench.planning.step import Step, Term, forecast, limits
from collbench.planning.step_tables import Asked
from collbench.planning.workload import Bucketing, Exchange, Workload
from three_buckets import FABRIC, MB, THREE, flat


def step(workload: Workload, devices: int = 4, hosts: int = 1, batch: int = 10) -> Step:
    return forecast(workload, FABRIC, devices, hosts, batch)


def ends(workload: Workload) -> float:
    found = step(workload).step_s
    assert found is not None
    return found.middle


def test_sequence() -> None:
    assert pipeline.sequence([(1, 2), (2, 1), (10, 3)]) == 13
    assert pipeline.sequence([]) == 0


def test_bucket_pipeline_by_hand() -> None:
    # Ready at 45, 60 and 90 ms; 10, 10 and 20 ms long: 45-55, 60-70, 90-110.
    found = step(THREE)
    assert found.step_s is not None
    assert found.exposed_s is not None
    assert found.step_s.middle == pytest.approx(110e-3)
    assert found.exposed_s.middle == pytest.approx(20e-3)
    assert (found.step_s.low, found.step_s.high) == pytest.approx((108e-3, 112e-3))
    assert found.share == pytest.approx(20 / 110)
    assert found.communication.total.middle == pytest.approx(40e-3)
    assert found.rate is not None
    assert found.rate.middle == pytest.approx(40 / 110e-3)


def test_messages_wait_for_each_other() -> None:
    # Four times as long: 45-85, then 85-125, then 125-205.
    slow = replace(FABRIC, vm=lambda collective, size, ranks: flat(collective, 4 * size, ranks))
    found = forecast(THREE, slow, 4, 1, 10)
    assert found.step_s is not None
    assert found.step_s.middle == pytest.approx(205e-3)
    assert found.limit.startswith("links in the VM")


def test_two_messages_by_hand() -> None:
    # 4 MB in two: c and b close at the cap of 2 MB, at 60 ms; a at 90 ms: 60-80, 90-110.
    two = replace(THREE, bucketing=Bucketing("ddp", first_bytes=1_500_000, cap_bytes=1_500_000))
    assert [bucket.size_bytes for bucket in two.buckets()] == [2_000_000, 2_000_000]
    assert ends(two) == pytest.approx(110e-3)
    assert ends(replace(two, backward=1.0)) == pytest.approx(110e-3)  # ready at 45 and 90 ms
    # In one go at the end: 90-130.
    assert ends(replace(THREE, bucketing=Bucketing("ddp", first_bytes=10**9))) == pytest.approx(130e-3)


def test_overlap() -> None:
    assert ends(replace(THREE, overlap="none")) == pytest.approx(130e-3)
    assert ends(replace(THREE, overlap="full")) == pytest.approx(90e-3)
    assert ends(replace(THREE, overlap="full", compute_s={10: 30e-3})) == pytest.approx(40e-3)


def test_sharded_by_stage() -> None:
    # reduce_scatter 5, 5, 10 ms: 45-50, 60-65, 90-100; then the updated parameters, 20 ms.
    for stage in (1, 2):
        assert ends(replace(THREE, zero=stage)) == pytest.approx(120e-3)
    # Forward: units of 15, 7.5, 7.5 ms after gathers of 10, 5, 5: 10-25, 25-32.5, 32.5-40.
    # Backward: gather c 40-45; c 45-60, gather b 45-50, reduce c 60-65; b 60-75, gather a 65-75, reduce b 75-80;
    # a 75-105, reduce a 105-115.
    assert ends(replace(THREE, zero=3)) == pytest.approx(115e-3)
    assert step(replace(THREE, zero=3)).communication.total.middle == pytest.approx(60e-3)


def test_gathers_that_are_longer_than_the_layers() -> None:
    # Forward: gathers end at 30 and 60, layers at 35 and 65. Backward: gather 95, layer 105; gather 125, reduce 130,
    # layer 135, reduce 140.
    assert pipeline.gathered(30, 2 / 3, [(0.5, 30, 5), (0.5, 30, 5)]) == pytest.approx(140)


def test_no_more_than_one_layer_is_gathered_ahead() -> None:
    # Forward: gather a 0-1; layer a 1-31, gather b 1-2; layer b 31-61, gather c 31-61; layer c 61-91, gather d
    # 61-121, which computes 121-151. In backward gathers alone.
    units = [(0.25, 1, 0), (0.25, 1, 0), (0.25, 30, 0), (0.25, 60, 0)]
    assert pipeline.gathered(120, 0.0, units) == pytest.approx(151 + 60 + 30 + 1 + 1)


def test_horovod_waits_for_its_cycle() -> None:
    # Ready at 45, 60, 90 ms; cycles of 40 ms end at 80 and 120: 80-100, 120-140.
    cycles = Bucketing("horovod", threshold_bytes=10**9, cycle_s=40e-3)
    assert ends(replace(THREE, bucketing=cycles)) == pytest.approx(140e-3)


def test_one_device_sends_nothing() -> None:
    found = step(THREE, devices=1)
    assert found.step_s == Range(90e-3, 90e-3, 90e-3)
    assert (found.limit, found.rest()) == ("computation", "")
    assert found.communication.total.middle == 0


def test_tensor_parallel_is_never_hidden_and_divides_the_gradients() -> None:
    one = replace(THREE, exchanges=(Exchange("tensor", 4, 3, 10_000),), overlap="full")
    found = step(one)
    # Three all_reduces of 0.1 MB, 1 ms each, and no gradients among the four that share a model.
    assert found.step_s is not None
    assert found.step_s.middle == pytest.approx(93e-3)
    assert found.rate is not None
    assert found.rate.middle == pytest.approx(10 / 93e-3)
    # On two hosts each device reduces its quarter of 4 MB with its namesake, hidden behind 93 ms.
    two = step(one, 8, 2)
    assert two.communication.across.middle == pytest.approx(10e-3)
    assert two.rate is not None
    assert two.rate.middle == pytest.approx(20 / 93e-3)
    with pytest.raises(ValueError, match="tensor parallelism of 4 does not fit 2 devices"):
        step(one, 2)


def test_experts_exchange_by_all_to_all() -> None:
    one = replace(THREE, exchanges=(Exchange("expert", 4, 2, 10_000),), overlap="none")
    assert ends(one) == pytest.approx(90e-3 + 2 * 0.5e-3 + 40e-3)


def test_shared_links_between_hosts() -> None:
    # All four devices of a host reduce at once: each has a quarter of 1 GB/s for its quarter, over four hosts' ring.
    fabric = Fabric("two tiers", 4, Link(0, 1e12), Across(0.0, 1e9, True, 0.0, "ring"))
    found = forecast(replace(THREE, overlap="none"), fabric, 16, 4, 10)
    assert found.communication.across.middle == pytest.approx(2 * 3 / 4 * 4 * MB / 1e9)
    assert found.rest() == "links between hosts (bandwidth)"


def test_latency_is_named() -> None:
    fabric = Fabric("slow steps", 4, Link(2e-2, 1e12), None)
    assert forecast(THREE, fabric, 4, 1, 10).limit == "links in the VM (latency)"


def test_the_batch_must_have_its_time() -> None:
    with pytest.raises(UsageError, match=r"three: compute: got a batch of 20 .*known \(5, 10\)"):
        step(THREE, batch=20)


def test_a_fabric_that_does_not_know_is_heard() -> None:
    def unknown(collective: str, size_bytes: int, ranks: int) -> Range:
        raise CannotRun("fit: size: got 8 B, expected what was measured; measure it")

    with pytest.raises(CannotRun, match="what was measured"):
        forecast(THREE, replace(FABRIC, vm=unknown), 4, 1, 10)


def test_a_probe_outside_of_what_was_measured_only_costs_a_word() -> None:
    def measured(collective: str, size_bytes: int, ranks: int) -> Range:
        if size_bytes < 1000:
            raise CannotRun("fit: size: got 8 B, expected what was measured; measure it")
        return flat(collective, 10 * size_bytes, ranks)

    assert forecast(THREE, replace(FABRIC, vm=measured), 4, 1, 10).limit == "links in the VM"


def test_table_of_layouts() -> None:
    table, steps = step_tables.table(THREE, FABRIC, Asked((2, 4, 6, 8), (1, 2), batch=10))
    assert [(one.devices, one.hosts) for one in steps] == [(2, 1), (4, 1), (2, 2), (4, 2), (6, 2), (8, 2)]
    assert "left out: 6 devices on 1 host, 8 devices on 1 host: a host has 4 devices" in table.notes
    assert table.rows[0]["efficiency"] == pytest.approx(1)
    assert any("backward is the last 67%" in note for note in table.notes)
    with pytest.raises(UsageError, match="3 devices do not spread evenly over 2 hosts"):
        step_tables.table(THREE, FABRIC, Asked((3,), (2,), batch=10))


def test_a_global_batch_is_divided() -> None:
    table, steps = step_tables.table(THREE, FABRIC, Asked((2, 4), (), global_batch=20))
    assert any("computation loses at a smaller batch" in note for note in table.notes)
    assert [(one.batch, one.compute_s) for one in steps] == [(10, 90e-3), (5, 50e-3)]
    table, steps = step_tables.table(THREE, FABRIC, Asked((1, 2), (), global_batch=20))
    assert [one.devices for one in steps] == [2]
    assert any("left out: 1 device on 1 host: " in note and "batch of 20 " in note for note in table.notes)
    with pytest.raises(UsageError, match=r"batch of 20 .*known"):
        step_tables.table(THREE, FABRIC, Asked((1,), (), global_batch=20))


def test_without_a_time_of_computation_there_is_communication_alone() -> None:
    table, steps = step_tables.table(replace(THREE, compute_s=None), FABRIC, Asked((4,)))
    assert steps[0].step_s is None
    assert table.rows[0]["communication_vm_s"] == pytest.approx(40e-3)
    assert any("--compute BATCH=TIME" in note for note in table.notes)


def test_which_batch() -> None:
    with pytest.raises(UsageError, match=r"--batch: got several that have a time \(5, 10\)"):
        step_tables.table(THREE, FABRIC, Asked((4,)))


def test_where_more_devices_stop_paying() -> None:
    terms = Term("vm", "links", 5e-3), Term("computation", "computation", 1e-3)

    def at(devices: int, rate: float) -> Step:
        return replace(step(THREE, batch=10), devices=devices, rate=Range(rate, rate, rate), terms=terms)

    assert limits([at(1, 100)]) == ""
    assert limits([at(1, 100), at(2, 190), at(4, 370)]).startswith("up to 4 devices each new one brings more than half")
    assert limits([at(1, 100), at(2, 190), at(4, 250)]).startswith("from 2 devices to 4 each new device brings 32%")
    assert limits([at(1, 100), at(2, 190), at(4, 180)]) == "no gain from 2 devices to 4; what costs most there: links"
    assert "from 2 devices to 4" in limits([at(2, 190), at(2, 150), at(4, 250)])
    lost = replace(at(4, 180), terms=(Term("computation", "computation", 9e-3), Term("across", "between hosts", 6e-3)))
    assert lost.limit == "computation"
    assert limits([at(2, 190), lost]).endswith("what costs most there: between hosts")
    alike = replace(at(4, 180), terms=(*terms, Term("across", "between hosts", 1e-3)))
    assert limits([at(2, 190), alike]).endswith(
        "what costs most there: between hosts"
    )  # the others cost as much before


def test_horovods_columns_are_of_the_messages_that_it_sends() -> None:
    # 100 ms a step whatever its bytes: three cycles, three messages.
    fabric = Fabric("slow steps", 4, Link(0.1 / 6, 1e15, algorithm="ring"), None)
    cycles = replace(THREE, bucketing=Bucketing("horovod", threshold_bytes=10**9, cycle_s=1e-3))
    found = forecast(cycles, fabric, 4, 1, 10)
    assert found.step_s is not None
    assert found.exposed_s is not None
    assert found.step_s.middle == pytest.approx(345e-3, rel=1e-3)
    assert found.communication.vm.middle == pytest.approx(300e-3, rel=1e-3)
    assert found.exposed_s.middle < found.communication.total.middle
    assert found.limit == "links in the VM (latency)"
    unknown = forecast(replace(cycles, compute_s=None), fabric, 4, 1, 10)
    assert unknown.communication.vm.middle == pytest.approx(100e-3, rel=1e-3)  # when they are ready is not known


def test_what_lies_beyond_the_measured_is_marked() -> None:
    def beyond(collective: str, size_bytes: int, ranks: int) -> Range:
        return replace(flat(collective, size_bytes, ranks), extrapolated=ranks > 2)

    table, steps = step_tables.table(THREE, replace(FABRIC, vm=beyond), Asked((1, 2, 4), (1,), batch=10))
    assert [one.extrapolated for one in steps] == [False, False, True]
    assert [row["extrapolated"] for row in table.rows] == [False, False, True]
    lines = tables.written([table], "text").splitlines()
    assert [line.endswith("EXTRAPOLATED") for line in lines[2:5]] == [False, False, True]
    rows = tables.written([table], "csv").splitlines()
    assert [line.rsplit(",", 1)[1] for line in rows] == ["extrapolated", "0", "0", "1"]
    unmarked, _ = step_tables.table(THREE, FABRIC, Asked((1, 2), (1,), batch=10))
    assert "beyond what was measured" not in tables.written([unmarked], "text")


def experts(ranks: int = 4, **changed: object) -> Workload:
    """The 2 MB of `a` are experts, divided among four devices; what is exchanged is nothing to speak of."""
    tensors = (replace(THREE.tensors[0], expert=True), *THREE.tensors[1:])
    one = replace(THREE, tensors=tensors, exchanges=(Exchange("expert", ranks, 1, 0),), compute_s={10: 90e-3})
    return replace(one, **changed)  # type: ignore[arg-type]


def test_gradients_of_experts_travel_among_those_that_hold_the_same() -> None:
    # 2.5 MB a device, ready c, b, a: c 1 MB at 54 ms, b 1 MB at 78 ms, a's quarter at 90 ms.
    alone = step(experts())
    assert alone.communication.total.middle == pytest.approx(20e-3)  # one device for each part: nobody to reduce with
    assert alone.step_s is not None
    assert alone.step_s.middle == pytest.approx(90e-3)
    asked: list[tuple[str, int, int]] = []

    def across(sharers: int, hosts: int) -> Cost:
        def cost(collective: str, size_bytes: int, ranks: int) -> Range:
            asked.append((collective, size_bytes, sharers))
            return flat(collective, size_bytes, ranks)

        return cost

    two = forecast(experts(), replace(FABRIC, across=across), 8, 2, 10)
    # a's quarter, whole, for each of the four pairs of namesakes, which share the links; of b and c each device's part.
    assert {one for one in asked if one[1] > 8} == {("all_reduce", 500_000, 4), ("all_reduce", 250_000, 4)}
    assert two.communication.across.middle == pytest.approx(5e-3 + 2 * 2.5e-3)
    with pytest.raises(ValueError, match="expert parallelism of 4 does not fit 2 devices"):
        step(experts(), 2)


def test_experts_beside_tensor_parallelism_are_apart() -> None:
    # Two devices share a model; four such pairs, on two hosts of four, have a quarter of the experts each.
    both = (Exchange("tensor", 2, 1, 10_000), Exchange("expert", 4, 1, 10_000))
    found = groups.of(experts(exchanges=both), 16, 4)
    assert found.exchanging(both[0]) == Layout(2, 1, 2)
    assert found.exchanging(both[1]) == Layout(4, 2, 4)
    assert found.reducing(expert=False) == Layout(8, 4, 4)
    assert found.reducing(expert=True) == Layout(2, 2, 4)
    with pytest.raises(ValueError, match="expert parallelism of 4 beside tensor parallelism of 2 does not fit 4"):
        groups.of(experts(exchanges=both), 4, 1)
    wide = groups.of(replace(THREE, exchanges=(Exchange("tensor", 8, 1, 1),)), 16, 4)
    assert (wide.exchanging(Exchange("tensor", 8, 1, 1)), wide.dense) == (Layout(8, 2, 4), Layout(2, 2, 4))


def test_horovod_and_experts() -> None:
    cycles = experts(bucketing=Bucketing("horovod", threshold_bytes=10**9, cycle_s=40e-3))
    # c at 54 and b at 78 wait for 80 and are one; a's quarter waits for 120 ms and, on one host, for nobody.
    found = step(cycles)
    assert found.communication.total.middle == pytest.approx(20e-3)
    two = step(cycles, 8, 2)
    assert two.step_s is not None
    # 80-105: reduce_scatter 10, all_reduce of a quarter across 5, all_gather 10; then a's, 5, from 120.
    assert two.step_s.middle == pytest.approx(125e-3)
