"""A fabric made of measurements: what a fit says of groups in a VM, of rails between hosts, or of all ranks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from collbench.errors import UsageError
from collbench.planning.costs import Cost, Range
from collbench.planning.fabric import Fabric, Layout, Split


@dataclass(frozen=True)
class Told:
    """An answer in seconds; the bounds are None where nothing says how far off it may be. `marks` are sentences."""

    time_s: float
    low_s: float | None = None
    high_s: float | None = None
    marks: tuple[str, ...] = ()
    extrapolated: bool = False


_TOGETHER = (
    "VM and hosts were measured together, so either may be the slow one: measure the topologies host (reduce_scatter "
    "and all_gather) and rail (all_reduce), which split them"
)

Ask = Callable[[str, int, int, int], Told]
"""What a collective of so many bytes takes among so many ranks on so many hosts; it raises where it does not know."""


def fabric(
    name: str,
    devices_per_host: int,
    *,
    whole: Ask | None = None,
    vm: Ask | None = None,
    rails: Ask | None = None,
    at_once: int = 0,
    notes: Sequence[str] = (),
    placed: Callable[[int], int] | None = None,
) -> Fabric:
    """Return the fabric of what was measured.

    `whole` is of groups of all ranks (topology `world`), `vm` of groups of one host (`host`), `rails` of groups with
    a rank of each host, `at_once` of them at the same time (`rail`). What the answers are marked with, and that bounds
    are missing, stands in the fabric's assumptions once it was asked; `notes` on the results stand there at once.
    `placed` says on how many hosts so many devices were measured.
    """
    said = [f"fabric measured: {name}", *notes]

    def note(text: str) -> None:
        if text not in said:
            said.append(text)

    @contextmanager
    def unsaid() -> Iterator[None]:
        kept = len(said)
        try:
            yield
        finally:
            del said[kept:]

    def told(ask: Ask, collective: str, size_bytes: int, ranks: int, hosts: int) -> Range:
        answer = ask(collective, size_bytes, ranks, hosts)
        for mark in answer.marks:
            note(f"{collective}: {mark}")
        if answer.low_s is None or answer.high_s is None:
            note(f"{collective}: some of the times have no interval, and their low and high are the time itself")
            return Range(answer.time_s, answer.time_s, answer.time_s, extrapolated=answer.extrapolated)
        return Range(answer.low_s, answer.time_s, answer.high_s, extrapolated=answer.extrapolated)

    def inside(collective: str, size_bytes: int, ranks: int) -> Range:
        if vm is None:
            raise _unmeasured(name, collective, "host", f"{ranks} devices of a host")
        return told(vm, collective, size_bytes, ranks, 1)

    def across(sharers: int, hosts: int) -> Cost:
        def cost(collective: str, size_bytes: int, ranks: int) -> Range:
            if rails is None:
                raise _unmeasured(name, collective, "rail", f"{ranks} hosts")
            if at_once and at_once < sharers:
                raise UsageError(
                    f"{name}: {collective}: got rails of {at_once} device{'s' * (at_once > 1)} of each host at once, "
                    f"expected {sharers}, which share the hosts' links; measure the topology rail with all of them"
                )
            if at_once and at_once != sharers:
                note(f"between hosts {at_once} devices of each worked at once, and {sharers} are asked about")
            return told(rails, collective, size_bytes, ranks, hosts)

        return cost

    def together(collective: str, size_bytes: int, layout: Layout) -> Split:
        assert whole is not None
        time = told(whole, collective, size_bytes, layout.devices, layout.hosts)
        if layout.hosts == 1:
            return Split(time)
        both = layout.on_host > 1
        if both:
            note(_TOGETHER)
        return Split(across=time, together=both)

    all_ranks = None if whole is None else together
    return Fabric(name, devices_per_host, inside, across, said, all_ranks, measured=True, placed=placed, unsaid=unsaid)


def _unmeasured(name: str, collective: str, topology: str, what: str) -> UsageError:
    return UsageError(
        f"{name}: {collective}: got no times among {what}, expected results of the topology {topology}; measure them"
    )
