"""peer_copy: from one device into another's memory, in one host: of two ranks, or of one that sees several."""

from collbench.collectives.base import WHOLE, Kernel, Layout, Piece


class PeerCopy(Kernel):
    """S is what each writing rank writes, by the driver's copy (`engine`) or by our kernel.

    one_way     The first rank writes to the last one.
    both_ways   The first and the last one write to each other.
    all         Every rank writes to the next one, all at once.

    One rank alone writes from its first visible device to its last one, and so on: `target` and `pairs` are then of
    devices. Each copy has a set of buffers of its own, with the one rank's layout.

    Bus factor 1: S bytes cross a link in each direction that is used, so busbw is the rate of one direction.
    """

    name = "peer_copy"
    ways = ("engine one_way", "engine both_ways", "engine all", "kernel one_way", "kernel both_ways", "kernel all")
    has_patterns = True

    def __init__(self, way: str = "") -> None:
        super().__init__(way)
        self.by, self.between = self.way.split()
        self.timed_ranks = 1 if self.between == "one_way" else WHOLE

    def target(self, rank: int, ranks: int) -> int | None:
        """The rank, or device, that this one writes to; None where it looks on."""
        if self.between == "all":
            return (rank + 1) % ranks
        if rank == 0:
            return ranks - 1
        return 0 if rank == ranks - 1 and self.between == "both_ways" else None

    def pairs(self, ranks: int) -> list[tuple[int, int]]:
        """Who writes to whom, the first rank's pair first."""
        targets = ((rank, self.target(rank, ranks)) for rank in range(ranks))
        return [(rank, target) for rank, target in targets if target is not None]

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        sources = [source for source in range(ranks) if self.target(source, ranks) == rank]
        expected = tuple(Piece(0, count, source, source) for source in sources)
        writes = self.target(rank, ranks) is not None
        return Layout(send=count if writes else 0, recv=count if sources else 0, expected=expected)

    def bus_factor(self, ranks: int, count: int) -> float:
        return 1.0
