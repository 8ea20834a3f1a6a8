"""ping_pong: the first rank sends to the last, which answers; the others look on."""

from collbench.collectives.base import Collective, Layout, Piece, Shape, vector_shape

_INITIATOR, _PARTNER = 0, 1


class PingPong(Collective):
    """S is the message. The time is half the round trip, on the initiator.

    Bus factor 1: S bytes cross the link one way at a time.
    """

    name = "ping_pong"
    has_in_place = False
    least_ranks = 2
    timed_ranks = 1
    operations_per_iteration = 2

    def role(self, rank: int, ranks: int) -> int | None:
        return {0: _INITIATOR, ranks - 1: _PARTNER}.get(rank)

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return vector_shape(requested_bytes, itemsize)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        role = self.role(rank, ranks)
        if role is None:
            return Layout(send=0, recv=0, expected=())
        other = ranks - 1 if role == _INITIATOR else 0
        return Layout(send=count, recv=count, expected=(Piece(0, count, other, other),))

    def bus_factor(self, ranks: int, count: int) -> float:
        return 1.0
