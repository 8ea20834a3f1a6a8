"""scatter: each rank gets its block of the root's vector."""

from collbench.collectives.base import Collective, Layout, Piece, Shape, blocks_shape


class Scatter(Collective):
    """S is the root's whole vector, n blocks of count elements.

    Bus factor: the root must send the (n - 1)/n of S that is not its own, so B = algbw x (n - 1)/n at the root.
    """

    name = "scatter"
    rooted = True

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return blocks_shape(requested_bytes, itemsize, ranks)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        block = Piece(0, count, root, root, index=rank * count)
        if rank == root:
            return Layout(
                send=count * ranks, recv=count, expected=(block,), send_stays=True, in_place_recv=root * count
            )
        return Layout(send=0, recv=count, expected=(block,))

    def bus_factor(self, ranks: int, count: int) -> float:
        return (ranks - 1) / ranks
