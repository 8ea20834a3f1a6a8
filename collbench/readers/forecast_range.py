"""What was measured around a question: on which hosts it is asked, which curves lie beside it, and what is beyond."""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collbench.errors import UsageError
from collbench.readers.fit import Fit
from collbench.readers.fitted import Fitted
from collbench.readers.over_ranks import Distance, anchors
from collbench.units import format_size

SAME_SIZE = 0.01
"""Sizes are rounded to what divides by the ranks: what is nearer than this is the same size."""
_FARTHEST = 2
"""Octaves from the nearest measured size up to which a size between two others counts as measured around: sizes by a
factor of 16 are the widest that sweeps are made of."""
_WIDEST = 4
"""Factor between two measured numbers of ranks or hosts up to which one between them counts as measured around: a law
has a step for each double, and libraries change the algorithm on the way."""


@dataclass(frozen=True)
class Over:
    """What is asked for beyond what was measured."""

    name: str
    got: str
    expected: str
    beyond: str = ""
    """In place of `beyond <expected>`, in a mark."""

    @property
    def mark(self) -> str:
        """What is said beside the answer."""
        return f"extrapolated: {self.name} {self.got} {self.beyond or f'beyond {self.expected}'}"


@dataclass(frozen=True)
class Refusal:
    """A question that a family refused, on so many hosts where that was said, and the sentence."""

    its: Fitted
    size_bytes: int
    ranks: int
    hosts: int | None
    error: UsageError

    def octaves(self) -> tuple[float, float]:
        """How far from the ranks and hosts that the family was measured on, and from its sizes."""
        hosts = usual_hosts(self.its, self.ranks) if self.hosts is None else self.hosts
        asked = ((self.ranks, self.its.ranks), (hosts, self.its.hosts))
        low, high = self.its.sizes
        return (
            sum(min(abs(math.log2(max(got, 1) / one)) for one in known) for got, known in asked),
            abs(math.log2(max(self.size_bytes, 1) / min(max(self.size_bytes, low), high))),
        )


def nearest_refusal(refused: Sequence[Refusal]) -> UsageError:
    """The sentence of the family that was measured nearest to what was asked: what it lacks is least."""
    return min(refused, key=Refusal.octaves).error


def measured(its: Fitted, ranks: int, hosts: int) -> list[Fit]:
    """The fit on so many ranks of so many hosts, if it was measured."""
    return [one for one in its.fits if (one.curve.ranks, one.curve.hosts) == (ranks, hosts)]


def usual_hosts(its: Fitted, ranks: int) -> int:
    """On how many hosts ranks are where nobody says it: as measured, or as few as hold them at the measured density."""
    if same := [one.curve.hosts for one in its.fits if one.curve.ranks == ranks]:
        return min(same)
    for hosts in its.hosts:
        low, high = _density(its, hosts)
        if hosts <= ranks and low <= _per_host(ranks, hosts) <= high:
            return hosts
    return 1 if its.hosts[-1] == 1 else _per_host(ranks, max(one.curve.ranks_per_host for one in its.fits))


def beyond(its: Fitted, size: int, ranks: int, hosts: int) -> tuple[Over, ...]:
    """What is asked for beyond what was measured; raise where that cannot be forecast at all."""
    where = its.family.value("collective")
    if size < 1:
        raise UsageError(f"forecast: {where}: size: got {size} B, expected at least 1 B")
    same = measured(its, ranks, hosts)
    if not same and (not its.laws or ranks < 2):
        raise UsageError(
            f"forecast: {where}: ranks: got {ranks}, expected {_listed(its.ranks)} as measured: no law over ranks "
            "tells of others; measure them"
        )
    if hosts > ranks:
        raise UsageError(
            f"forecast: {where}: hosts: got {hosts} for {ranks} ranks, expected a rank on each; give fewer"
        )
    if not same and ranks % hosts:
        below = ranks // hosts * hosts
        raise UsageError(
            f"forecast: {where}: ranks: got {on_hosts(ranks, hosts)}, expected as many on each host; ask about {below} "
            f"or {below + hosts} ranks, or other --hosts"
        )
    if hosts > 1 and max(its.hosts) == 1:
        raise UsageError(
            f"forecast: {where}: got {hosts} hosts, expected 1 as measured: nothing is known of the way between "
            "hosts; measure on 2 hosts at least"
        )
    over = list(_sizes_beyond(same or anchors(its.several, ranks, hosts), size))
    if not same:
        over += [*_counts_beyond("ranks", ranks, _ranks(its)), *_counts_beyond("hosts", hosts, _hosts(its))]
    if not same and its.hosts[-1] > 1:  # on one host the ranks say it already
        low, high = _density(its, hosts)
        own, got = _per_host(ranks, hosts), f"{_per_host(ranks, hosts)} on {hosts} host{'s' * (hosts > 1)}"
        if not low <= own <= high:
            over.append(Over("ranks per host", got, f"{low}" if low == high else f"{low} to {high}"))
        else:
            over += [replace(one, got=got) for one in _counts_beyond("ranks per host", own, _densities(its, hosts))]
    return tuple(over)


def distance(its: Fitted, ranks: int, hosts: int) -> Distance:
    """From what was measured to so many ranks on so many hosts."""
    low, high = _density(its, hosts)
    own, all_ranks, all_hosts = _per_host(ranks, hosts), _ranks(its), _hosts(its)
    return Distance(
        max(0.0, math.log2(max(ranks / all_ranks[-1], hosts / all_hosts[-1], own / high))),
        max(0.0, math.log2(max(all_ranks[0] / ranks, all_hosts[0] / hosts, low / own))),
        max(
            min(abs(math.log2(count / got)) for count in counts)
            for got, counts in ((ranks, all_ranks), (hosts, all_hosts))
        ),
    )


def no_slower(its: Fitted, ranks: int, hosts: int) -> Fit | None:
    """The fit that cannot take longer: of the most ranks up to these, all on one host or with as many on each.

    With fewer on a host each rank sends a larger part to the other hosts, so those are no bound.
    """
    known = [
        one
        for one in its.fits
        if 1 < one.curve.ranks <= ranks
        and one.curve.hosts <= hosts
        and (hosts == 1 or one.curve.ranks_per_host == _per_host(ranks, hosts))
    ]
    return max(known, key=lambda one: (one.curve.ranks, one.curve.hosts), default=None)


def with_more(its: Fitted, ranks: int, hosts: int) -> list[Fit]:
    """The fits on more ranks, on no fewer hosts."""
    return [one for one in its.fits if one.curve.ranks > ranks and one.curve.hosts >= hosts]


def on_hosts(ranks: int, hosts: int) -> str:
    """Both in words."""
    return f"{ranks} ranks on {hosts} host{'s' * (hosts > 1)}"


def _density(its: Fitted, hosts: int) -> tuple[int, int]:
    """The least and the most ranks per host that were measured on so many hosts, or on both nearest numbers of them."""
    ranges = _densities_beside(its, hosts)
    return max(min(one) for one in ranges), min(max(one) for one in ranges)


def _densities(its: Fitted, hosts: int) -> list[int]:
    """All the ranks per host that were measured on these numbers of hosts."""
    return sorted({density for one in _densities_beside(its, hosts) for density in one})


def _densities_beside(its: Fitted, hosts: int) -> list[list[int]]:
    known = [one.curve for one in its.several or its.fits]
    counts = sorted({one.hosts for one in known})
    below = max((count for count in counts if count <= hosts), default=counts[0])
    above = min((count for count in counts if count >= hosts), default=counts[-1])
    return [[one.ranks_per_host for one in known if one.hosts == count] for count in (below, above)]


def _ranks(its: Fitted) -> list[int]:
    return sorted({one.curve.ranks for one in its.several})


def _hosts(its: Fitted) -> list[int]:
    return sorted({one.curve.hosts for one in its.several})


def _per_host(ranks: int, hosts: int) -> int:
    return -(-ranks // hosts)


def _sizes_beyond(fits: Sequence[Fit], size: int) -> list[Over]:
    low = int(max(one.curve.sizes[0] for one in fits))
    high = int(min(one.curve.sizes[-1] for one in fits))
    if not low * (1 - SAME_SIZE) <= size <= high * (1 + SAME_SIZE):
        return [Over("size", format_size(size), f"{format_size(low)} to {format_size(high)}")]
    sizes = max((one.curve.sizes for one in fits), key=lambda its: float(np.abs(np.log2(its / size)).min()))
    if np.abs(np.log2(sizes / size)).min() <= _FARTHEST:
        return []
    after = int(np.searchsorted(sizes, size))
    ends = format_size(int(sizes[after - 1])), format_size(int(sizes[after]))
    times = 2**_FARTHEST
    expected = f"up to {times} times {ends[0]} or from 1/{times} of {ends[1]} on"
    return [Over("size", format_size(size), expected, f"in the gap between {ends[0]} and {ends[1]}")]


def _counts_beyond(name: str, got: int, counts: Sequence[int]) -> list[Over]:
    """Whether a count that was not measured lies beyond all that were, or in a wide gap between two of them."""
    if got in counts:
        return []
    if not counts[0] < got < counts[-1]:
        return [Over(name, str(got), _listed(counts))]
    after = bisect.bisect(counts, got)
    low, high = counts[after - 1], counts[after]
    if high <= _WIDEST * low:
        return []
    expected = f"{_listed(counts)}, or two around it up to {_WIDEST} times apart,"
    return [Over(name, str(got), expected, f"in the gap between {low} and {high}")]


def _listed(numbers: Sequence[int]) -> str:
    return " or ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])] if len(numbers) > 1 else map(str, numbers))
