"""copy: memory to memory on one device, every rank on its own at once."""

from collbench.collectives.base import Kernel, Layout, Piece


class Copy(Kernel):
    """S is what is copied: by our kernel, or as the driver does it (`engine`; on one device it may take a kernel too).

    Bus factor 2: S bytes are read and S bytes are written, so busbw is the memory's traffic.
    """

    name = "copy"
    ways = ("kernel", "engine")
    has_patterns = True

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        return Layout(send=count, recv=count, expected=(Piece(0, count, rank, rank),))

    def bus_factor(self, ranks: int) -> float:
        return 2.0
