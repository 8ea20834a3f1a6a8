"""How long a step is, what of it is communication, and which term limits it."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from collbench.errors import CollbenchError
from collbench.planning import traffic
from collbench.planning.costs import BOUNDS, Range
from collbench.planning.fabric import Fabric, Split
from collbench.planning.traffic import Traffic, View
from collbench.planning.workload import Workload

COMPUTATION = "computation"
SMALLER_BATCH = "computation at a smaller batch"
_TIERS = ("vm", "across")
_HALF = 0.5
_MATTERS = 0.005
"""Below half a percent of the step a term is not worth a name."""
_SAME = 9
"""Digits of a share of the step: what differs beyond them is rounding."""


@dataclass(frozen=True)
class Term:
    """What a step is made of, computation or a tier of links: without it the step would be `saves_s` shorter."""

    kind: str
    name: str
    saves_s: float


@dataclass(frozen=True)
class Step:
    """A step of one layout. Times are seconds; what needs the time of computation is None where it is not known.

    `batch` is that of a device (of the devices that share a tensor-parallel model). `communication` is all that
    travels, `exposed` the part of it that the computation waits for. `samples` is the batch of all devices together,
    `rate` their samples a second. `terms` are in the order of what they save, of the step or, where that is not known,
    of what travels; `sooner` tells how much shorter the step would be if it computed so many seconds less.
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
    terms: tuple[Term, ...] = ()
    sooner: Callable[[float], float] = field(default=lambda less_s: 0.0, compare=False, repr=False)

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
        """The term without which the step would be shortest; empty where nothing takes time."""
        return self.terms[0].name if self.terms else ""

    @property
    def links(self) -> str:
        """The links without which the step would be shortest; empty where nothing travels."""
        return next((term.name for term in self.terms if term.kind != COMPUTATION), "")

    def efficiency(self, base: "Step") -> Range | None:
        """Return the samples a second and device over those of a base."""
        if self.rate is None or base.rate is None:
            return None
        return self.rate.times(base.devices / self.devices / base.rate.middle)

    def rest(self, base: "Step | None" = None) -> str:
        """Return what the step loses most to beside its limit, against a base; empty where that is not worth a name."""
        if self.step_s is None:
            return ""
        others = list(self.terms[1:])
        if self.limit == COMPUTATION:
            others.append(Term(COMPUTATION, SMALLER_BATCH, _lost(self, base)))
        most = max(others, key=lambda term: term.saves_s, default=None)
        return most.name if most and most.saves_s >= _MATTERS * self.step_s.middle else ""


def forecast(workload: Workload, fabric: Fabric, devices: int, hosts: int, batch: int) -> Step:
    """Return what a step takes on so many devices, spread evenly over so many hosts.

    ValueError says why the devices cannot be laid out so.
    """
    samples = devices // workload.tensor_ranks * batch
    sent = traffic.of(workload, fabric, devices, hosts, batch)
    compute = workload.compute_at(batch)
    communication = sent.cost(compute)
    terms = _terms(sent, communication, compute)
    if compute is None:
        return Step(devices, hosts, batch, samples, None, communication, None, None, None, terms)
    low, middle, high = (sent.ends(compute, traffic.bound(name)) for name in BOUNDS)
    exposed = Range(*(max(0.0, end - compute) for end in (low, middle, high)))
    rate = Range(samples / high, samples / middle, samples / low)

    def sooner(less_s: float) -> float:
        return middle - sent.ends(compute - less_s, traffic.bound("middle"))

    step = Range(low, middle, high)
    return Step(devices, hosts, batch, samples, compute, communication, exposed, step, rate, terms, sooner)


def _terms(sent: Traffic, communication: Split, compute: float | None) -> tuple[Term, ...]:
    """Return the step's terms, the one without which it would be shortest first, each tried on the step itself.

    What is hidden costs nothing, however much it is. Of terms that save as much, the one that takes longer by itself
    goes first, then computation, then links in the VM. Without a time of computation nothing is hidden. Links are named
    with what of them, their steps or their bytes, costs more.
    """
    middle = traffic.bound("middle")

    def ends(view: View, computes: float | None = compute) -> float:
        return sent.total(None, view) if computes is None else sent.ends(computes, view)

    whole, everything = ends(middle), sent.total(compute, middle)
    if not whole:
        return ()

    def order(saves_s: float, takes_s: float) -> tuple[float, float]:
        return round(saves_s / whole, _SAME), round(takes_s / whole, _SAME)

    def name(tier: str) -> str:
        def without(view: View) -> tuple[float, float]:
            return order(whole - ends(view), everything - sent.total(compute, view))

        try:
            steps = without(traffic.without_steps(tier)) > without(traffic.without_bytes(tier))
        except CollbenchError:
            return communication.links(tier)
        return f"{communication.links(tier)} ({'latency' if steps else 'bandwidth'})"

    found = [] if compute is None else [(Term(COMPUTATION, COMPUTATION, whole - ends(middle, 0.0)), compute)]
    for tier in _TIERS:
        if takes_s := getattr(communication, tier).middle:
            found.append((Term(tier, name(tier), whole - ends(traffic.without(tier))), takes_s))
    found.sort(key=lambda term: order(term[0].saves_s, term[1]), reverse=True)
    return tuple(term for term, _ in found)


def _lost(step: Step, base: Step | None) -> float:
    """Return the seconds by which a step is longer than at the base's time of computation for each sample."""
    if base is None or not base.batch or step.compute_s is None or base.compute_s is None:
        return 0.0
    slower = step.compute_s - base.compute_s / base.batch * step.batch
    return step.sooner(slower) if slower > 0 else 0.0


def _cost(step: Step, base: Step) -> str:
    """Name what made a step slower for each sample than the base's: a smaller batch, or links that cost more now."""
    before = {term.kind: term.saves_s * step.batch / (base.batch or 1) for term in base.terms}
    grown = [(term.saves_s - before.get(term.kind, 0.0), term.name) for term in step.terms if term.kind != COMPUTATION]
    grown.append((_lost(step, base), SMALLER_BATCH))
    most_s, name = max(grown, key=lambda one: one[0])
    return name if most_s > 0 else step.links or COMPUTATION


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
        told = f"what costs most there: {_cost(step, base)}{_beyond(base, step)}"
        if gain <= 0:
            return f"no gain from {fewer} devices to {more}; {told}"
        if gain < _HALF:
            return (
                f"from {fewer} devices to {more} each new device brings {gain:.0%} of what one brought before: "
                f"less than half; {told}"
            )
    if len(counts) < 2:
        return ""
    told = _beyond(*(step for _, step in best.values()))
    return f"up to {counts[-1]} devices each new one brings more than half of what one brought before{told}"


def _beyond(*steps: Step) -> str:
    return " (EXTRAPOLATED: by rows beyond what was measured)" if any(step.extrapolated for step in steps) else ""
