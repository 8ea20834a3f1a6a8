"""How long a step is, what of it is communication, and which term limits it."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collbench.errors import CollbenchError
from collbench.planning import traffic
from collbench.planning.costs import BOUNDS, NOTHING, Range
from collbench.planning.fabric import Fabric, Split
from collbench.planning.traffic import Traffic, View
from collbench.planning.workload import Workload

COMPUTATION = "computation"
SMALLER_BATCH = "computation at a smaller batch"
_HALF = 0.5
_MATTERS = 0.005
"""Below half a percent of the step a term is not worth a name."""
_SAME = 9
"""Digits of a share of the step: what differs beyond them is rounding."""


@dataclass(frozen=True)
class Step:
    """A step of one layout. Times are seconds; what needs the time of computation is None where it is not known.

    `batch` is that of a device (of the devices that share a tensor-parallel model). `communication` is all that
    travels, `exposed` the part of it that the computation waits for, `links` the tier that it waits for most; without
    `others`, the second one, the step would be `others_s` shorter. `samples` is the batch of all devices together,
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
    links: str
    others: str = ""
    others_s: float = 0.0

    @property
    def share(self) -> float | None:
        """Share of the step that is exposed communication."""
        if self.exposed_s is None or self.step_s is None:
            return None
        return self.exposed_s.middle / self.step_s.middle

    @property
    def extrapolated(self) -> bool:
        """Whether the cost of something that travels lies beyond what was measured."""
        return self.communication.total.extrapolated

    @property
    def limit(self) -> str:
        """The largest term of the step."""
        if self.compute_s is None or self.exposed_s is None:
            return self.links
        return COMPUTATION if self.exposed_s.middle <= self.compute_s else self.links

    def efficiency(self, base: "Step") -> Range | None:
        """Return the samples a second and device over those of a base."""
        if self.rate is None or base.rate is None:
            return None
        return self.rate.times(base.devices / self.devices / base.rate.middle)

    def rest(self, base: "Step | None" = None) -> str:
        """Return what the step loses most to beside its limit, against a base; empty where that is not worth a name."""
        if self.limit != COMPUTATION:
            if self.compute_s is None:
                return ""
            return self.others if self.others_s > self.compute_s else COMPUTATION
        if self.compute_s is None or self.exposed_s is None or self.step_s is None:
            return ""
        lost = max(0.0, _slower(self, base))
        if max(lost, self.exposed_s.middle) < _MATTERS * self.step_s.middle:
            return ""
        return SMALLER_BATCH if lost > self.exposed_s.middle else self.links


def forecast(workload: Workload, fabric: Fabric, devices: int, hosts: int, batch: int) -> Step:
    """Return what a step takes on so many devices, spread evenly over so many hosts.

    ValueError says why the devices cannot be laid out so.
    """
    samples = devices // workload.tensor_ranks * batch
    sent = traffic.of(workload, fabric, devices, hosts, batch)
    compute = workload.compute_at(batch)
    communication = sent.cost(compute)
    if compute is None:
        links = _links(sent, communication, None)
        return Step(devices, hosts, batch, samples, None, communication, None, None, None, *links)
    ends = [sent.ends(compute, traffic.bound(name)) for name in BOUNDS]
    step = Range(*ends)
    exposed = Range(*(max(0.0, end - compute) for end in ends))
    rate = Range(samples / step.high, samples / step.middle, samples / step.low)
    links = _links(sent, communication, compute)
    return Step(devices, hosts, batch, samples, compute, communication, exposed, step, rate, *links)


def _links(sent: Traffic, communication: Split, compute: float | None) -> tuple[str, str, float]:
    """Name the tier without which the step would be shortest, then the other one and what it costs in seconds.

    What is hidden behind computation costs nothing, however much it is; where two save as much, the one that carries
    more counts. Without a time of computation nothing is hidden. A name says whether it is by its steps or its bytes.
    """
    if communication.total == NOTHING:
        return "", "", 0.0
    everything = sent.total(compute, traffic.bound("middle"))
    whole = everything if compute is None else sent.ends(compute, traffic.bound("middle"))

    def saved_s(view: View) -> float:
        return whole - (sent.total(compute, view) if compute is None else sent.ends(compute, view))

    def saves(view: View) -> tuple[float, float]:
        return round(saved_s(view) / whole, _SAME), round((everything - sent.total(compute, view)) / whole, _SAME)

    def name(tier: str) -> str:
        try:
            what = _most(
                lambda one: saves((traffic.without_bytes if one == "bandwidth" else traffic.without_steps)(tier)),
                *("bandwidth", "latency"),
            )
        except CollbenchError:
            return communication.links(tier)
        return f"{communication.links(tier)} ({what})"

    first = _most(lambda one: saves(traffic.without(one)), "vm", "across")
    second = "vm" if first == "across" else "across"
    return name(first), name(second), saved_s(traffic.without(second))


def _most(saved: Callable[[str], tuple[float, float]], first: str, second: str) -> str:
    return second if saved(second) > saved(first) else first


def _slower(step: Step, base: Step | None) -> float:
    """Return the seconds by which a step computes longer than at the base's time for each sample."""
    if base is None or not base.batch or step.compute_s is None or base.compute_s is None:
        return 0.0
    return step.compute_s - base.compute_s / base.batch * step.batch


def _cost(step: Step, base: Step) -> str:
    """Name what made a step slower for each sample than the base's, the computation or what it waits for."""
    slower = _slower(step, base)
    if step.exposed_s is not None and base.exposed_s is not None and base.batch:
        waits = step.exposed_s.middle - base.exposed_s.middle / base.batch * step.batch
        if slower > max(0.0, waits):
            return SMALLER_BATCH
    return step.links or COMPUTATION


def limits(steps: Sequence[Step]) -> str:
    """Say where more devices stop paying: one sentence, empty where that cannot be known."""
    best: dict[int, tuple[float, Step]] = {}
    for step in steps:
        if step.rate is not None and step.rate.middle > best.get(step.devices, (0.0, step))[0]:
            best[step.devices] = step.rate.middle, step
    counts = sorted(best)
    for fewer, more in itertools.pairwise(counts):
        (slow, base), (fast, step) = best[fewer], best[more]
        gain = (fast / slow - 1) / (more / fewer - 1)
        if gain <= 0:
            return f"no gain from {fewer} devices to {more}; what costs most there: {_cost(step, base)}"
        if gain < _HALF:
            return (
                f"from {fewer} devices to {more} each new device brings {gain:.0%} of what one brought before: "
                f"less than half; what costs most there: {_cost(step, base)}"
            )
    if len(counts) < 2:
        return ""
    return f"up to {counts[-1]} devices each new one brings more than half of what one brought before"
