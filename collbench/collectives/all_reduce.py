"""all_reduce: every rank gets the reduction over all ranks' vectors."""

from collbench.collectives.base import Collective, Layout, Piece, Shape, vector_shape


class AllReduce(Collective):
    """S is the vector of one rank.

    Bus factor: each of the S bytes must be reduced (n - 1 additions) and the result must reach n - 1 other ranks. Over
    n links of equal bandwidth B the least time is 2(n - 1)S / (nB); algbw is S / t, so B = algbw x 2(n - 1)/n.
    """

    name = "all_reduce"
    reduces = True

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return vector_shape(requested_bytes, itemsize)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        return Layout(send=count, recv=count, expected=(Piece(0, count, 0, ranks - 1),))

    def bus_factor(self, ranks: int, count: int) -> float:
        return 2 * (ranks - 1) / ranks
