"""rdma_write: the first rank's memory into the last one's by RDMA, written by a program of perftest's; no library."""

from collbench.collectives.base import Kernel, Layout, Piece


class RdmaWrite(Kernel):
    """S is one message; many of them are on their way at once.

    host     From and to host memory.
    device   From and to memory of CUDA devices (GPUDirect RDMA).

    Bus factor 1: S bytes cross the link one way.
    """

    name = "rdma_write"
    ways = ("host", "device")
    has_patterns = True
    least_ranks = 2
    timed_ranks = 1
    only_backend = "perftest"
    only_mode = "throughput"

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        send, recv = (count if rank == 0 else 0), (count if rank == ranks - 1 else 0)
        return Layout(send=send, recv=recv, expected=(Piece(0, count, 0, 0),) if recv else ())

    def bus_factor(self, ranks: int, count: int) -> float:
        return 1.0
