"""What limits a step: the term without which it would be shortest."""

import math
import random
from dataclasses import replace

import pytest

from collbench.planning import step_tables
from collbench.planning.costs import Link, Range
from collbench.planning.fabric import Across, Fabric
from collbench.planning.step import forecast, limits
from collbench.planning.step_tables import Asked
from collbench.planning.workload import Bucketing, Exchange, Tensor, Workload
from three_buckets import FABRIC, THREE, flat

MATTERS = 0.005
"""Share of the step below which `next` names nothing."""


def free(collective: str, size_bytes: int, ranks: int) -> Range:
    return Range(0.0, 0.0, 0.0)


def seconds(workload: Workload, fabric: Fabric, devices: int, hosts: int) -> float:
    found = forecast(workload, fabric, devices, hosts, 4).step_s
    assert found is not None
    return found.middle


def drawn(draw: random.Random) -> tuple[Workload, Link, Across, int, int]:
    """A workload, the links, devices and hosts; what computes and what travels takes times of like size."""
    tensors = tuple(Tensor(str(unit), draw.randint(1, 4_000_000), unit) for unit in range(draw.randint(1, 10)))
    layers = (Exchange("tensor", 2, draw.randint(1, 20), draw.randint(1, 1_000_000)),) * draw.choice((0, 0, 1))
    chosen = replace(
        THREE,
        tensors=tensors,
        bucketing=Bucketing(draw.choice(("none", "ddp", "horovod", "layers"))),
        zero=draw.choice((0, 0, 1, 2, 3)),
        exchanges=layers,
        compute_s={4: 10 ** draw.uniform(-4, -1)},
        overlap=draw.choice(("none", "full", "buckets")),
    )
    vm = Link(10 ** draw.uniform(-6, -3), 10 ** draw.uniform(9, 11), algorithm="ring")
    across = Across(10 ** draw.uniform(-6, -3), 10 ** draw.uniform(8.5, 10.5), True, 0.0, "ring")
    devices, hosts = draw.choice(((2, 1), (4, 1), (4, 2), (8, 2), (16, 4)))
    return chosen, vm, across, devices, hosts


def test_the_limit_is_the_term_without_which_the_step_is_shortest() -> None:
    """Held against forecasts of the same step that does not compute, or of a fabric of which a tier is free."""
    draw, limited = random.Random(7), set()
    for _ in range(400):
        workload, vm, across, devices, hosts = drawn(draw)
        fabric = Fabric("drawn", 4, vm, across)
        idle = replace(workload, compute_s={4: 1e-15})
        whole = seconds(workload, fabric, devices, hosts)
        saved = {
            "computation": whole - seconds(idle, fabric, devices, hosts),
            "links in the VM": whole - seconds(workload, replace(fabric, vm=free), devices, hosts),
            "links between hosts": whole
            - seconds(workload, replace(fabric, across=lambda sharers, hosts: free), devices, hosts),
        }
        found = forecast(workload, fabric, devices, hosts, 4)
        limit, rest = (name.partition(" (")[0] for name in (found.limit, found.rest()))
        limited.add((workload.overlap, limit))
        rounding = 1e-8 * whole
        first = saved.pop(limit)
        assert first >= max(saved.values()) - rounding
        second = saved.pop(rest) if rest else MATTERS * whole
        assert second >= max(saved.values()) - rounding
        assert second >= MATTERS * whole - rounding
        if limit != "computation":
            vms = replace(vm, latency_s=0.0), replace(vm, bandwidth=math.inf)
            acrosses = replace(across, latency_s=0.0), replace(across, bandwidth=math.inf)
            parted = [replace(fabric, across=one) for one in acrosses]
            if limit == "links in the VM":
                parted = [replace(fabric, vm=one) for one in vms]
            by_steps, by_bytes = (whole - seconds(workload, one, devices, hosts) for one in parted)
            if abs(by_steps - by_bytes) > 0.01 * whole:
                assert found.limit.endswith("(latency)" if by_steps > by_bytes else "(bandwidth)")
    assert len(limited) == 9


def test_terms_that_save_as_much() -> None:
    # Computation and links hide each other, and neither is worth more: what takes longer, then computation.
    full = replace(THREE, overlap="full")
    alike = forecast(replace(full, compute_s={10: 40e-3}), FABRIC, 4, 1, 10)
    assert [(term.kind, term.saves_s) for term in alike.terms] == [("computation", 0), ("vm", 0)]
    assert (alike.limit, alike.rest()) == ("computation", "")
    # In turn each takes 40 ms.
    turns = forecast(replace(THREE, overlap="none", compute_s={10: 40e-3}), FABRIC, 4, 1, 10)
    assert (turns.limit, turns.rest()) == ("computation", "links in the VM (bandwidth)")


def test_what_is_longer_and_hides_limits() -> None:
    # 90 ms of computation, 100 ms of links: without links 90 ms, without computation 100.
    full = replace(
        THREE, overlap="full", tensors=tuple(replace(one, elements=one.elements * 5 // 2) for one in THREE.tensors)
    )
    found = forecast(full, FABRIC, 4, 1, 10)
    assert found.exposed_s is not None
    assert found.exposed_s.middle < 90e-3
    assert (found.limit, found.rest()) == ("links in the VM (bandwidth)", "")


def test_a_smaller_batch_is_named_where_it_costs_more_than_what_travels() -> None:
    # 9 ms a sample at a batch of 10, 40 ms at one: 31 ms of a step are lost to the smaller batch. The links take 10 and
    # 10 ms in the VM and 22 ms across.
    half = replace(
        FABRIC,
        vm=lambda name, size, ranks: flat(name, size // 2, ranks),
        across=lambda sharers, hosts: lambda name, size, ranks: flat(name, size * 11 // 10, ranks),
    )
    turns = replace(THREE, compute_s={10: 90e-3, 1: 40e-3}, overlap="none")
    table, (first, last) = step_tables.table(turns, half, Asked((1, 10), (1, 5), global_batch=10))
    assert [(one.devices, one.batch) for one in (first, last)] == [(1, 10), (10, 1)]
    assert last.limit == "computation"
    assert last.rest() == "links between hosts (bandwidth)"
    assert last.rest(first) == "computation at a smaller batch"
    assert [row["next"] for row in table.rows] == ["", "computation at a smaller batch"]
    assert limits([first, last]).endswith("what costs most there: computation at a smaller batch")
    # At the same time for each sample it is what travels.
    same = forecast(replace(turns, compute_s={1: 9e-3}), half, 10, 5, 1)
    assert limits([first, same]).endswith("what costs most there: links between hosts (bandwidth)")
    # Computation that is hidden behind what travels costs nothing, at whatever batch.
    hidden = forecast(replace(turns, overlap="full"), half, 10, 5, 1)
    assert (hidden.limit, hidden.rest(first)) == ("links between hosts (bandwidth)", "links in the VM (bandwidth)")
    assert limits([first, hidden]).endswith("what costs most there: links between hosts (bandwidth)")


def test_what_is_hidden_limits_nothing() -> None:
    # Eight layers wait 25 ms in the VM, all exposed; gradients of 4 devices' namesakes take 200 ms and more between
    # hosts, hidden but for the last.
    one = replace(
        THREE,
        exchanges=(Exchange("tensor", 4, 8, 250_000),),
        tensors=tuple(replace(tensor, elements=tensor.elements * 4) for tensor in THREE.tensors),
        overlap="full",
        compute_s={10: 90e-3},
    )
    slow = replace(FABRIC, across=lambda sharers, hosts: lambda name, size, ranks: flat(name, 7 * size, ranks))
    found = forecast(one, slow, 8, 2, 10)
    assert found.communication.across.middle == pytest.approx(280e-3)
    assert found.communication.vm.middle == pytest.approx(200e-3)
    assert found.step_s is not None
    assert found.step_s.middle == pytest.approx(290e-3)
    assert found.limit == "links in the VM (bandwidth)"


@pytest.mark.parametrize(
    ("compute_s", "limit", "rest"),
    [
        (10e-3, "links between hosts (bandwidth)", "links in the VM (bandwidth)"),
        (60e-3, "links between hosts (bandwidth)", "computation"),
        (5.0, "computation", ""),
    ],
)
def test_what_comes_next_is_the_largest_beside_the_limit(compute_s: float, limit: str, rest: str) -> None:
    """4 MB over two hosts of four: 40 ms in the VM, 160 ms across for the quarters."""
    slow = Fabric("slow across", 4, flat, lambda sharers, hosts: lambda name, size, ranks: flat(name, 16 * size, ranks))
    found = forecast(replace(THREE, compute_s={10: compute_s}, overlap="none"), slow, 8, 2, 10)
    assert (found.limit, found.rest(found)) == (limit, rest if compute_s < 1 else found.links)


def test_latency_is_that_of_the_tier_that_is_named() -> None:
    # Layers wait for steps of 20 ms in the VM, gradients for bytes between hosts, which are hidden.
    fabric = Fabric("slow steps", 4, Link(2e-2, 1e12), lambda sharers, hosts: flat)
    one = replace(THREE, exchanges=(Exchange("tensor", 4, 1, 10_000),), overlap="full")
    assert forecast(one, fabric, 8, 2, 10).rest() == "links in the VM (latency)"
