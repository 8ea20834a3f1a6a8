"""host_copy: between host and device memory, every rank with its own device at once."""

from collbench.collectives.base import Kernel, Layout, Piece


class HostCopy(Kernel):
    """S is what goes in each direction: to the device (h2d), from it (d2h), or both ways at once, on two streams.

    Pinned memory is page-locked; pageable memory the driver stages or waits for, so both ways by one thread hardly
    overlap there.

    Bus factor 1: S bytes cross the link in each direction that is used, so busbw is the rate of one direction.
    """

    name = "host_copy"
    ways = ("h2d pinned", "d2h pinned", "both pinned", "h2d pageable", "d2h pageable", "both pageable")
    has_patterns = True

    @property
    def directions(self) -> tuple[str, ...]:
        """h2d, d2h, or both; each has buffers of its own."""
        direction = self.way.split()[0]
        return ("h2d", "d2h") if direction == "both" else (direction,)

    @property
    def pinned(self) -> bool:
        """Whether the host's memory is page-locked."""
        return self.way.endswith(" pinned")

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        return Layout(send=count, recv=count, expected=(Piece(0, count, rank, rank),))

    def bus_factor(self, ranks: int) -> float:
        return 1.0
