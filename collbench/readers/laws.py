"""How time grows with the number of ranks, by the algorithm: each law is linear in start-ups and in bytes.

S is the size by the convention of the collective (the whole gathered vector of all_gather, the whole send buffer of
all_to_all). Sources: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of Collective Communication Operations in
MPICH", International Journal of High Performance Computing Applications 19(1), 2005 (recursive doubling and halving,
Rabenseifner, Bruck, pairwise, scatter with all_gather); E. Chan, M. Heimlich, A. Purkayastha and R. van de Geijn,
"Collective communication: theory, practice, and experience", Concurrency and Computation 19(13), 2007; P. Sanders,
J. Speck and J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing
35(12), 2009 (the pipelined double tree).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collbench.readers.fit import relative, root_mean_square, solve
from collbench.readers.fit_rows import Curve, Floats

Tier = tuple[float, float]
"""What a fabric tier's alpha and 1/B are multiplied by; the second also by S."""


_LEAST_S = 1e-12
"""Below what any clock reads: a law may have found nothing that a number of ranks is told by."""


@dataclass(frozen=True)
class Law:
    """An algorithm: `tiers` of (ranks, hosts, ranks per host), one for each kind of link that it tells apart."""

    name: str
    tiers: Callable[[int, int, int], tuple[Tier, ...]]
    otherwise: tuple["Law", ...] = ()
    """What libraries do in its place on numbers of ranks that are no powers of two."""

    def uses(self, curve: Curve) -> tuple[bool, ...]:
        """Which of its tiers have a part in the times of a curve."""
        return tuple(starts > 0 for starts, _ in self.tiers(curve.ranks, curve.hosts, curve.ranks_per_host))

    def knows(self, curve: Curve, others: Sequence[Curve]) -> bool:
        """Whether others that it is fitted to have used all the links that it needs for a curve.

        No law knows the way between hosts from ranks of one.
        """
        if not others or (curve.hosts > 1 and all(one.hosts == 1 for one in others)):
            return False
        return all(any(used) or not needed for *used, needed in zip(*map(self.uses, (*others, curve)), strict=True))


@dataclass(frozen=True)
class LawFit:
    """A law with its parameters: a base for each call, then alpha and 1/B of each tier."""

    law: Law
    base_s: float
    tiers: tuple[tuple[float, float], ...]

    def times(self, sizes: Floats, ranks: int, hosts: int, ranks_per_host: int) -> Floats:
        """In seconds, at these sizes."""
        found = np.full(len(sizes), self.base_s)
        its = self.law.tiers(ranks, hosts, ranks_per_host)
        for (starts, moved), (alpha, per_byte) in zip(its, self.tiers, strict=True):
            found += starts * alpha + moved * per_byte * sizes
        return np.asarray(np.maximum(found, _LEAST_S), dtype=np.float64)

    def of(self, curve: Curve, sizes: Floats | None = None) -> Floats:
        """On the ranks of a curve."""
        return self.times(curve.sizes if sizes is None else sizes, curve.ranks, curve.hosts, curve.ranks_per_host)


def whole_steps(ranks: int) -> int:
    """Rounds in which everybody is reached when the reached double in each."""
    return math.ceil(math.log2(ranks))


def _halving(ranks: int) -> tuple[int, int, int]:
    """The power of two below, its logarithm, and the steps before and after by which the other ranks take part."""
    bits = ranks.bit_length() - 1
    return 1 << bits, bits, 0 if ranks == 1 << bits else 2


def _flat(name: str, tier: Callable[[int], Tier], *otherwise: Law) -> Law:
    return Law(name, lambda ranks, hosts, ranks_per_host: (tier(ranks),), otherwise)


def _recursive_doubling(n: int) -> Tier:
    _, bits, extra = _halving(n)
    return bits + extra, bits + extra


def _rabenseifner(n: int) -> Tier:
    below, bits, extra = _halving(n)
    return 2 * bits + extra, 2 * (below - 1) / below + extra


def _folded(n: int) -> Tier:
    """Among the power of two below; before and after it the other ranks hand in their part and get all, or reverse."""
    below, bits, extra = _halving(n)
    return bits + extra, (below - 1) / below + extra / 2 * (1 + 1 / n)


def _hierarchical(outer: Callable[[int], Tier], inner: Callable[[int], Tier]) -> Law:
    """Inside every host, then between hosts with the part of each rank; `outer` is of S / ranks per host."""

    def tiers(ranks: int, hosts: int, ranks_per_host: int) -> tuple[Tier, ...]:
        starts, moved = outer(hosts) if hosts > 1 else (0.0, 0.0)
        return inner(ranks_per_host), (starts, moved / ranks_per_host)

    return Law("hierarchical", tiers)


def _across_hosts(flat: Callable[[int], Tier]) -> Law:
    """One ring through all ranks of all hosts: every step waits for the links between hosts, where there are any."""

    def tiers(ranks: int, hosts: int, ranks_per_host: int) -> tuple[Tier, ...]:
        return ((0.0, 0.0), flat(ranks)) if hosts > 1 else (flat(ranks), (0.0, 0.0))

    return Law("ring across hosts", tiers)


def _ring_all_reduce(n: int) -> Tier:
    return 2 * (n - 1), 2 * (n - 1) / n


def _ring(n: int) -> Tier:
    return n - 1, (n - 1) / n


_BINOMIAL = _flat("binomial tree", lambda n: (whole_steps(n), whole_steps(n)))
_LINEAR = _flat("linear", lambda n: (n - 1, n - 1))
_RING, _RING_ALL_REDUCE, _FOLDED = _flat("ring", _ring), _flat("ring", _ring_all_reduce), _flat("folded", _folded)
_GATHERING = (
    _RING,
    _flat("recursive doubling", lambda n: (whole_steps(n), (n - 1) / n), _RING, _FOLDED),
    _hierarchical(_ring, _ring),
    _across_hosts(_ring),
)
_ROOTED = (
    _flat("binomial tree", lambda n: (whole_steps(n), (n - 1) / n)),
    _flat("linear", _ring),
)
_ONE_TO_ONE = (_flat("point to point", lambda n: (1, 1)),)

LAWS: Mapping[str, tuple[Law, ...]] = {
    "all_reduce": (
        _RING_ALL_REDUCE,
        _flat("tree", lambda n: (2 * math.log2(n), 2)),
        _flat("recursive doubling", _recursive_doubling, _RING_ALL_REDUCE),
        _flat("Rabenseifner", _rabenseifner, _RING_ALL_REDUCE),
        _flat("linear", lambda n: (2 * (n - 1), 2 * (n - 1))),
        _hierarchical(_ring_all_reduce, _ring_all_reduce),
        _across_hosts(_ring_all_reduce),
    ),
    "reduce": (
        _BINOMIAL,
        _flat(
            "Rabenseifner",
            lambda n: (2 * whole_steps(n), 2 * (n - 1) / n),
            _flat("folded", _rabenseifner),
        ),
        _flat("pipelined chain", lambda n: (n - 1, 1)),
        _LINEAR,
    ),
    "broadcast": (
        _BINOMIAL,
        _flat("scatter and all_gather", lambda n: (whole_steps(n) + n - 1, 2 * (n - 1) / n)),
        _flat("pipelined chain", lambda n: (n - 1, 1)),
        _LINEAR,
    ),
    "all_gather": _GATHERING,
    "reduce_scatter": (
        _RING,
        _flat("recursive halving", lambda n: (whole_steps(n), (n - 1) / n), _RING, _FOLDED),
        _hierarchical(_ring, _ring),
        _across_hosts(_ring),
    ),
    "all_to_all": (
        _flat("pairwise", _ring),
        _flat("Bruck", lambda n: (whole_steps(n), whole_steps(n) / 2)),
    ),
    "all_to_all_v": (_flat("pairwise", _ring),),
    "gather": _ROOTED,
    "scatter": _ROOTED,
    "scan": (_BINOMIAL, _LINEAR),
    "send_recv": _ONE_TO_ONE,
    "ping_pong": _ONE_TO_ONE,
}
"""By collective; a collective without a law is forecast on measured numbers of ranks alone."""

LEAST_FOR_BASE = 3
"""Numbers of ranks from which a base can be told from alpha."""


def fit_law(law: Law, curves: Sequence[Curve]) -> LawFit:
    """Fit a law to all points of curves on several numbers of ranks, in relative errors.

    At one size the times differ by their steps alone, and the fit is the plain one of a line.
    """
    tiers = [law.tiers(one.ranks, one.hosts, one.ranks_per_host) for one in curves]
    sizes = np.concatenate([one.sizes for one in curves])
    times = np.concatenate([one.times for one in curves])
    several = len({one.ranks for one in curves}) >= LEAST_FOR_BASE
    by_size = len(set(sizes.tolist())) > 1
    columns = [np.full(len(sizes), 1.0 if several else 0.0)]
    for place in range(len(tiers[0])):
        starts = np.repeat([its[place][0] for its in tiers], [len(one.sizes) for one in curves])
        moved = np.repeat([its[place][1] for its in tiers], [len(one.sizes) for one in curves])
        columns += [starts.astype(np.float64), moved * sizes if by_size else np.zeros(len(sizes))]
    if by_size:
        found = relative(columns, times)
    else:
        found = np.asarray(solve()(np.stack(columns, axis=1), times)[0], dtype=np.float64)
    return LawFit(law, float(found[0]), tuple(zip(found[1::2].tolist(), found[2::2].tolist(), strict=True)))


def crossover_bytes(ranks: int, alpha_s: float, bandwidth: float) -> float:
    """The size at which ring and tree all_reduce take equally long: n (n - 1 - log2 n) alpha B."""
    return ranks * (ranks - 1 - math.log2(ranks)) * alpha_s * bandwidth


def misfit(fitted: LawFit, curves: Sequence[Curve]) -> float:
    """Root mean square of the relative errors, in logarithms, over all points."""
    return root_mean_square(np.concatenate([np.log(fitted.of(one)) - np.log(one.times) for one in curves]))


def laws_of(collective: str, curves: Sequence[Curve]) -> tuple[Law, ...]:
    """Those that these curves can tell of: both kinds of links of a law with two tiers must have been used."""
    return tuple(
        law for law in LAWS.get(collective, ()) if all(any(used) for used in zip(*map(law.uses, curves), strict=True))
    )
