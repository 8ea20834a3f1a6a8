"""Who is slow, from rows of pairs that were made up: a host, a path, or nobody once the others are silent."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from collbench.errors import UsageError
from collbench.readers import pair_tables, pairs
from collbench.record import HEADER, Record, to_row
from collbench.results import read

MIB = 1 << 20


def row(name: str, gigabytes: float | None, hosts: str, *, size: int = 32 * MIB, launch: int = 0) -> Record:
    return Record(
        launch=launch, case_id=f"c{size}", status="ok", backend="mpi", collective="send_recv", dtype="float32",
        mode="latency", topology="pairs", group=name, members=hosts, requested_bytes=size, size_bytes=size,
        busbw_GBps=gigabytes, time_p50_s=size / gigabytes / 1e9 if gigabytes else 1e-6,
    )  # fmt: skip


def rows(rates: dict[tuple[int, int], float], hosts: tuple[str, ...], **again: float) -> list[Record]:
    """One row for each pair: its rate in GB/s, 1 where none is given; `again` by a_b."""
    found = []
    for a, b in combinations(range(len(hosts)), 2):
        found.append(row(f"{a}-{b}", rates.get((a, b), 1.0), f"{hosts[a]};{hosts[b]}"))
    for name, rate in again.items():
        a, b = map(int, name.removeprefix("p").split("_"))
        found.append(row(f"again:{a}-{b}", rate, f"{hosts[a]};{hosts[b]}"))
    return found


THREE = ("cb1", "cb2", "cb3")
SLOW_THIRD = {(0, 2): 0.5, (1, 2): 0.5}


def only(records: list[Record]) -> pairs.Pairs:
    (found,) = pairs.largest(pairs.pairs_of(records), records)
    return found


def test_a_host_at_half_rate_is_measured_again_and_named() -> None:
    records = rows(SLOW_THIRD, THREE)
    assert pairs.to_measure_again(only(records)) == ((0, 2),)
    assert pairs.findings(only(records)) == [
        "send_recv 32 MiB by mpi, latency: host cb3 looks slow: at best 0.5 GB/s; not measured again"
    ]
    assert pairs.findings(only(rows(SLOW_THIRD, THREE, p0_2=0.5))) == [
        "send_recv 32 MiB by mpi, latency: host cb3 is slow: 0.5 GB/s with cb1, which is known to be good, "
        "where cb1 and cb2 reach 1 GB/s: look at cb3's own link"
    ]


FOUR = (*THREE, "cb4")
SLOW_FOURTH = {(0, 3): 0.5, (1, 3): 0.5, (2, 3): 0.5}


def test_a_host_that_recovers_alone_is_not_to_blame() -> None:
    found = only(rows(SLOW_FOURTH, FOUR))
    assert pairs.to_measure_again(found) == ((0, 1), (0, 3))
    (said,) = pairs.findings(only(rows(SLOW_FOURTH, FOUR, p0_1=1.0, p0_3=0.98)))
    assert "host cb4 is slow only while other pairs communicate: measured again it has 0.98 GB/s with cb1" in said


def test_where_all_are_faster_alone_a_slow_host_stays_slow() -> None:
    (said,) = pairs.findings(only(rows(SLOW_FOURTH, FOUR, p0_1=2.0, p0_3=1.0)))
    assert "host cb4 is slow: 1 GB/s with cb1, which is known to be good, where cb1 and cb2 reach 2 GB/s" in said


def test_three_ranks_have_nobody_else_to_blame() -> None:
    (said,) = pairs.findings(only(rows(SLOW_THIRD, THREE, p0_2=0.98)))
    assert "host cb3 was slow for a time only: measured again it has 0.98 GB/s with cb1" in said


def test_a_path_is_not_a_host() -> None:
    assert pairs.to_measure_again(only(rows({(0, 1): 0.4}, FOUR))) == ((0, 2), (0, 1))
    (said,) = pairs.findings(only(rows({(0, 1): 0.4}, FOUR, p0_2=1.0, p0_1=0.4)))
    assert "the path between cb1 and cb2 is slow: 0.4 GB/s, where cb1 and cb3 reach 1 GB/s" in said
    (said,) = pairs.findings(only(rows({(0, 1): 0.4}, FOUR, p0_2=1.0, p0_1=1.0)))
    assert "the path between cb1 and cb2 is slow only while other pairs communicate" in said


def test_nobody_is_slow() -> None:
    found = only(rows({(0, 1): 0.9, (1, 2): 1.05}, THREE))
    assert pairs.to_measure_again(found) == ()
    assert pairs.findings(found) == []


def test_two_hosts_cannot_tell() -> None:
    found = only(rows({}, ("cb1", "cb2")))
    assert pairs.to_measure_again(found) == ()
    assert "cannot tell" in pairs.findings(found)[0]


def test_ranks_of_one_host_are_judged_themselves() -> None:
    records = rows({(0, 3): 0.2, (1, 3): 0.2, (2, 3): 0.2}, ("a",) * 4, p0_3=0.2)
    records = [replace(record, members="a") for record in records]
    found = only(records)
    assert found.places == ("rank 0", "rank 1", "rank 2", "rank 3")
    assert "rank 3 is slow: 0.2 GB/s with rank 0" in pairs.findings(found)[0]


def test_hosts_with_several_ranks_are_judged_by_their_medians() -> None:
    hosts = ("a", "a", "b", "b", "c", "c")
    found = only(rows({(0, 1): 9.0, (2, 3): 9.0, (4, 5): 9.0, (0, 2): 0.1}, hosts))
    by_place = found.by_place(found.values)
    assert by_place["a", "b"] == pytest.approx(1e9)
    assert by_place["a", "a"] == pytest.approx(9e9)
    assert pairs.findings(found) == []  # one rank pair of four is no host's fault, nor a rank's


def test_a_slow_rank_is_not_its_hosts_fault() -> None:
    hosts = ("a", "a", "b", "b", "c", "c")
    slow = {pair: 0.3 for pair in combinations(range(6), 2) if 3 in pair and pair != (2, 3)}
    (said,) = pairs.findings(only(rows(slow, hosts)))
    assert "rank 3 on b is slow: at best 0.3 GB/s, where another rank of that host reaches 1 GB/s" in said


def test_launches_are_medians() -> None:
    records = [row("0-1", rate, "a;b", launch=launch) for launch, rate in enumerate((1.0, 3.0, 2.0))]
    assert only(records).values[0, 1] == pytest.approx(2e9)


def test_the_largest_size_decides_and_small_ones_are_times() -> None:
    records = [*rows({}, THREE), *(row(f"{a}-{b}", None, f"{a};{b}", size=8) for a, b in combinations(range(3), 2))]
    small, large = sorted(pairs.pairs_of(records), key=lambda one: one.by_rate)
    assert (small.by_rate, large.by_rate) == (False, True)
    assert pairs.largest((small, large), records) == (large,)


def test_the_table_marks_outliers() -> None:
    text = "\n".join(pair_tables.lines(rows(SLOW_THIRD, THREE)))
    assert "0.5" in text
    lines = [line.split() for line in text.splitlines() if line.strip().startswith("cb")]
    assert lines[1] == ["cb1", "-", "1", "0.5*"]
    assert "* is below 0.85 GB/s" in text


def test_matrices_are_written_from_the_csv_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [",".join(HEADER), *(",".join(f'"{cell}"' for cell in to_row(one)) for one in rows(SLOW_THIRD, THREE))]
    (tmp_path / "results.csv").write_text("\n".join(lines) + "\n")
    assert pair_tables.command(tmp_path / "results.csv") == 0
    name = f"pairs-c{32 * MIB}"
    assert f"{name}-hosts.csv" in capsys.readouterr().out
    cells = [line.split(",") for line in (tmp_path / f"{name}-hosts.csv").read_text().splitlines()]
    assert cells[0] == ["busbw_GBps", "cb1", "cb2", "cb3"]
    assert cells[1] == ["cb1", "", "1.0", "0.5"]
    assert cells[3][:2] == ["cb3", "0.5"]
    assert (tmp_path / f"{name}-ranks.csv").read_text().startswith("busbw_GBps,0,1,2\n")
    assert len(read(tmp_path)) == 3


def test_a_run_without_pairs(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text(",".join(HEADER) + "\n")
    with pytest.raises(UsageError, match="no rows of pairs"):
        pair_tables.command(tmp_path)


def test_a_slow_rank_does_not_stand_for_the_good_host() -> None:
    hosts = ("a", "a", "b", "b", "c", "c")
    rates = {pair: 0.5 for pair in combinations(range(6), 2) if {0, 4, 5} & set(pair)}
    found = only(rows(rates, hosts))
    assert pairs.to_measure_again(found) == ((1, 2), (1, 4))
    said = pairs.findings(only(rows(rates, hosts, p1_2=1.0, p1_4=0.5)))
    assert "host c is slow: 0.5 GB/s with a" in said[0]


def test_a_disturbed_good_pair_acquits_nobody() -> None:
    (said,) = pairs.findings(only(rows(SLOW_FOURTH, FOUR, p0_1=0.55, p0_3=0.5)))
    assert "host cb4 is slow: 0.5 GB/s with cb1" in said


def test_any_good_partner_of_any_launch_counts() -> None:
    (said,) = pairs.findings(only(rows(SLOW_FOURTH, FOUR, p1_3=0.5)))
    assert "host cb4 is slow: 0.5 GB/s with cb2" in said


def test_a_host_whose_pairs_failed_is_named_first() -> None:
    records = [
        replace(record, status="timeout", reason="no progress", busbw_GBps=None)
        if "cb3" in str(record.members)
        else record
        for record in rows({}, THREE)
    ]
    said = pairs.findings(only(records))
    assert "host cb3: no pair with it could be measured (timeout: no progress)" in said[0]
    assert "cb3" in "\n".join(pair_tables.lines(records))
    lost = [replace(record, status="failed", busbw_GBps=None, time_p50_s=None) for record in records]
    assert "cb1: no pair" in "\n".join(pair_tables.lines(lost))


def test_an_again_that_failed_is_told() -> None:
    records = rows(SLOW_THIRD, THREE, p0_2=0.5)
    records[-1] = replace(records[-1], status="failed", reason="rank 2 died", busbw_GBps=None)
    (said,) = pairs.findings(only(records))
    assert "host cb3 looks slow: at best 0.5 GB/s; measured again it failed (failed: rank 2 died)" in said


def test_foreign_members_are_a_sentence() -> None:
    with pytest.raises(UsageError, match="expected the hosts of two ranks"):
        pairs.pairs_of([row("0-1", 1.0, "a;b;c")])


def test_findings_made_under_noise_say_so() -> None:
    quiet = rows(SLOW_THIRD, THREE)
    noisy = [replace(one, notes="noisy") if one.group == "0-1" else one for one in quiet]
    assert not any("noisy" in line for line in pairs.findings(only(quiet)))
    assert any("1 of 3 pairs were measured beside other work (noisy)" in line for line in pairs.findings(only(noisy)))
