"""reduce: the root gets the reduction over all ranks' vectors."""

from collbench.collectives.base import Collective, Layout, Piece, Shape, vector_shape


class Reduce(Collective):
    """S is the vector of one rank.

    Bus factor 1: the S bytes of the result must at least arrive at the root, and a pipelined chain or tree over links
    of bandwidth B does it in S / B.
    """

    name = "reduce"
    reduces = True
    rooted = True

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return vector_shape(requested_bytes, itemsize)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        if rank == root:
            return Layout(send=count, recv=count, expected=(Piece(0, count, 0, ranks - 1),))
        # In place, another rank's one buffer is its input, and must stay; out of place its receive buffer must.
        kept = Piece(0, count, rank, rank) if in_place else Piece(0, count, untouched=True)
        return Layout(send=count, recv=count, expected=(kept,))

    def bus_factor(self, ranks: int, count: int) -> float:
        return 1.0
