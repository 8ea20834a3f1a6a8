"""The least that must cross between hosts, by hand for small worlds, and against what any algorithm needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.collectives import names
from collbench.crossing import crossing

TWO, THREE, FOUR = ("a", "b"), ("a", "b", "c"), ("a", "a", "b", "b")


@pytest.mark.parametrize(
    ("name", "parts", "sent", "received"),
    [
        ("all_reduce", TWO, (96, 96), (96, 96)),
        ("all_reduce", THREE, (96, 96, 96), (96, 96, 96)),
        ("all_reduce", FOUR, (96, 96), (96, 96)),
        ("reduce", THREE, (0, 96, 96), (96, 0, 0)),
        ("reduce_scatter", THREE, (192, 192, 192), (96, 96, 96)),
        ("reduce_scatter", FOUR, (192, 192), (192, 192)),
        ("all_gather", THREE, (96, 96, 96), (192, 192, 192)),
        ("gather", FOUR, (0, 192), (192, 0)),
        ("scatter", THREE, (192, 0, 0), (0, 96, 96)),
        ("broadcast", THREE, (96, 0, 0), (0, 96, 96)),
        ("all_to_all", FOUR, (384, 384), (384, 384)),
        ("send_recv", FOUR, (96, 96), (96, 96)),
        ("ping_pong", THREE, (96, 0, 96), (96, 0, 96)),
        ("scan", THREE, (96, 96, 0), (0, 96, 96)),
        ("barrier", TWO, (0, 0), (0, 0)),
    ],
)
def test_by_hand(name: str, parts: tuple[str, ...], sent: tuple[float, ...], received: tuple[float, ...]) -> None:
    found = crossing(name, "", 12, 8, parts)
    assert found is not None
    assert found.sent == pytest.approx(sent)
    assert found.received == pytest.approx(received)


def test_a_root_elsewhere() -> None:
    found = crossing("broadcast", "", 12, 8, THREE, root=2)
    assert found is not None
    assert found.sent == (0, 0, 96)


def test_linear_all_to_all_v_counts_whole_elements() -> None:
    # Of 12 elements a rank sends 2, 4, 6 to the ranks 1, 2, 3 further on: from ranks 0, 1 to 2, 3 go 4 + 6 and 2 + 4.
    found = crossing("all_to_all_v", "linear", 12, 1, FOUR)
    assert found is not None
    assert found.sent == (16, 16)
    assert found.total == 32


@pytest.mark.parametrize("name", names())
def test_one_part_needs_nothing(name: str) -> None:
    found = crossing(name, "uniform" if name == "all_to_all_v" else "", 12, 8, ("a", "a", "a"))
    assert found is not None
    assert found.total == 0


@given(st.sampled_from(names()), st.lists(st.integers(0, 3), min_size=2, max_size=6), st.integers(0, 1000))
def test_what_comes_in_went_out_somewhere(name: str, parts: list[int], count: int) -> None:
    """Each part's bytes fit what the others send, and the busiest direction is never above the whole."""
    found = crossing(name, "uniform" if name == "all_to_all_v" else "", count, 4, parts)
    assert found is not None
    assert len(found.sent) == len(found.received) == len(set(parts))
    assert min(*found.sent, *found.received, 0) == 0
    assert max(*found.sent, *found.received) <= found.total
    assert (sum(found.sent) == 0) == (sum(found.received) == 0)


def test_too_many_ranks_are_not_guessed_at() -> None:
    assert crossing("all_gather", "", 1, 4, range(2000)) is None


def test_a_message_written_by_rdma_goes_one_way_and_kernels_of_a_device_go_nowhere() -> None:
    found = crossing("rdma_write", "host", 1000, 1, ("a", "b"))
    assert found is not None
    assert (found.sent, found.received, found.total) == ((1000, 0), (0, 1000), 1000)
    assert crossing("copy", "kernel", 1000, 1, ("a", "b")) is None


def test_an_all_reduce_takes_as_long_as_its_ring_and_as_its_slowest_link() -> None:
    found = crossing("all_reduce", "", 12, 8, ("a", "b", "c", "d"))
    assert found is not None
    assert found.total == 2 * 3 * 96
    # Four equal links: 2(p - 1)/p of the vector over each, which is what a ring does.
    assert found.least_time_s([1.0] * 4)[0] == pytest.approx(1.5 * 96)
    assert found.least_time_s([1.0] * 4)[1] == 0
    # One slow link: its host can be a leaf of a tree, which sends its vector once and receives the sum once.
    assert found.least_time_s([1.0, 1.0, 0.1, 1.0])[0] == pytest.approx(960)
    assert found.least_time_s([1.0, 1.0, 0.1, 1.0])[1] == 2


def test_a_gather_is_as_slow_as_its_roots_link() -> None:
    found = crossing("gather", "", 12, 8, THREE, root=1)
    assert found is not None
    assert found.least_time_s([1.0, 2.0, 1.0])[0] == pytest.approx(96)
    assert found.least_time_s([1.0, 2.0, 1.0])[1] == 0
    assert found.least_time_s([1.0, 1.0, 1.0])[0] == pytest.approx(192)
    assert found.least_time_s([1.0, 1.0, 1.0])[1] == 1
