"""The fewest bytes that a collective must move between parts of its ranks (hosts, or ranks), whatever the algorithm.

They follow from the layouts: what a part's ranks must get and others have must come in, once for all of them; what
others must get and it has must go out. Partial sums travel as one vector. Where every part needs a sum that every part
adds to, each must send and receive 2(p - 1)/p of it (p parts), as for all_reduce (Patarasuk and Yuan, 2009).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from collbench.collectives import Piece, collective_of

_MOST_PIECES = 1 << 20
"""A million pieces are a second's work."""


@dataclass(frozen=True)
class Crossing:
    """Least bytes of one operation that each part sends to others and receives from them, by part."""

    sent: tuple[float, ...]
    received: tuple[float, ...]

    @property
    def total(self) -> float:
        """What must cross between parts altogether."""
        return max(sum(self.sent), sum(self.received))

    @property
    def busiest(self) -> tuple[float, ...]:
        """The larger direction of each part: links carry both at once."""
        return tuple(map(max, self.sent, self.received))


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
    return Crossing(*(tuple(scale * itemsize * value for value in direction) for direction in found))


@lru_cache(maxsize=64)
def _units(
    name: str, pattern: str, count: int, parts: tuple[int, ...], root: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Elements that each part must send and receive, for `count`."""
    ranks, number = len(parts), max(parts) + 1
    collective = collective_of(name, pattern, ranks)
    needed: list[set[Piece]] = [set() for _ in range(number)]
    for rank in range(ranks):
        pieces = collective.layout(count, ranks, rank, root=root).expected
        needed[parts[rank]].update(replace(piece, offset=0) for piece in pieces if piece.length and not piece.untouched)
    everywhere = {
        piece.index
        for piece in set.intersection(*needed)
        if piece.first != piece.last and len(_parts_of(piece, parts)) == number
    }
    sent, received = [], []
    for own in range(number):
        others = set().union(*(its for part, its in enumerate(needed) if part != own))
        sent.append(_elements({piece for piece in others if own in _parts_of(piece, parts)}, everywhere, number))
        coming = {piece for piece in needed[own] if _parts_of(piece, parts) != {own}}
        received.append(_elements(coming, everywhere, number))
    return tuple(sent), tuple(received)


def _parts_of(piece: Piece, parts: tuple[int, ...]) -> set[int]:
    """The parts whose ranks a piece is made of."""
    return set(parts[piece.first : piece.last + 1])


def _elements(pieces: set[Piece], everywhere: set[int], number: int) -> float:
    """Elements of all pieces; sums of the same elements are one vector."""
    lengths: dict[tuple[int, int], int] = {}
    for piece in pieces:
        key = (-1 if piece.first != piece.last else piece.first, piece.index)
        lengths[key] = max(piece.length, lengths.get(key, 0))
    around = 2 * (number - 1) / number
    return sum(length * (around if key[0] < 0 and key[1] in everywhere else 1) for key, length in lengths.items())
