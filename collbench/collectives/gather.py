"""gather: the root gets all ranks' vectors, one after the other."""

from collbench.collectives.base import Collective, Layout, Piece, Shape, blocks_shape


class Gather(Collective):
    """S is the whole gathered vector, n blocks of count elements.

    Bus factor: the root must receive the (n - 1)/n of S that it does not have, so B = algbw x (n - 1)/n at the root.
    """

    name = "gather"
    rooted = True

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return blocks_shape(requested_bytes, itemsize, ranks)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        if rank == root:
            blocks = tuple(Piece(source * count, count, source, source) for source in range(ranks))
            return Layout(send=count, recv=count * ranks, expected=blocks, in_place_send=root * count)
        if in_place:  # the one buffer is the input, and must stay
            return Layout(send=count, recv=count, expected=(Piece(0, count, rank, rank),))
        return Layout(send=count, recv=0, expected=())

    def bus_factor(self, ranks: int, count: int) -> float:
        return (ranks - 1) / ranks
