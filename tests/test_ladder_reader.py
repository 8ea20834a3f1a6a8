"""The ladder's table, from rows that were made up for the purpose: whose fraction of what, and who loses most."""

from pathlib import Path
from typing import Any

import pytest

from collbench.errors import UsageError
from collbench.ladder import STEPS
from collbench.readers.ladder import command, ladders, lines
from collbench.record import HEADER, Record, to_row

FULL = {
    "ib_write_bw, host memory": 12.0,
    "ib_write_bw, GPU memory": 11.4,
    "MPI ping_pong": 11.0,
    "MPI send_recv": 10.0,
    "MPI ping_pong, GPU memory": 10.5,
    "MPI send_recv, GPU memory": 9.5,
    "MPI ping_pong, staged": 2.0,
    "MPI send_recv, staged": 1.0,
    "NCCL send_recv": 4.56,
    "NCCL all_reduce, 2 ranks": 4.5,
    "MPI all_reduce, 2 ranks": 8.0,
    "NCCL all_reduce, all ranks": 4.4,
    "MPI all_reduce, all ranks": 7.0,
}


def rows(values: dict[str, Any], **more: Any) -> list[Record]:
    """A row for each step: a number is its busbw, a text the reason why it was skipped."""
    found = []
    for step in STEPS:
        value = values.get(step.name, "not here")
        columns: dict[str, Any] = {
            "launch": 0, "case_id": f"c{step.name}", "backend": step.backend, "collective": step.collective,
            "pattern": step.pattern or None, "topology": step.topology, "requested_bytes": 1 << 20,
            "group": "a+b" if step.topology == "two_hosts" else "world", "mode": "throughput", "caller": "compiled",
            "dtype": "uint8" if step.pattern else "float32", "call": "blocking", "sync": "library", "buffer": "plain",
            "buffers": 1, "pages": "default", "placement": "out_of_place", "neighbour": "alone",
            "operation": "sum" if step.collective == "all_reduce" else None, "status": "ok",
        }  # fmt: skip
        if isinstance(value, str):
            columns |= {"status": "skipped", "reason": value}
        else:
            columns |= {"busbw_GBps": value, "limit_fraction": value / 12.5}
        found.append(Record(**(columns | more)))
    return found


def fractions(values: dict[str, Any]) -> dict[str, tuple[str, float | None]]:
    (found,) = ladders(rows(values))
    return {rung.step.name: (rung.below, rung.of_below) for rung in found.rungs}


def test_each_step_is_a_fraction_of_the_one_that_it_stands_on() -> None:
    found = fractions(FULL)
    below = {name: below for name, (below, _) in found.items()}
    assert below == {
        "ib_write_bw, host memory": "",
        "ib_write_bw, GPU memory": "ib_write_bw, host memory",
        "MPI ping_pong": "ib_write_bw, host memory",
        "MPI send_recv": "MPI ping_pong",
        "MPI ping_pong, GPU memory": "MPI ping_pong",
        "MPI send_recv, GPU memory": "MPI send_recv",
        "MPI ping_pong, staged": "MPI ping_pong",
        "MPI send_recv, staged": "MPI send_recv",
        "NCCL send_recv": "MPI send_recv, GPU memory",
        "NCCL all_reduce, 2 ranks": "NCCL send_recv",
        "MPI all_reduce, 2 ranks": "MPI send_recv",
        "NCCL all_reduce, all ranks": "NCCL all_reduce, 2 ranks",
        "MPI all_reduce, all ranks": "MPI all_reduce, 2 ranks",
    }
    assert found["NCCL send_recv"][1] == pytest.approx(4.56 / 9.5)
    assert found["ib_write_bw, host memory"][1] is None


def test_a_step_that_did_not_run_is_passed_over() -> None:
    without = {name: value for name, value in FULL.items() if "GPU memory" not in name and name != "MPI ping_pong"}
    found = fractions(without)
    assert found["MPI send_recv"][0] == "ib_write_bw, host memory"
    assert found["MPI send_recv"][1] == pytest.approx(10 / 12)
    assert found["NCCL send_recv"][0] == "MPI send_recv"
    assert found["NCCL send_recv"][1] == pytest.approx(0.456)
    assert found["MPI ping_pong"] == ("", None)


def test_the_step_that_loses_most_is_named_and_marked() -> None:
    told = lines(rows(FULL))
    assert told[-1] == (
        "  the step from MPI send_recv, GPU memory to NCCL send_recv loses most: 0.48 of what is below it"
    )
    marked = [line for line in told if line.startswith("> ")]
    assert len(marked) == 1
    assert " ".join(marked[0].split()) == "> NCCL send_recv 4.56 0.36 0.48 MPI send_recv, GPU memory"


def test_a_fallback_is_blamed_only_where_it_is_all_there_is() -> None:
    """In FULL staged keeps a tenth of what is below it, and is not named."""
    alone = {name: value for name, value in FULL.items() if "mpi_cuda" not in name and ", GPU memory" not in name}
    assert lines(rows(alone))[-1] == (
        "  the step from MPI send_recv to MPI send_recv, staged loses most: 0.10 of what is below it"
    )


def test_what_did_not_run_is_listed_with_its_reason_once() -> None:
    values = {"MPI ping_pong": 1.0, "NCCL send_recv": "no CUDA driver", "NCCL all_reduce, 2 ranks": "no CUDA driver"}
    told = lines(rows(values))
    assert "  not run: NCCL send_recv; NCCL all_reduce, 2 ranks: no CUDA driver" in told
    assert told[-1] == "  too few steps ran to be compared"
    failed = rows({"MPI ping_pong": 1.0, "MPI send_recv": "it hung"})
    failed = [row if row.reason != "it hung" else Record(**(_values(row) | {"status": "timeout"})) for row in failed]
    assert "  not run: MPI send_recv: timeout: it hung" in lines(failed)
    assert "  not run: ib_write_bw, host memory: it has no row" in lines(rows(FULL)[1:])


def _values(row: Record) -> dict[str, Any]:
    return {name: getattr(row, name) for name in HEADER}


def test_nothing_lost_is_said() -> None:
    told = lines(rows({"MPI ping_pong": 1.0, "MPI send_recv": 1.2}))
    assert told[-1] == "  no step loses anything of what is below it"
    assert not any(line.startswith(">") for line in told)


def test_launches_are_compared_by_their_medians() -> None:
    many = [row for launch, rate in enumerate((1.0, 2.0, 9.0)) for row in rows({"MPI ping_pong": rate}, launch=launch)]
    (found,) = ladders(many)
    assert [rung.busbw for rung in found.rungs if rung.busbw] == [2.0]
    assert found.title == "a+b, 1 MiB float32, throughput, median of 3 launches"


def test_sizes_types_modes_and_variants_have_a_ladder_each() -> None:
    every = rows(FULL) + rows(FULL, requested_bytes=8) + rows(FULL, variant="ucx")
    every += [Record(**(_values(row) | {"dtype": "int8"})) for row in rows(FULL) if row.backend != "perftest"]
    found = ladders(every)
    assert [one.title for one in found] == [
        "a+b, 1 MiB float32, throughput",
        "a+b, 8 B float32, throughput",
        "a+b, 1 MiB float32, throughput, variant ucx",
        "a+b, 1 MiB int8, throughput",
    ]
    for one in found:  # a message has no type: its rows are in each
        assert one.rungs[0].busbw == 12.0


def test_rows_of_other_sweeps_are_left_out() -> None:
    assert ladders(rows(FULL, topology="world")) == ()  # no two hosts
    assert ladders(rows(FULL, caller="python")) == ()
    assert ladders(rows(FULL, buffers=8)) == ()
    assert ladders([]) == ()


def test_doubts_of_the_rows_are_said() -> None:
    told = lines(rows({"MPI ping_pong": 1.0}, notes="timer_floor noisy"))
    assert any(line.endswith("(noisy)") for line in told)


def test_the_command_reads_a_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import csv

    with (tmp_path / "results.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *map(to_row, rows(FULL))])
    assert command(tmp_path) == 0
    assert capsys.readouterr().out.startswith("ladder a+b, 1 MiB float32, throughput\n")
    with (tmp_path / "results.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(HEADER)
    with pytest.raises(UsageError, match="got no ladder, expected the results of a scenario"):
        command(tmp_path)
