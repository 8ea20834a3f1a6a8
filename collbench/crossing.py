"""The fewest bytes that a collective must move between parts of its ranks (hosts, or ranks), whatever the algorithm.

They follow from the layouts: what a part's ranks must get and others have must come in, once for all of them; what
others must get and it has must go out. Partial sums travel as one vector. Of a sum of S bytes that every part adds to
and every part needs (all_reduce), each must send S and receive S, and 2(p - 1)S cross altogether, p parts (Patarasuk
and Yuan, 2009).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from collbench.collectives import Piece, collective_of

_MOST_PIECES = 1 << 20
"""A million pieces are a second's work."""


@dataclass(frozen=True)
class Crossing:
    """Least bytes of one operation that each part sends to others and receives from them, by part, and all together."""

    sent: tuple[float, ...]
    received: tuple[float, ...]
    total: float

    def least_time_s(self, rates: Sequence[float]) -> tuple[float, int]:
        """Seconds over links of these bytes/s, one for each part, both ways at once; and the fullest link's part.

        No part can be faster than its own link, nor all of them faster than all links together.
        """
        each = [max(one) / rate for *one, rate in zip(self.sent, self.received, rates, strict=True)]
        fullest = max(range(len(each)), key=each.__getitem__)
        return max(each[fullest], self.total / sum(rates)), fullest


def crossing(
    name: str, pattern: str, count: int, itemsize: int, parts: Sequence[object], root: int = 0
) -> Crossing | None:
    """Return what one operation on ranks in these parts must move; None where there are too many ranks to tell."""
    numbers = {part: number for number, part in enumerate(dict.fromkeys(parts))}
    ranks = len(parts)
    collective = collective_of(name, pattern, ranks)
    if ranks * ranks > _MOST_PIECES or collective.only_backend == "device":
        return None
    scale = count
    unit = 1
    if collective.has_patterns:  # rounding to whole elements is not linear
        scale, unit = 1, count
    found = _units(name, pattern, unit, tuple(numbers[part] for part in parts), root)
    sent, received, total = found
    size = scale * itemsize
    return Crossing(tuple(size * value for value in sent), tuple(size * value for value in received), size * total)


@lru_cache(maxsize=64)
def _units(
    name: str, pattern: str, count: int, parts: tuple[int, ...], root: int
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Elements that each part must send and receive, and that must cross altogether, for `count`."""
    ranks, number = len(parts), max(parts) + 1
    collective = collective_of(name, pattern, ranks)
    needed: list[set[Piece]] = [set() for _ in range(number)]
    for rank in range(ranks):
        pieces = collective.layout(count, ranks, rank, root=root).expected
        needed[parts[rank]].update(replace(piece, offset=0) for piece in pieces if piece.length and not piece.untouched)
    everywhere = sum(
        piece.length
        for piece in set.intersection(*needed)
        if piece.first != piece.last and len(_parts_of(piece, parts)) == number
    )
    sent, received = [], []
    for own in range(number):
        others = set().union(*(its for part, its in enumerate(needed) if part != own))
        sent.append(_elements({piece for piece in others if own in _parts_of(piece, parts)}))
        coming = {piece for piece in needed[own] if _parts_of(piece, parts) != {own}}
        received.append(_elements(coming))
    # Each part's own least is one vector each way; that all of them have it takes 2(p - 1).
    more = max(0, number - 2) * everywhere
    return tuple(sent), tuple(received), max(sum(sent), sum(received)) + more


def _parts_of(piece: Piece, parts: tuple[int, ...]) -> set[int]:
    """The parts whose ranks a piece is made of."""
    return set(parts[piece.first : piece.last + 1])


def _elements(pieces: set[Piece]) -> int:
    """Elements of all pieces; sums of the same elements are one vector."""
    lengths: dict[tuple[int, int], int] = {}
    for piece in pieces:
        key = (-1 if piece.first != piece.last else piece.first, piece.index)
        lengths[key] = max(piece.length, lengths.get(key, 0))
    return sum(lengths.values())
