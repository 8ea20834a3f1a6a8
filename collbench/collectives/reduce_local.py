"""reduce_local: two inputs to one output on one device, every rank on its own at once."""

from collbench.collectives.base import Kernel, Layout, Piece


class ReduceLocal(Kernel):
    """S is one input, as in MPI_Reduce_local; both inputs lie in the send buffer, one after the other.

    Bus factor 3: 2S bytes are read and S bytes are written, so busbw is the memory's traffic.
    """

    name = "reduce_local"
    reduces = True

    def contributors(self, ranks: int) -> int:
        return 2

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        return Layout(
            send=2 * count,
            recv=count,
            expected=(Piece(0, count, 0, 1),),
            inputs=(Piece(0, count, 0, 0), Piece(count, count, 1, 1)),
        )

    def bus_factor(self, ranks: int) -> float:
        return 3.0
