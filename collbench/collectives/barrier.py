"""barrier: no rank leaves before the last one has entered."""

from collbench.collectives.base import Collective, Layout, Shape


class Barrier(Collective):
    """A barrier moves no data: S is 0, and there is no bandwidth."""

    name = "barrier"
    has_in_place = False
    has_data = False

    def shape(self, requested_bytes: int, itemsize: int, ranks: int) -> Shape:
        return Shape(0, 0)

    def layout(self, count: int, ranks: int, rank: int, *, root: int = 0, in_place: bool = False) -> Layout:
        return Layout(send=0, recv=0, expected=())

    def bus_factor(self, ranks: int, count: int) -> None:
        return None
