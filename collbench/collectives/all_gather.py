"""all_gather: every rank gets all ranks' vectors, one after the other."""

from collbench.collectives.base import Collective, Layout, Piece, Shape, blocks_shape


class AllGather(Collective):
    """S is the whole gathered vector, n blocks of count elements.

    Bus factor: each rank must receive the (n - 1)/n of S that it does not have. Over links of bandwidth B that takes
    (n - 1)S / (nB); algbw is S / t, so B = algbw x (n - 1)/n.
    """

    name = "all_gather"

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return blocks_shape(requested_bytes, itemsize, ranks)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        blocks = tuple(Piece(source * count, count, source, source) for source in range(ranks))
        return Layout(send=count, recv=count * ranks, expected=blocks, in_place_send=rank * count)

    def bus_factor(self, ranks: int, count: int) -> float:
        return (ranks - 1) / ranks
