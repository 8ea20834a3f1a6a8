"""send_recv: a ring shift; every rank sends to the next one and receives from the one before."""

from collbench.collectives.base import Collective, Layout, Piece, Shape, vector_shape


class SendRecv(Collective):
    """S is the vector that each rank sends.

    Bus factor 1: each link carries S bytes in each direction that is used, so algbw is the one-way rate of a link while
    the rank also receives at the same rate.
    """

    name = "send_recv"
    has_in_place = False

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return vector_shape(requested_bytes, itemsize)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        before = (rank - 1) % ranks
        return Layout(send=count, recv=count, expected=(Piece(0, count, before, before),))

    def bus_factor(self, ranks: int, count: int) -> float:
        return 1.0
