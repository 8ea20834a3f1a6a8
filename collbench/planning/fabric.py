"""A fabric: what collectives cost inside a VM and between hosts, and the hierarchical forms that join the two.

With g devices on each of h hosts (n = g h):

    all_reduce(S, n)      = reduce_scatter(S, g) in the VM + all_reduce(S/g, h) across + all_gather(S, g) in the VM
    reduce_scatter(S, n)  = reduce_scatter(S, g) in the VM + reduce_scatter(S/g, h) across
    all_gather(S, n)      = all_gather(S/g, h) across + all_gather(S, g) in the VM
    all_to_all(S, n)      = all_to_all(S, g) in the VM + all_to_all(S, h) across

Across, device i of every host works with its namesakes, all g at once: the topology `rail` of a scenario measures
exactly that, and `host` measures the part in the VM.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from collbench.errors import UsageError
from collbench.planning import values
from collbench.planning.costs import NOTHING, Cost, Link, Range
from collbench.planning.values import Table
from collbench.scenario_values import refused
from collbench.units import format_duration, format_rate

_EXAMPLES = {
    "schema": "1",
    "title": '"two VMs of eight GPUs"',
    "devices_per_host": "8",
    "latency": '"14 us"',
    "bandwidth": '"25 GB/s"',
    "uncertainty": "0.1",
    "algorithm": '"ring"',
    "per": '"host"',
    "oversubscription": "2",
    "hosts_per_leaf": "16",
    "placement": '"scattered"',
}


@dataclass(frozen=True)
class Layout:
    """Who takes part: so many devices, spread evenly over so many hosts.

    `at_once` is how many devices of a host use its link to the others at the same time, each in its own group.
    """

    devices: int
    hosts: int
    at_once: int = 0

    @property
    def on_host(self) -> int:
        """Devices of each host that take part."""
        return self.devices // self.hosts

    @property
    def sharers(self) -> int:
        """How many share a host's link to the others."""
        return self.at_once or self.on_host


@dataclass(frozen=True)
class Split:
    """What a collective costs, by where it spends it: seconds.

    `together`: both tiers were measured at once, so `across` has the time of both and nobody knows either's share.
    """

    vm: Range = NOTHING
    across: Range = NOTHING
    together: bool = False

    @property
    def total(self) -> Range:
        """Both together: they follow each other."""
        return self.vm + self.across

    def __add__(self, other: "Split") -> "Split":
        return Split(self.vm + other.vm, self.across + other.across, self.together or other.together)

    def times(self, factor: float) -> "Split":
        """Return it so many times."""
        return Split(self.vm.times(factor), self.across.times(factor), self.together)

    def links(self, tier: str) -> str:
        """Name the links of a tier, `vm` or `across`."""
        if tier == "vm":
            return "links in the VM"
        return "VM and hosts measured together" if self.together else "links between hosts"


@dataclass(frozen=True)
class Fabric:
    """Two tiers. `across(sharers, hosts)` is the cost between hosts of a fabric where so many devices share a link.

    `whole` answers first, where it is given, for collectives of all devices that work on their hosts: it is for a fit
    of groups that were measured across both tiers at once. `assumptions` may grow while questions are asked.
    `measured` says that the costs are those of fits, not of closed forms, `placed` on how many hosts so many devices
    were; within `unsaid` no question adds to the assumptions.
    """

    name: str
    devices_per_host: int
    vm: Cost
    across: Callable[[int, int], Cost] | None
    assumptions: Sequence[str] = ()
    whole: Callable[[str, int, Layout], Split] | None = None
    measured: bool = False
    placed: Callable[[int], int] | None = None
    unsaid: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def basis(self) -> str:
        """What its times rest on, for a title."""
        if not self.measured:
            return f"closed forms for {self.name}"
        return f"{'closed forms over ' if self.whole is None else ''}fits of {self.name}"

    def hosts(self, devices: int) -> int:
        """Return on how many hosts devices are where nobody says it: as measured, else on as few as hold them."""
        return -(-devices // self.devices_per_host) if self.placed is None else self.placed(devices)

    def filled(self, devices: int) -> Layout | None:
        """Return the devices on those hosts; None where these would not be full, or of those measured not alike."""
        hosts = self.hosts(devices)
        each = min(devices, self.devices_per_host) if self.placed is None else hosts
        return None if devices % each else Layout(devices, hosts)

    def probe(self, collective: str, size_bytes: int, layout: Layout) -> Split:
        """Return a cost that others are only held against: what it rests on is no assumption of the answer."""
        with self.unsaid():
            return self.cost(collective, size_bytes, layout)

    def cost(self, collective: str, size_bytes: int, layout: Layout) -> Split:
        """Return what a collective of this size costs all devices of a layout."""
        devices, hosts, on_host = layout.devices, layout.hosts, layout.on_host
        if devices < 2:
            return Split()
        if self.whole is not None and layout.sharers == on_host:
            return self.whole(collective, size_bytes, layout)
        if hosts == 1:
            return Split(self.vm(collective, size_bytes, devices))
        if self.across is None:
            raise UsageError(
                f"{self.name}: nic: got nothing, expected the links between {hosts} hosts; describe them as [nic]"
            )
        outside = self.across(layout.sharers, hosts)
        if on_host == 1:
            return Split(across=outside(collective, size_bytes, hosts))
        part = -(-size_bytes // on_host)
        match collective:
            case "all_reduce":
                inside = self.vm("reduce_scatter", size_bytes, on_host) + self.vm("all_gather", size_bytes, on_host)
                return Split(inside, outside("all_reduce", part, hosts))
            case "all_to_all":
                return Split(self.vm(collective, size_bytes, on_host), outside(collective, size_bytes, hosts))
        return Split(self.vm(collective, size_bytes, on_host), outside(collective, part, hosts))


class LinkTable(Table):
    """The links in a VM: the rate is each device's."""

    latency: values.Latency
    bandwidth: values.Rate
    uncertainty: values.Uncertainty = 0.0
    algorithm: Annotated[str, values.one_of("ring", "tree", "best")] = "best"


class NicTable(LinkTable):
    """The links of hosts to each other: the rate is each host's, all its NICs together, or each device's own."""

    per: Annotated[str, values.one_of("host", "device")] = "host"


class SwitchTable(Table):
    """Switches between the hosts: leaves, each with so many hosts, whose uplinks carry less than its hosts could."""

    oversubscription: values.Factor = 1.0
    hosts_per_leaf: values.Devices
    latency: values.Latency = 0.0
    placement: Annotated[str, values.one_of("scattered", "by_leaf")] = "scattered"


class Document(Table):
    """A fabric file."""

    version: values.Schema = Field(alias="schema")
    title: values.Line
    source: values.Line = ""
    devices_per_host: values.Devices
    vm: LinkTable | None = None
    nic: NicTable | None = None
    switch: SwitchTable | None = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.vm is None and self.devices_per_host > 1:
            expected = f"the links between the {self.devices_per_host} devices of a host"
            raise refused(expected, "describe them as [vm], or write devices_per_host = 1", at=("vm",), got="nothing")
        if self.switch is not None and self.nic is None:
            raise refused("none without [nic]", "describe the hosts' links or remove [switch]", at=("switch",))
        return self


@dataclass(frozen=True)
class Across:
    """The links between hosts, with the switches that they pass: what a host has, its devices share."""

    latency_s: float
    bandwidth: float
    shared: bool
    uncertainty: float
    algorithm: str
    oversubscription: float = 1.0
    hosts_per_leaf: int = 0
    leaf_latency_s: float = 0.0
    scattered: bool = True

    def __call__(self, sharers: int, hosts: int) -> Cost:
        """Return the cost for groups of so many hosts, each with so many devices that work at once."""
        rate = self.bandwidth / (sharers if self.shared else 1)
        leaves = 0 < self.hosts_per_leaf < hosts

        def cost(collective: str, size_bytes: int, ranks: int) -> Range:
            slower = self._slowed(collective, hosts) if leaves else 1.0
            latency = self.latency_s + (self.leaf_latency_s if leaves else 0.0)
            return Link(latency, rate / slower, self.uncertainty, self.algorithm)(collective, size_bytes, ranks)

        return cost

    def _slowed(self, collective: str, hosts: int) -> float:
        """Return by what factor the uplinks slow a group of hosts on several leaves.

        Of a host's traffic a share f leaves its leaf; the uplinks hold 1/oversubscription of what the hosts could send.
        The hosts are on as few leaves as hold them. Whoever talks to everyone, or has its hosts in any order, has
        f = (h - L)/(h - 1) with L hosts a leaf; a ring that goes through one leaf after the other has f = 1/L.
        """
        leaf = self.hosts_per_leaf
        share = (hosts - leaf) / (hosts - 1)
        if not self.scattered and collective != "all_to_all":
            share = 1 / leaf
        return max(1.0, share * self.oversubscription)


def load(path: Path) -> Fabric:
    """Read a described fabric."""
    file = values.check(Document, values.read_toml(path, "a fabric file"), str(path), _EXAMPLES)
    lines = [f"fabric described, not measured: {file.title}" + (f" ({file.source})" if file.source else "")]
    vm: Cost = _alone
    if file.vm is not None:
        vm = Link(file.vm.latency, file.vm.bandwidth, file.vm.uncertainty, file.vm.algorithm)
        lines.append(
            f"in a VM: {format_duration(vm.latency_s)} a step and {format_rate(vm.bandwidth)} for each device, "
            f"{_how(vm.algorithm)}, {_sure(vm.uncertainty)}"
        )
    if file.devices_per_host == 1:
        lines.append("a VM has one device: all that travels goes between hosts")
    if file.nic is None:
        return Fabric(file.title, file.devices_per_host, vm, None, tuple(lines))
    nic, switch = file.nic, file.switch
    across = Across(nic.latency, nic.bandwidth, nic.per == "host", nic.uncertainty, nic.algorithm)
    owner = "each host, shared by its devices" if across.shared else "each device"
    lines += [
        f"between hosts: {format_duration(nic.latency)} a step and {format_rate(nic.bandwidth)} for {owner}, "
        f"{_how(nic.algorithm)}, {_sure(nic.uncertainty)}",
    ]
    if file.devices_per_host > 1:
        lines.append(
            "both tiers follow each other: reduce_scatter in the VM, all_reduce of the parts across, all_gather in the "
            "VM; a library that overlaps them is quicker, by at most the smaller of the two"
        )
    if switch is None:
        lines.append("switches: every host reaches every other at its full rate")
    else:
        across = Across(
            *(across.latency_s, across.bandwidth, across.shared, across.uncertainty, across.algorithm),
            *(switch.oversubscription, switch.hosts_per_leaf, switch.latency, switch.placement == "scattered"),
        )
        order = "in any order" if across.scattered else "ordered by leaf"
        lines.append(
            f"switches: {switch.hosts_per_leaf} hosts a leaf, {switch.oversubscription:g} to 1 oversubscribed above, "
            f"{format_duration(switch.latency)} more a step between leaves; the hosts of a job are on as few leaves as "
            f"hold them, {order}"
        )
        if switch.oversubscription > 1:
            lines.append(
                f"a job of up to {switch.hosts_per_leaf} hosts is taken to sit on one leaf and not to cross the "
                f"uplinks; on several it would be up to {switch.oversubscription:g} times slower across"
            )
        lines.append("nobody else uses the uplinks, and routing spreads the flows evenly over them")
    return Fabric(file.title, file.devices_per_host, vm, across, tuple(lines))


def _alone(collective: str, size_bytes: int, ranks: int) -> Range:
    raise UsageError(f"fabric: {collective}: got {ranks} devices of a host, expected 1: its links are not described")


def _how(algorithm: str) -> str:
    return "ring or tree, whichever is quicker" if algorithm == "best" else algorithm


def _sure(uncertainty: float) -> str:
    return f"within {uncertainty:.0%}" if uncertainty else "no uncertainty given (so low = high)"
