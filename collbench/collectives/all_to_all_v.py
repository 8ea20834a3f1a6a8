"""all_to_all_v: each rank gets from every rank what is meant for it, of a different length from each."""

from dataclasses import dataclass
from itertools import accumulate

from collbench.collectives.base import Collective, Layout, Piece, Shape, vector_shape
from collbench.errors import CannotRun


@dataclass(frozen=True)
class AllToAllV(Collective):
    """S is the largest send buffer of a rank.

    `weights[i][j]` is the share of what rank i sends to rank j, relative to the largest row's sum. Pattern `uniform`
    has equal blocks, `linear` has blocks in proportion to the distance (j - i) mod n, so that a rank sends nothing to
    itself; any other text is a matrix of weights, "0 1; 2 0".

    Bus factor: busbw is the largest number of bytes that any rank sends to or receives from others, over time; the
    factor is that number over S. It counts the whole elements that are sent, and not the weights.
    """

    weights: tuple[tuple[float, ...], ...] = ()

    name = "all_to_all_v"
    has_patterns = True

    def __post_init__(self) -> None:
        # In place MPI uses the same counts for both directions, so each pair must exchange equal lengths.
        symmetric = self.weights == tuple(zip(*self.weights, strict=True))
        object.__setattr__(self, "has_in_place", symmetric)

    def spread(self, pattern: str, ranks: int) -> "AllToAllV":
        if pattern == "uniform":
            return AllToAllV(((1.0,) * ranks,) * ranks)
        if pattern == "linear":
            distances = [[float((j - i) % ranks) for j in range(ranks)] for i in range(ranks)]
            return AllToAllV(tuple(map(tuple, distances)) if ranks > 1 else ((1.0,),))
        rows = tuple(tuple(float(cell) for cell in row.split()) for row in pattern.split(";"))
        if len(rows) != ranks:
            raise CannotRun(f"matrix: got weights for {len(rows)} ranks, expected them for {ranks}")
        return AllToAllV(rows)

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        largest = vector_shape(requested_bytes, itemsize).count
        sent = max(sum(row) for row in self._elements(largest))
        return Shape(largest, sent * itemsize)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        elements = self._elements(count)
        received = [row[rank] for row in elements]
        places = [0, *accumulate(received)]
        pieces = tuple(
            Piece(places[source], received[source], source, source, index=sum(elements[source][:rank]))
            for source in range(ranks)
        )
        return Layout(
            send=sum(elements[rank]),
            recv=sum(received),
            expected=pieces,
            sent=tuple(elements[rank]),
            received=tuple(received),
        )

    def bus_factor(self, ranks: int, count: int) -> float:
        elements = self._elements(count)
        largest = max(sum(row) for row in elements)
        sent = max(sum(row) - row[i] for i, row in enumerate(elements))
        received = max(sum(row[j] for row in elements) - elements[j][j] for j in range(ranks))
        return max(sent, received) / largest if largest else 0.0

    def _elements(self, largest: int) -> list[list[int]]:
        """Elements from each rank to each: whole ones, and no more than `largest` in any row."""
        total = max(sum(row) for row in self.weights)
        return [[int(largest * weight / total) if total else 0 for weight in row] for row in self.weights]
