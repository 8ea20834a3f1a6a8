"""How long a step is, what of it is communication, and which term limits it."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from collbench.errors import CollbenchError
from collbench.planning import pipeline
from collbench.planning.buckets import Bucket, horovod_cycles
from collbench.planning.costs import BOUNDS, NOTHING, Range
from collbench.planning.fabric import Fabric, Layout, Split
from collbench.planning.workload import Exchange, Workload

Price = Callable[[str, int], Split]
"""What a collective of so many bytes costs the devices that reduce gradients together."""

_PROBE_BYTES = 8
_COMPUTATION = "computation"
_HALF = 0.5
_MATTERS = 0.005
"""Below half a percent of the step a term is not worth a name."""


@dataclass(frozen=True)
class Step:
    """A step of one layout. Times are seconds; what needs the time of computation is None where it is not known.

    `batch` is that of a device (of the devices that share a tensor-parallel model). `communication` is all that
    travels, `exposed` the part of it that the computation waits for. `samples` is the batch of all devices together,
    `rate` their samples a second.
    """

    devices: int
    hosts: int
    batch: int
    samples: int
    compute_s: float | None
    communication: Split
    exposed_s: Range | None
    step_s: Range | None
    rate: Range | None
    limit: str
    rest: str

    @property
    def share(self) -> float | None:
        """Share of the step that is exposed communication."""
        if self.exposed_s is None or self.step_s is None:
            return None
        return self.exposed_s.middle / self.step_s.middle

    def efficiency(self, base: "Step") -> Range | None:
        """Return the samples a second and device over those of a base."""
        if self.rate is None or base.rate is None:
            return None
        return self.rate.times(base.devices / self.devices / base.rate.middle)


def forecast(workload: Workload, fabric: Fabric, devices: int, hosts: int, batch: int) -> Step:
    """Return what a step takes on so many devices, spread evenly over so many hosts.

    ValueError says why the devices cannot be laid out so.
    """
    samples = devices // workload.tensor_ranks * batch
    inside, reducing = _layouts(workload, devices, hosts)

    @cache
    def price(collective: str, size_bytes: int) -> Split:
        return fabric.cost(collective, size_bytes, reducing)

    compute = workload.compute_at(batch)
    layers = _layers(workload, fabric, devices, hosts, batch, inside)
    gradients = _gradients(workload, price) if reducing.devices > 1 else Split()
    communication = layers + gradients
    if compute is None:
        limit = _slowest(communication, _latency(workload, price, gradients, layers))
        return Step(devices, hosts, batch, samples, None, communication, None, None, None, limit, "")
    ends = [_ends(workload, price, compute, layers.total.of(bound), bound, reducing.devices > 1) for bound in BOUNDS]
    step = Range(*ends)
    exposed = Range(*(max(0.0, end - compute) for end in ends))
    rate = Range(samples / step.high, samples / step.middle, samples / step.low)
    slow = _slowest(communication, _latency(workload, price, gradients, layers))
    limit, rest = (_COMPUTATION, slow) if exposed.middle <= compute else (slow, _COMPUTATION)
    if rest != _COMPUTATION and exposed.middle < _MATTERS * step.middle:
        rest = ""
    return Step(devices, hosts, batch, samples, compute, communication, exposed, step, rate, limit, rest)


def _layouts(workload: Workload, devices: int, hosts: int) -> tuple[Layout, Layout]:
    """Return who shares one copy of the model, and who reduces its gradients together."""
    if devices % hosts:
        raise ValueError(f"{devices} devices do not spread evenly over {hosts} hosts")
    on_host, parts = devices // hosts, workload.tensor_ranks
    for one in workload.exchanges:
        if devices % one.ranks or (on_host % one.ranks and one.ranks % on_host):
            raise ValueError(f"{one.parallel} parallelism of {one.ranks} does not fit {on_host} devices a host")
    if parts <= on_host:
        return Layout(parts, 1, parts), Layout(devices // parts, hosts, on_host)
    spans = parts // on_host
    return Layout(parts, spans, on_host), Layout(devices // parts, hosts // spans, on_host)


def _layers(workload: Workload, fabric: Fabric, devices: int, hosts: int, batch: int, inside: Layout) -> Split:
    """Return what the exchanges inside the layers cost: the layers wait for them, so nothing hides them."""
    found = Split()
    for one in workload.exchanges:
        layout = inside if one.parallel == "tensor" else _experts(one, devices // hosts)
        found += fabric.cost(one.collective, one.bytes_per_sample * batch, layout).times(one.times)
    return found


def _experts(one: Exchange, on_host: int) -> Layout:
    return Layout(one.ranks, max(1, one.ranks // on_host), on_host)


def _gradients(workload: Workload, price: Price) -> Split:
    """Return what all messages of the gradients and parameters cost, one after the other."""
    found = Split()
    for bucket in workload.buckets():
        for collective, times in _collectives(workload.zero):
            found += price(collective, bucket.size_bytes).times(times)
    return found


def _collectives(zero: int) -> list[tuple[str, int]]:
    if zero == 0:
        return [("all_reduce", 1)]
    return [("reduce_scatter", 1), ("all_gather", 2 if zero == 3 else 1)]


def _ends(workload: Workload, price: Price, compute: float, layers: float, bound: str, several: bool) -> float:
    """Return when the step ends; what the layers exchange stretches the computation evenly."""
    busy = compute + layers
    if not several:
        return busy
    found = workload.buckets()

    def lasts(collective: str, bucket: Bucket) -> float:
        return price(collective, bucket.size_bytes).total.of(bound)

    everything = sum(times * lasts(name, one) for one in found for name, times in _collectives(workload.zero))
    if workload.overlap == "none":
        return busy + everything
    if workload.overlap == "full":
        return max(busy, everything)
    backward = workload.backward
    if workload.zero == 3:
        starts = [0.0, *(bucket.ready for bucket in found)]
        units = [
            (bucket.ready - start, lasts("all_gather", bucket), lasts("reduce_scatter", bucket))
            for start, bucket in zip(starts, found, strict=False)
        ]
        return pipeline.gathered(busy, backward, units[::-1])
    if workload.zero:
        after = sum(lasts("all_gather", bucket) for bucket in found)
        messages = [(bucket.ready, lasts("reduce_scatter", bucket)) for bucket in found]
        return pipeline.reduced(busy, backward, messages, after)
    if workload.bucketing.kind == "horovod":
        return max(busy, _horovod(workload, price, busy, bound))
    return pipeline.reduced(busy, backward, [(bucket.ready, lasts("all_reduce", bucket)) for bucket in found])


def _horovod(workload: Workload, price: Price, busy: float, bound: str) -> float:
    """Return when Horovod's last all_reduce ends: each cycle takes what is ready by then."""
    sizes = workload.sizes()[::-1]
    total, passed, ready = sum(sizes), 0, []
    for size in sizes:
        passed += size
        ready.append(busy * (1 - workload.backward) + busy * workload.backward * passed / total)
    how = workload.bucketing
    cycles = horovod_cycles(sizes, ready, how.threshold_bytes, how.cycle_s)
    return pipeline.sequence((at, price("all_reduce", one.size_bytes).total.of(bound)) for one, at in cycles)


def _latency(workload: Workload, price: Price, gradients: Split, layers: Split) -> float | None:
    """Return what share of the gradients' time is there for however few bytes; None where that is not known."""
    if gradients.total.middle <= 0 or layers.total.middle > gradients.total.middle:
        return None
    spent = 0.0
    try:
        for collective, times in _collectives(workload.zero):
            spent += times * len(workload.buckets()) * price(collective, _PROBE_BYTES).total.middle
    except CollbenchError:
        return None
    return min(1.0, spent / gradients.total.middle)


def _slowest(found: Split, latency: float | None) -> str:
    """Name the tier that takes most of the communication, and whether by steps or by bytes."""
    if found.total == NOTHING:
        return ""
    tier = "links between hosts" if found.across.middle > found.vm.middle else "links in the VM"
    return tier if latency is None else f"{tier} ({'latency' if latency > 0.5 else 'bandwidth'})"


def _cost(step: Step) -> str:
    """Name what a step loses most to: the computation only where nothing else is worth a name."""
    return step.rest if step.limit == _COMPUTATION and step.rest else step.limit


def limits(steps: Sequence[Step]) -> str:
    """Say where more devices stop paying: one sentence, empty where that cannot be known."""
    best: dict[int, tuple[float, Step]] = {}
    for step in steps:
        if step.rate is not None and step.rate.middle > best.get(step.devices, (0.0, step))[0]:
            best[step.devices] = step.rate.middle, step
    counts = sorted(best)
    for fewer, more in itertools.pairwise(counts):
        (slow, _), (fast, step) = best[fewer], best[more]
        gain = (fast / slow - 1) / (more / fewer - 1)
        if gain <= 0:
            return f"no gain from {fewer} devices to {more}; what costs most there: {_cost(step)}"
        if gain < _HALF:
            return (
                f"from {fewer} devices to {more} each new device brings {gain:.0%} of what one brought before: "
                f"less than half; what costs most there: {_cost(step)}"
            )
    if len(counts) < 2:
        return ""
    return f"up to {counts[-1]} devices each new one brings more than half of what one brought before"
