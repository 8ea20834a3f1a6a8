"""all_to_all: each rank gets from every rank the block that is meant for it."""

from collbench.collectives.base import Collective, Layout, Piece, Shape, blocks_shape


class AllToAll(Collective):
    """S is the whole send buffer of a rank, n blocks of count elements.

    Bus factor: of S a rank keeps its own block and sends (n - 1)/n, so B = algbw x (n - 1)/n.
    """

    name = "all_to_all"

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return blocks_shape(requested_bytes, itemsize, ranks)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        blocks = tuple(Piece(source * count, count, source, source, index=rank * count) for source in range(ranks))
        return Layout(send=count * ranks, recv=count * ranks, expected=blocks)

    def bus_factor(self, ranks: int, count: int) -> float:
        return (ranks - 1) / ranks
