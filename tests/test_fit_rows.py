"""Rows become curves: what belongs together, and what is left out."""

import numpy as np
import pytest

from collbench.readers.fit_rows import SHARED, families
from compared_rows import row


def test_launches_and_sizes_make_a_table() -> None:
    rows = [row(launch, size, (launch + 1) * size * 1e-9) for launch in range(3) for size in (8, 64)]
    ((one,),) = [its.curves for its in families(rows)]
    assert one.sizes.tolist() == [8, 64]
    assert one.log_times.shape == (3, 2)
    assert one.times.tolist() == pytest.approx([6 ** (1 / 3) * 8e-9, 6 ** (1 / 3) * 64e-9])


def test_what_has_no_time_or_size_is_left_out() -> None:
    rows = [
        row(0, 8, 1e-6),
        row(0, 16, None),
        row(0, 32, 1e-6, status="wrong"),
        row(0, 0, 1e-6),
        row(0, 64, 1e-6, ranks=None),
        row(0, 128, -1e-6),
        row(0, -8, 1e-6),
    ]
    ((one,),) = [its.curves for its in families(rows)]
    assert one.sizes.tolist() == [8]


def test_small_sizes_whose_transport_cannot_be_told_go_with_the_others() -> None:
    rows = [row(0, 8, 1e-6, transport="undecided"), row(0, 64, 1e-6), row(0, 512, 1e-6, transport="shm")]
    (one,) = families(rows)
    assert one.value("transport") == "shm"
    assert one.curves[0].sizes.tolist() == [8, 64, 512]


def test_replays_are_no_curve() -> None:
    assert families([row(0, 8, 1e-6, collective="replay"), row(1, 8, 1e-6, collective="replay")]) == ()


@pytest.mark.parametrize(
    "column",
    ["collective", "variant", "backend", "operation", "dtype", "placement", "caller", "mode", "sync", "topology"],
)
def test_settings_are_told_apart(column: str) -> None:
    assert len(families([row(0, 8, 1e-6), row(0, 8, 1e-6, **{column: "other"})])) == 2


def test_numbers_of_ranks_and_hosts_are_curves_of_one_family() -> None:
    rows = [
        row(0, 8, 1e-6, topology="first:doubling", group=f"first:{ranks}", ranks=ranks, hosts=hosts)
        for ranks, hosts in ((2, 1), (4, 1), (4, 2))
    ]
    (one,) = families([*rows, row(0, 16, 1e-6, topology="first:3", group="first:3", ranks=3)])
    assert [(its.ranks, its.hosts, its.ranks_per_host) for its in one.curves] == [
        (2, 1, 2),
        (3, 1, 3),
        (4, 1, 4),
        (4, 2, 2),
    ]
    assert one.value("topology") == "first"


def test_all_ranks_are_one_family_with_the_first_of_them() -> None:
    groups = [("first:2", 2), ("first:3", 3), ("world", 4)]
    rows = [row(0, 8, 1e-6, topology=name, group=name, ranks=ranks) for name, ranks in groups]
    (one,) = families(rows)
    assert ([its.ranks for its in one.curves], one.value("topology")) == ([2, 3, 4], "first")
    (alone,) = families(rows[2:])
    assert alone.value("topology") == "world"
    assert len(families([*rows, row(0, 8, 1e-6, topology="host", group="a")])) == 2


def test_groups_at_several_places_are_families_of_their_own() -> None:
    rows = [row(0, 8, 1e-6, topology="host", group=name) for name in ("a", "b")]
    assert [one.value("group") for one in families(rows)] == ["a", "b"]


def test_a_transport_that_is_not_known_goes_with_the_only_one() -> None:
    rows = [row(0, 8, 1e-6, transport=None), row(0, 64, 1e-6, transport="tcp:eth0")]
    (one,) = families(rows)
    assert (one.value("transport"), len(one.curves[0].sizes)) == ("tcp:eth0", 2)
    three = families([*rows, row(0, 512, 1e-6, transport="rdma:mlx5_0")])
    assert [one.value("transport") for one in three] == ["", "tcp:eth0", "rdma:mlx5_0"]


def test_a_size_that_a_launch_lacks_is_nan() -> None:
    (one,) = families([row(0, 8, 1e-6), row(1, 8, 1e-6), row(1, 64, 1e-6)])
    assert np.isnan(one.curves[0].log_times).tolist() == [[False, True], [False, False]]


def test_sizes_that_round_to_one_are_one() -> None:
    rows = [row(0, 8, 1e-6, requested_bytes=8), row(0, 8, 4e-6, requested_bytes=9)]
    (one,) = families(rows)
    assert one.curves[0].times.tolist() == pytest.approx([2e-6])


def test_what_the_rows_are_marked_with_is_kept() -> None:
    rows = [row(0, 8, 1e-6, notes="noisy timer_floor"), row(0, 64, 1e-6, notes="oversubscribed", binding="0-1")]
    (one,) = families(rows)
    assert one.curves[0].oversubscribed
    assert one.curves[0].notes == ("1 of 2 rows noisy", "1 of 2 rows timer_floor")


def test_how_much_memory_the_buffers_are() -> None:
    more = {"send_bytes": 1000, "recv_bytes": 500, "buffers": 4, "ranks_per_host": 2}
    (one,) = families([row(0, 1000, 1e-6, **more), row(0, 10, 1e-6, **more | {"send_bytes": 10, "recv_bytes": 10})])
    assert one.curves[0].touched_bytes == 12_000
    (unknown,) = families([row(0, 1000, 1e-6)])
    assert unknown.curves[0].touched_bytes is None


@pytest.mark.parametrize(
    ("binding", "cores"),
    [("0-1", ["", SHARED]), ("0;1", ["", SHARED]), ("0-3", [""]), (None, [SHARED]), ("0;...", [SHARED])],
)
def test_ranks_that_share_cores_are_a_family_of_their_own(binding: str | None, cores: list[str]) -> None:
    rows = [
        row(
            0,
            8,
            1e-6,
            ranks=ranks,
            group=f"first:{ranks}",
            topology=f"first:{ranks}",
            ranks_per_host=ranks,
            oversubscribed=True,
            binding=binding,
        )
        for ranks in (2, 3, 4)
    ]
    assert [one.value("cores") for one in families(rows)] == cores
