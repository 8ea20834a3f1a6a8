"""reduce_scatter: each rank gets its block of the reduction over all ranks' vectors."""

from collbench.collectives.base import Collective, Layout, Piece, Shape, blocks_shape


class ReduceScatter(Collective):
    """S is the whole input vector of a rank, n blocks of count elements.

    Bus factor: each rank must send the (n - 1)/n of S that belongs to others (reduced on the way). Over links of
    bandwidth B that takes (n - 1)S / (nB); algbw is S / t, so B = algbw x (n - 1)/n.
    """

    name = "reduce_scatter"
    reduces = True

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return blocks_shape(requested_bytes, itemsize, ranks)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        block = Piece(0, count, 0, ranks - 1, index=rank * count)
        return Layout(send=count * ranks, recv=count, expected=(block,), in_place_recv=rank * count)

    def bus_factor(self, ranks: int, count: int) -> float:
        return (ranks - 1) / ranks
