"""scan: rank r gets the reduction over the vectors of ranks 0 to r."""

from collbench.collectives.base import Collective, Layout, Piece, Shape, vector_shape


class Scan(Collective):
    """S is the vector of one rank. A prefix has no bus bandwidth: the algorithms differ in what they move."""

    name = "scan"
    reduces = True

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return vector_shape(requested_bytes, itemsize)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        return Layout(send=count, recv=count, expected=(Piece(0, count, 0, rank),))

    def bus_factor(self, ranks: int, count: int) -> None:
        return None
