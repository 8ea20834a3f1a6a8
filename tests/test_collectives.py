"""What each collective must do, said once more and independently: with inputs as sets of (rank, index)."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.collectives import TABLE, Collective, Layout, collective_of, entry_named, names, parts
from collbench.errors import CannotRun, UsageError

Element = frozenset[tuple[int, int]]
"""An element as the set of contributions in it: (rank, index)."""

COUNT = 6


def one(rank: int, index: int) -> Element:
    return frozenset({(rank, index)})


def reduced(ranks: range, index: int) -> Element:
    return frozenset((rank, index) for rank in ranks)


def outputs(name: str, n: int, rank: int, root: int) -> list[Element | None]:
    """What MPI's and NCCL's documents say that a rank receives, out of place; None is "must not be written"."""
    whole = range(n)
    at_root = rank == root
    expected: dict[str, Callable[[], list[Element | None]]] = {
        "all_reduce": lambda: [reduced(whole, i) for i in range(COUNT)],
        "reduce": lambda: [reduced(whole, i) if at_root else None for i in range(COUNT)],
        "reduce_scatter": lambda: [reduced(whole, rank * COUNT + i) for i in range(COUNT)],
        "all_gather": lambda: [one(r, i) for r in whole for i in range(COUNT)],
        "gather": lambda: [one(r, i) for r in whole for i in range(COUNT)] if at_root else [],
        "scatter": lambda: [one(root, rank * COUNT + i) for i in range(COUNT)],
        "broadcast": lambda: [one(root, i) for i in range(COUNT)],
        "all_to_all": lambda: [one(r, rank * COUNT + i) for r in whole for i in range(COUNT)],
        "send_recv": lambda: [one((rank - 1) % n, i) for i in range(COUNT)],
        "ping_pong": lambda: [one(n - 1 - rank, i) for i in range(COUNT)] if rank in (0, n - 1) else [],
        "scan": lambda: [reduced(range(rank + 1), i) for i in range(COUNT)],
        "barrier": lambda: [],
    }
    return expected[name]()


def expected_by(layout: Layout) -> list[Element | None]:
    """The same from a layout's pieces, which must cover the receive region without gap or overlap."""
    received: list[Element | None] = []
    for piece in layout.expected:
        assert piece.offset == len(received)
        for i in range(piece.length):
            whole = range(piece.first, piece.last + 1)
            received.append(None if piece.untouched else reduced(whole, piece.index + i))
    assert len(received) == layout.recv
    return received


SIMPLE = [name for name in names() if name != "all_to_all_v"]


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_every_rank_receives_what_the_standard_says(name: str, n: int) -> None:
    collective = entry_named(name).collective
    if n < collective.least_ranks:
        return
    for root in range(n) if collective.rooted else (0,):
        for rank in range(n):
            layout = collective.layout(COUNT, n, rank, root=root)
            assert expected_by(layout) == outputs(name, n, rank, root)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_nobody_needs_what_nobody_sends(name: str, n: int) -> None:
    """Each rank that contributes has, and each contribution lies within, a send buffer."""
    collective = collective_of(name, "linear" if name == "all_to_all_v" else "", n)
    for root in range(n) if collective.rooted else (0,):
        layouts = [collective.layout(COUNT, n, rank, root=root) for rank in range(n)]
        for layout in layouts:
            for piece in layout.expected:
                if not piece.untouched and n >= collective.least_ranks:
                    for rank in range(piece.first, piece.last + 1):
                        assert 0 <= piece.index <= piece.index + piece.length <= layouts[rank].send


@pytest.mark.parametrize("name", [name for name in names() if TABLE[name].collective.has_in_place])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_in_place_regions_lie_within_one_buffer(name: str, n: int) -> None:
    collective = collective_of(name, "uniform" if name == "all_to_all_v" else "", n)
    for root in range(n) if collective.rooted else (0,):
        for rank in range(n):
            out = collective.layout(COUNT, n, rank, root=root)
            layout = collective.layout(COUNT, n, rank, root=root, in_place=True)
            assert layout.in_place_length == max(layout.send, layout.recv)
            assert layout.send == out.send
            if rank == root or not collective.rooted:
                assert expected_by(layout) == expected_by(out)
            else:  # what is received, or the own input that must stay
                assert None not in expected_by(layout)


@given(
    name=st.sampled_from(names()),
    size=st.integers(0, 1 << 40),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    n=st.integers(1, 600),
)
def test_sizes_are_rounded_down_to_what_is_sent(name: str, size: int, itemsize: int, n: int) -> None:
    n = min(n, 40) if name == "all_to_all_v" else n
    collective = collective_of(name, "uniform" if name == "all_to_all_v" else "", n)
    shape = collective.shape(size, itemsize, n)
    assert 0 <= shape.size_bytes <= size
    if collective.has_data:
        assert size - shape.size_bytes < itemsize * n + (itemsize * n if name == "all_to_all_v" else 0)
    else:
        assert shape == type(shape)(0, 0)


@pytest.mark.parametrize(
    ("name", "n", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 4, 1.5),
        ("all_reduce", 8, 1.75),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 4, 0.75),
        ("all_to_all", 8, 0.875),
        ("gather", 2, 0.5),
        ("scatter", 2, 0.5),
        ("broadcast", 5, 1.0),
        ("reduce", 5, 1.0),
        ("send_recv", 5, 1.0),
        ("ping_pong", 2, 1.0),
        ("barrier", 2, None),
        ("scan", 2, None),
        ("all_reduce", 1, 0.0),
    ],
)
def test_bus_factors(name: str, n: int, factor: float | None) -> None:
    assert entry_named(name).collective.bus_factor(n, COUNT) == factor


def test_all_to_all_v_by_hand() -> None:
    # Three ranks, weights by distance: each sends 0, 1/3 and 2/3 of 9 elements.
    collective = collective_of("all_to_all_v", "linear", 3)
    assert [collective.layout(9, 3, rank).sent for rank in range(3)] == [(0, 3, 6), (6, 0, 3), (3, 6, 0)]
    layout = collective.layout(9, 3, 1)
    assert layout.received == (3, 0, 6)
    # From rank 0 its elements 0..2 (after none for itself), from rank 2 its elements 3..8 (after 3 for rank 0).
    assert expected_by(layout) == [one(0, i) for i in range(3)] + [one(2, 3 + i) for i in range(6)]
    assert collective.bus_factor(3, 9) == 1.0
    assert collective.shape(36, 4, 3).size_bytes == 36
    assert not collective.has_in_place
    uniform = collective_of("all_to_all_v", "uniform", 4)
    assert uniform.layout(8, 4, 2).sent == (2, 2, 2, 2)
    assert uniform.bus_factor(4, 8) == 0.75
    assert uniform.has_in_place


def test_all_to_all_v_with_a_given_matrix() -> None:
    collective = collective_of("all_to_all_v", "1 3; 0 2", 2)
    assert [collective.layout(8, 2, rank).sent for rank in range(2)] == [(2, 6), (0, 4)]
    assert collective.bus_factor(2, 8) == 0.75  # rank 0 sends 6 of 8, rank 1 receives 6
    with pytest.raises(CannotRun, match="weights for 2 ranks, expected them for 3"):
        collective_of("all_to_all_v", "1 3; 0 2", 3)


@pytest.mark.parametrize(("count", "factor"), [(8, 0.25), (3, 0.0), (2, 0.0), (1, 0.0), (0, 0.0), (5, 0.25)])
def test_the_bus_factor_of_all_to_all_v_is_of_what_is_sent(count: int, factor: float) -> None:
    # Three quarters stay; of 2 elements 1 stays and none goes, of 5 the 3 stay and 1 goes.
    assert collective_of("all_to_all_v", "3 1; 1 3", 2).bus_factor(2, count) == factor


def test_signatures_with_roles() -> None:
    signature = TABLE["ping_pong"].mpi
    assert [part.function for part in parts(signature, 0)] == ["Send", "Recv"]
    assert [part.function for part in parts(signature, 1)] == ["Recv", "Send"]
    assert [part.function for part in parts(TABLE["all_reduce"].mpi, 0)] == ["Allreduce"]


def test_the_table_is_whole() -> None:
    for name, entry in TABLE.items():
        assert isinstance(entry.collective, Collective)
        assert entry.collective.name == name
        assert type(entry.collective).__module__ == f"collbench.collectives.{name}"
        assert type(entry.collective).__doc__
    with pytest.raises(UsageError, match=r"allreduce.*expected one of all_reduce"):
        entry_named("allreduce")
