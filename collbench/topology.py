"""Which ranks take part: a topology cuts the world into groups, in rounds of groups that are measured at once.

world           all ranks
host            the ranks of each host, all hosts at once
two_hosts       the first rank of the first host with that of the second; on one host its first two ranks
rail            rank i of every host, all i at once
pairs           every pair: a round-robin tournament, whose rounds are disjoint pairs at once; above 64 ranks a
                sample of host pairs
bisection       rank i of the first half with rank i of the second, all at once
first:N         the first N ranks
first:doubling  the first 2, 4, 8, ... ranks, and all of them, one after the other
every:K         ranks 0, K, 2K, ...
0-3;4-7         the groups that are listed, all at once

host, rail, pairs and bisection have a form `:alone`: the same groups, one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.errors import CannotRun
from collbench.provenance import compact, expanded


@dataclass(frozen=True)
class Group:
    """Ranks of the world that take part in one collective, and what the row calls them."""

    name: str
    ranks: tuple[int, ...]


AGAIN = "again:"
"""What the name of a group begins with that is measured once more, alone."""
MOST_PAIRED = 64
"""Ranks, or else hosts, up to which every pair is measured: 63 rounds. Above, each has PARTNERS others."""
PARTNERS = 8

_ALONE = ":alone"

Round = tuple[Group, ...]
"""Disjoint groups that are measured at the same time."""


def rounds(topology: str, hosts: Sequence[str]) -> tuple[Round, ...]:
    """Cut the world whose ranks are on these hosts; CannotRun says why a rule does not fit it."""
    if topology.endswith(_ALONE):
        return tuple((group,) for one in rounds(topology.removesuffix(_ALONE), hosts) for group in one)
    size = len(hosts)
    rule, _, number = topology.partition(":")
    if topology == "world":
        return ((Group("world", tuple(range(size))),),)
    if topology == "host":
        return (tuple(Group(name, tuple(ranks)) for name, ranks in _by_host(hosts).items()),)
    if topology == "two_hosts":
        return ((_two_hosts(hosts),),)
    if topology == "rail":
        return (_rails(hosts),)
    if topology == "pairs":
        return _pairs(hosts)
    if topology == "bisection":
        return (_bisection(size),)
    if topology == "first:doubling":
        return tuple((_first(count, size),) for count in _doubling(size))
    if rule == "first":
        return ((_first(int(number), size),),)
    if rule == "every":
        chosen = tuple(range(0, size, int(number)))
        return ((Group(f"every:{number}", chosen),),)
    return (_listed(topology, size),)


def sampled(topology: str, hosts: Sequence[str]) -> str:
    """Say which pairs stand for all of them; empty where all are measured."""
    if not topology.startswith("pairs") or len(hosts) <= MOST_PAIRED:
        return ""
    chosen = _chosen(hosts)
    whom = "ranks" if len(chosen) == len(hosts) else "hosts, by the first rank of each"
    many = f"each with {PARTNERS} others" if len(chosen) > MOST_PAIRED else "every pair"
    return f"{topology}: a sample for {len(hosts)} ranks: {many} of {len(chosen)} {whom}"


def unfit(topology: str) -> Round:
    """Stand for the groups of a topology that does not fit this world, so that it has a row of its own."""
    return (Group(topology, ()),)


def group_names(topology: str, hosts: Sequence[str]) -> tuple[str, ...]:
    """Name the groups whose rows a case of this topology has here."""
    try:
        played = rounds(topology, hosts)
    except CannotRun:
        played = (unfit(topology),)
    return tuple(group.name for one in played for group in one)


def _by_host(hosts: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    return found


def _two_hosts(hosts: Sequence[str]) -> Group:
    """Two ranks that stand for two hosts; the name says where they are on one host, so that nobody mistakes it."""
    firsts = [ranks[0] for ranks in _by_host(hosts).values()]
    if len(firsts) > 1:
        return Group(f"{hosts[firsts[0]]}+{hosts[firsts[1]]}", (firsts[0], firsts[1]))
    if len(hosts) < 2:
        raise CannotRun(f"topology two_hosts: got 1 rank (on {hosts[0]}), expected at least 2; start one on each host")
    return Group(f"first:2 on {hosts[0]}", (0, 1))


def _rails(hosts: Sequence[str]) -> Round:
    by_host = _by_host(hosts)
    counts = {host: len(ranks) for host, ranks in by_host.items()}
    if len(counts) < 2:
        raise CannotRun(f"topology rail: got one host ({hosts[0]}), expected at least two")
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} on {host}" for host, count in counts.items())
        raise CannotRun(f"topology rail: got {told}, expected as many ranks on each host; start them evenly")
    return tuple(Group(f"rail{i}", ranks) for i, ranks in enumerate(zip(*by_host.values(), strict=True)))


def _pairs(hosts: Sequence[str]) -> tuple[Round, ...]:
    if len(hosts) < 2:
        raise CannotRun("topology pairs: got 1 rank, expected at least 2")
    chosen = range(len(hosts)) if len(hosts) <= MOST_PAIRED else _chosen(hosts)
    return _tournament(chosen) if len(chosen) <= MOST_PAIRED else _circulant(chosen)


def _chosen(hosts: Sequence[str]) -> list[int]:
    """The first rank of each host; all ranks where there is one host."""
    firsts = [ranks[0] for ranks in _by_host(hosts).values()]
    return firsts if len(firsts) > 1 else list(range(len(hosts)))


def _circulant(chosen: Sequence[int]) -> tuple[Round, ...]:
    """Each with those at four distances, near and far, so that each is in as many pairs; rounds of disjoint pairs."""
    played: list[list[tuple[int, int]]] = []
    for distance in (1, 3, len(chosen) // 8 + 1, len(chosen) // 3):
        for place, rank in enumerate(chosen):
            other = chosen[(place + distance) % len(chosen)]
            pair = (min(rank, other), max(rank, other))
            free = next((one for one in played if not any(set(pair) & set(had) for had in one)), None)
            if free is None:
                played.append([pair])
            else:
                free.append(pair)
    return tuple(tuple(Group(f"{a}-{b}", (a, b)) for a, b in sorted(one)) for one in played)


def _tournament(ranks: Sequence[int]) -> tuple[Round, ...]:
    """Each pair once, in as few rounds as there can be (the circle method); with an odd number one rank rests."""
    places: list[int | None] = [*ranks, *([None] if len(ranks) % 2 else [])]
    found = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        pairs = sorted((min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None)
        found.append(tuple(Group(f"{a}-{b}", (a, b)) for a, b in pairs))
        places = [places[0], places[-1], *places[1:-1]]
    return tuple(found)


def _bisection(size: int) -> Round:
    if size < 2 or size % 2:
        raise CannotRun(f"topology bisection: got {size} ranks, expected an even number")
    half = size // 2
    return tuple(Group(f"{rank}-{rank + half}", (rank, rank + half)) for rank in range(half))


def _first(count: int, size: int) -> Group:
    if count > size:
        raise CannotRun(f"topology first:{count}: got {size} ranks, expected at least {count}")
    return Group(f"first:{count}", tuple(range(count)))


def _doubling(size: int) -> list[int]:
    counts = [1 << bit for bit in range(1, size.bit_length()) if 1 << bit < size]
    return [*counts, size]


def _listed(topology: str, size: int) -> Round:
    groups = []
    taken: set[int] = set()
    for text in topology.split(";"):
        ranks = expanded(text)
        if not ranks:
            raise CannotRun(f"topology {topology}: got {text} without a rank in it, expected the lower rank first")
        beyond = [rank for rank in ranks if rank >= size]
        if beyond:
            raise CannotRun(f"topology {topology}: got rank {beyond[0]}, expected ranks below {size}")
        if taken & ranks:
            raise CannotRun(f"topology {topology}: got rank {min(taken & ranks)} in two groups, expected it in one")
        taken |= ranks
        groups.append(Group(compact(ranks), tuple(sorted(ranks))))
    return tuple(groups)
