"""What travels in a step, and when the step ends if what travels costs what someone says."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from collbench.planning import groups, pipeline
from collbench.planning.buckets import Bucket, horovod_cycles
from collbench.planning.fabric import Fabric, Split
from collbench.planning.workload import Exchange, Workload

View = Callable[[Split, Callable[[], Split]], float]
"""Seconds of a collective: from what it costs, and (asked only where it matters) what a few bytes of it would cost."""

_PROBE_BYTES = 8


def bound(name: str) -> View:
    """What a collective takes at low, middle or high."""
    return lambda cost, first: cost.total.of(name)


def without(tier: str) -> View:
    """What it would take if one tier, `vm` or `across`, took no time."""
    return lambda cost, first: cost.total.middle - _of(cost, tier)


def without_steps(tier: str) -> View:
    """What it would take if the steps in one tier were free, and its bytes were not."""
    return lambda cost, first: cost.total.middle - min(_of(cost, tier), _of(first(), tier))


def without_bytes(tier: str) -> View:
    """What it would take if the bytes in one tier were free, and its steps were not."""
    return lambda cost, first: cost.total.middle - max(0.0, _of(cost, tier) - _of(first(), tier))


def _of(cost: Split, tier: str) -> float:
    return (cost.vm if tier == "vm" else cost.across).middle


@dataclass(frozen=True)
class Traffic:
    """What the devices of one layout exchange in a step.

    `price` is what a collective of so many bytes costs those who reduce gradients together, of experts or of the rest;
    `layers` are what the layers wait for: how often, what it costs, and what a few bytes would cost; `first` is what
    these would cost those of `price`.
    """

    workload: Workload
    price: Callable[[str, int, bool], Split]
    layers: Sequence[tuple[int, Split, Callable[[], Split]]]
    reduces: bool
    first: Callable[[str, bool], Split]

    def cost(self, compute: float | None) -> Split:
        """Return what all that travels costs, one after the other; Horovod's messages depend on the computation."""
        found = Split()
        for times, cost, _ in self.layers:
            found += cost.times(times)
        for collective, times, bucket in self._messages(compute, bound("middle")):
            found += self.price(collective, bucket.size_bytes, bucket.expert).times(times)
        return found

    def total(self, compute: float | None, view: View) -> float:
        """Return the seconds of all that travels, one after the other."""
        lasts = self._lasts(view)
        messages = self._messages(compute, view)
        return self._inside(view) + sum(times * lasts(collective, bucket) for collective, times, bucket in messages)

    def ends(self, compute: float, view: View) -> float:
        """Return when the step ends; what the layers exchange stretches the computation evenly."""
        workload, lasts = self.workload, self._lasts(view)
        busy = compute + self._inside(view)
        if not self.reduces:
            return busy
        found = workload.buckets()
        if workload.overlap != "buckets":
            everything = sum(times * lasts(name, one) for one in found for name, times in collectives(workload.zero))
            return busy + everything if workload.overlap == "none" else max(busy, everything)
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
            fused = cycles(workload, busy)
            return max(busy, pipeline.sequence((at, lasts("all_reduce", one)) for one, at in fused))
        return pipeline.reduced(busy, backward, [(bucket.ready, lasts("all_reduce", bucket)) for bucket in found])

    def _inside(self, view: View) -> float:
        return sum(times * view(cost, first) for times, cost, first in self.layers)

    def _lasts(self, view: View) -> Callable[[str, Bucket], float]:
        @cache
        def seconds(collective: str, size_bytes: int, expert: bool) -> float:
            cost = self.price(collective, size_bytes, expert)
            return view(cost, lambda: self.first(collective, expert))

        return lambda collective, bucket: seconds(collective, bucket.size_bytes, bucket.expert)

    def _messages(self, compute: float | None, view: View) -> Iterator[tuple[str, int, Bucket]]:
        """The collectives of the gradients and parameters: which, how often, of what."""
        if not self.reduces:
            return
        found, workload = self.workload.buckets(), self.workload
        if compute is not None and in_cycles(workload):
            found = [bucket for bucket, _ in cycles(workload, compute + self._inside(view))]
        for bucket in found:
            for collective, times in collectives(workload.zero):
                yield collective, times, bucket


def of(workload: Workload, fabric: Fabric, devices: int, hosts: int, batch: int) -> Traffic:
    """Return what travels among so many devices; ValueError says why they cannot be laid out so."""
    them = groups.of(workload, devices, hosts)

    @cache
    def price(collective: str, size_bytes: int, expert: bool) -> Split:
        return fabric.cost(collective, size_bytes, them.reducing(expert))

    @cache
    def first(collective: str, expert: bool) -> Split:
        return fabric.probe(collective, _PROBE_BYTES, them.reducing(expert))

    def layer(one: Exchange) -> tuple[int, Split, Callable[[], Split]]:
        layout = them.exchanging(one)
        cost = fabric.cost(one.collective, one.bytes_per_sample * batch, layout)
        return one.times, cost, cache(lambda: fabric.probe(one.collective, _PROBE_BYTES, layout))

    layers = [layer(one) for one in workload.exchanges]
    return Traffic(workload, price, layers, them.dense.devices > 1, first)


def collectives(zero: int) -> list[tuple[str, int]]:
    """Return what a bucket travels by, and how often."""
    if zero == 0:
        return [("all_reduce", 1)]
    return [("reduce_scatter", 1), ("all_gather", 2 if zero == 3 else 1)]


def in_cycles(workload: Workload) -> bool:
    """Whether messages are what is ready at each of Horovod's cycles."""
    return workload.bucketing.kind == "horovod" and workload.overlap == "buckets" and not workload.zero


def cycles(workload: Workload, busy: float) -> list[tuple[Bucket, float]]:
    """Return what Horovod sends, and when: each cycle takes what is ready by then, experts' gradients apart."""
    sizes = workload.sizes()[::-1]
    total, passed, ready = sum(sizes), 0, []
    for size in sizes:
        passed += size
        ready.append(busy * (1 - workload.backward) + busy * workload.backward * passed / total)
    how = workload.bucketing
    found: list[tuple[Bucket, float]] = []
    for expert in (False, True):
        of_kind = [place for place, one in enumerate(reversed(workload.tensors)) if one.expert == expert]
        its_sizes, its_times = [sizes[place] for place in of_kind], [ready[place] for place in of_kind]
        for bucket, at in horovod_cycles(its_sizes, its_times, how.threshold_bytes, how.cycle_s):
            found.append((Bucket(bucket.tensors, bucket.size_bytes, bucket.ready, expert), at))
    return sorted(found, key=lambda each: each[1])
