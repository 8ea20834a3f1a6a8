"""broadcast: every rank gets the root's vector."""

from collbench.collectives.base import Collective, Layout, Piece, Shape, vector_shape


class Broadcast(Collective):
    """S is the vector.

    Bus factor 1: all S bytes leave the root, and a pipelined chain over links of bandwidth B does it in S / B.
    """

    name = "broadcast"
    rooted = True

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return vector_shape(requested_bytes, itemsize)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        sent = count if rank == root else 0
        return Layout(send=sent, recv=count, expected=(Piece(0, count, root, root),))

    def bus_factor(self, ranks: int, count: int) -> float:
        return 1.0
