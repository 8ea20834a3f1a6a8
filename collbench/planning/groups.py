"""Which devices work together: those that share a model, those that share experts, those that reduce gradients.

Devices are numbered host by host. A tensor-parallel group is of neighbours; an expert-parallel group is of as many such
groups, one after the other, and takes one device of each; gradients are reduced among what stands in the same place.
"""

import math
from dataclasses import dataclass

from collbench.planning.fabric import Layout
from collbench.planning.workload import Exchange, Workload


@dataclass(frozen=True)
class Groups:
    """Devices spread evenly over hosts, as a workload uses them."""

    on_host: int
    tensor_ranks: int
    dense: Layout
    experts: Layout

    def exchanging(self, one: Exchange) -> Layout:
        """Return who takes part in a collective inside the layers."""
        return _group(one.ranks, 1 if one.parallel == "tensor" else self.tensor_ranks, self.on_host)

    def reducing(self, expert: bool) -> Layout:
        """Return who reduces the gradients of an expert, or of what every data-parallel device holds."""
        return self.experts if expert else self.dense


def multiple(workload: Workload) -> int:
    """Return what a number of devices must be a multiple of, so that all groups inside the layers are whole."""
    return math.lcm(*(_block(workload, one) for one in workload.exchanges))


def misfit(workload: Workload, devices: int) -> str:
    """Return which group inside the layers would not be whole; empty where all are."""
    its = next((one for one in workload.exchanges if devices % _block(workload, one)), None)
    return "" if its is None else f"{_named(workload, its)} does not fit {devices} device{'s' * (devices > 1)}"


def _block(workload: Workload, one: Exchange) -> int:
    return one.ranks if one.parallel == "tensor" else one.ranks * workload.tensor_ranks


def _named(workload: Workload, one: Exchange) -> str:
    beside = f" beside tensor parallelism of {workload.tensor_ranks}" if _block(workload, one) > one.ranks else ""
    return f"{one.parallel} parallelism of {one.ranks}{beside}"


def of(workload: Workload, devices: int, hosts: int) -> Groups:
    """Return the groups; ValueError says why the devices cannot be laid out so."""
    if reason := misfit(workload, devices):
        raise ValueError(reason)
    if devices % hosts:
        raise ValueError(f"{devices} devices do not spread evenly over {hosts} hosts")
    on_host, parts = devices // hosts, workload.tensor_ranks
    for one in workload.exchanges:
        block = _block(workload, one)
        if on_host % block and block % on_host:
            raise ValueError(f"{_named(workload, one)} does not fit {on_host} devices a host")
    whole = parts * workload.expert_ranks
    dense, experts = (_group(devices // apart, apart, on_host) for apart in (parts, whole))
    return Groups(on_host, parts, dense, experts)


def _group(ranks: int, apart: int, on_host: int) -> Layout:
    """Return the layout of so many devices, each so far from the next; the other devices work at the same time."""
    if ranks * apart <= on_host:
        return Layout(ranks, 1, ranks if apart == 1 else on_host)
    return Layout(ranks, ranks if apart >= on_host else ranks * apart // on_host, on_host)
