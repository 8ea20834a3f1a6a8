"""Replays held against forecasts: what is forecast from which rows, when it holds, and what is printed."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from collbench.cli import main
from collbench.errors import UsageError
from collbench.planning import curve, replay_check, tables
from collbench.planning.costs import Range
from collbench.record import Record
from collbench.replay import Replayed
from collbench.results import RunFolder

MIB = 1 << 20
SIZES = (MIB, 2 * MIB, 4 * MIB, 8 * MIB)
BUCKETS = Replayed("net", "ddp", (2 * MIB, 4 * MIB, 2 * MIB))
COMPUTING = Replayed("net", "ddp", (2 * MIB, 4 * MIB, 2 * MIB), 0.04, 0.5)
NS = 1e-9


def row(**values: Any) -> Record:
    base: dict[str, Any] = {
        "case_id": "c", "run_id": "r", "launch": 0, "scenario": "t", "status": "ok", "backend": "mpi",
        "library": "MPI 1", "call": "blocking", "dtype": "float32", "operation": "sum", "placement": "in_place",
        "mode": "latency", "sync": "library", "buffer": "plain", "buffers": 1, "pages": "default", "topology": "world",
        "group": "world", "ranks": 2, "hosts": 2, "neighbour": "alone",
    }  # fmt: skip
    return Record(**(base | values))


def reduced(size: int, scale: float = 1.0, **values: Any) -> Record:
    """An all_reduce of 1 ns a byte, 5 % about."""
    time_s = size * NS * scale
    bounds = {"time_p50_low_s": 0.95 * time_s, "time_p50_high_s": 1.05 * time_s}
    return row(collective="all_reduce", size_bytes=size, time_p50_s=time_s, **(bounds | values))


def replayed(what: Replayed, time_s: float, **values: Any) -> Record:
    return row(collective="replay", pattern=what.text, size_bytes=sum(what.sizes), time_p50_s=time_s, **values)


MEASURED = [reduced(size) for size in SIZES]
ALL_S = 8 * MIB * NS


def only(rows: list[Record]) -> replay_check.Check:
    (found,) = replay_check.checks(rows)
    return found


def test_back_to_back_the_buckets_add_up() -> None:
    found = only([*MEASURED, replayed(BUCKETS, 1.1 * ALL_S)])
    assert found.forecast is not None
    assert found.forecast.middle == pytest.approx(ALL_S)
    assert found.forecast.low == pytest.approx(0.95 * ALL_S)
    assert found.forecast.high == pytest.approx(1.05 * ALL_S)
    assert found.difference == pytest.approx(0.1)
    assert found.holds(0.11)
    assert not found.holds(0.09)
    assert found.hidden is None


def test_what_lies_in_the_interval_holds_whatever_is_within() -> None:
    assert only([*MEASURED, replayed(BUCKETS, 1.04 * ALL_S)]).holds(0.0)
    assert not only([*MEASURED, replayed(BUCKETS, 1.06 * ALL_S)]).holds(0.0)
    assert not only([*MEASURED, replayed(BUCKETS, 0.94 * ALL_S)]).holds(0.0)


def test_calls_that_wait_add_the_computation() -> None:
    found = only([*MEASURED, replayed(COMPUTING, 0.04 + ALL_S)])
    assert found.difference == pytest.approx(0.0)


def test_calls_that_do_not_wait_are_a_pipeline() -> None:
    """Ready at 25, 35 and 40 ms; 2.1, 4.2 and 2.1 ms: only the last one is exposed."""
    ends = 0.04 + 2 * MIB * NS
    found = only([*MEASURED, replayed(COMPUTING, ends, call="nonblocking")])
    assert found.forecast is not None
    assert found.forecast.middle == pytest.approx(ends)
    assert found.exposed is not None
    assert found.exposed.middle == pytest.approx(0.04 + ALL_S)
    assert found.hidden == pytest.approx(1.0)
    half = only([*MEASURED, replayed(COMPUTING, ends + 3 * MIB * NS, call="nonblocking")])
    assert half.hidden == pytest.approx(0.5)


def test_nothing_is_said_of_what_was_hidden_where_the_intervals_are_wider() -> None:
    wide = {"time_p50_low_s": 0.04, "time_p50_high_s": 0.055}
    assert only([*MEASURED, replayed(COMPUTING, 0.045, call="nonblocking", **wide)]).hidden is None
    assert only([*MEASURED, replayed(BUCKETS, ALL_S, call="nonblocking")]).hidden is None


def test_launches_of_a_replay_are_one() -> None:
    its = [replayed(BUCKETS, ALL_S * (1 + launch / 10), launch=launch) for launch in range(3)]
    found = only([*MEASURED, *its])
    assert found.launches == 3
    assert found.measured.middle == pytest.approx(1.1 * ALL_S)
    assert (found.measured.low, found.measured.high) == pytest.approx((ALL_S, 1.2 * ALL_S))


def test_rows_of_replays_are_no_rows_of_all_reduce() -> None:
    """A replay of the very size that is asked for, ten times as slow, changes no forecast; nor does another type."""
    large = Replayed("net", "ddp", (MIB, MIB))
    rows = [*MEASURED, replayed(large, 20 * MIB * NS), replayed(BUCKETS, ALL_S, dtype="float16")]
    found = replay_check.checks([*rows, replayed(BUCKETS, ALL_S)])
    assert [one.replayed for one in found] == [large, BUCKETS, BUCKETS]
    assert found[2].difference == pytest.approx(0.0)
    assert found[1].forecast is None
    assert "got no rows of all_reduce of float16 on 2 ranks" in found[1].reason
    assert curve.cost(rows, found[2].row)("all_reduce", 2 * MIB, 2).middle == pytest.approx(2 * MIB * NS)


def test_rows_in_the_same_setting_come_first() -> None:
    slow = [reduced(size, 10.0, placement="out_of_place") for size in SIZES]
    assert only([*slow, *MEASURED, replayed(BUCKETS, ALL_S)]).difference == pytest.approx(0.0)
    assert only([*slow, replayed(BUCKETS, 10 * ALL_S)]).difference == pytest.approx(0.0)
    other = [reduced(size, 10.0, variant="tree") for size in SIZES]
    assert only([*other, replayed(BUCKETS, ALL_S)]).forecast is None
    assert only([*MEASURED, reduced(2 * MIB, 5.0, status="failed"), replayed(BUCKETS, ALL_S)]).holds(0.01)


def test_between_sizes_it_is_a_line_in_logarithms() -> None:
    rows = [row(collective="all_reduce", size_bytes=size, time_p50_s=time) for size, time in ((100, 1.0), (400, 4.0))]
    cost = curve.cost(rows, rows[0])
    assert cost("all_reduce", 200, 2).middle == pytest.approx(2.0)
    assert cost("all_reduce", 100, 2) == Range(1.0, 1.0, 1.0)
    assert cost("all_reduce", 404, 2).middle == pytest.approx(4.0)  # within 1 % of what was measured
    for size in (98, 405):
        with pytest.raises(UsageError, match="expected 100 B to 400 B as measured; measure it"):
            cost("all_reduce", size, 2)
    with pytest.raises(UsageError, match="got no rows of all_gather"):
        cost("all_gather", 100, 2)


def test_a_size_beyond_what_was_measured_is_no_forecast_and_says_so() -> None:
    found = only([*MEASURED, replayed(Replayed("net", "ddp", (16 * MIB,)), 1.0)])
    assert found.forecast is None
    assert not found.holds(10.0)
    text = tables.written([replay_check.table([found], 0.2)], "text")
    assert "no forecast" in text
    assert "expected 1 MiB to 8 MiB as measured" in text


def test_another_source_of_costs_takes_the_place_of_the_curve() -> None:
    def cost_of(rows: Any, like: Record) -> Any:
        assert all(one.collective == "all_reduce" for one in rows)
        return lambda collective, size, ranks: Range(0.5, 1.0, 2.0)

    (found,) = replay_check.checks([*MEASURED, replayed(BUCKETS, 3.0)], cost_of)
    assert found.forecast == Range(1.5, 3.0, 6.0)


def folder(path: Path, rows: list[Record]) -> Path:
    with RunFolder.create(path.name, path) as run:
        run.append(rows)
    return path


@pytest.mark.parametrize(("time_s", "code", "verdict"), [(1.1 * ALL_S, 0, "holds"), (1.3 * ALL_S, 5, "off")])
def test_the_command_prints_both_and_its_code_says_whether_it_holds(
    time_s: float, code: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder(tmp_path / "run", [*MEASURED, replayed(BUCKETS, time_s)])
    assert main(["forecast", "--replay", str(run)]) == code
    head, row_text = capsys.readouterr().out.splitlines()[1:3]
    assert head.split()[:3] == ["workload", "bucketing", "buckets"]
    assert row_text.split()[:3] == ["net", "ddp", "3"]
    assert f"{time_s / ALL_S - 1:+.1%}" in row_text
    assert row_text.endswith(verdict)
    assert main(["forecast", "--replay", str(run), "--within", "35%", "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    (values,) = table["rows"]
    assert values["measured_s"] == time_s
    assert values["forecast_low_s"] == pytest.approx(0.95 * ALL_S)
    assert values["difference"] == pytest.approx(time_s / ALL_S - 1)
    assert main(["forecast", "--replay", str(run), "--within", "0.05"]) == 5


def test_the_all_reduce_may_come_from_another_run(tmp_path: Path) -> None:
    known, run = folder(tmp_path / "known", MEASURED), folder(tmp_path / "run", [replayed(BUCKETS, ALL_S)])
    assert main(["forecast", "--replay", str(run), str(known)]) == 0
    assert main(["forecast", "--replay", str(run)]) == 5


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (MEASURED, [], 'got no replay that ran, expected the results of a scenario with kind = "replay"; run one'),
        (
            [*MEASURED, row(collective="replay", status="skipped", reason="too large")],
            [],
            "; the first of 1 says: too large; run one",
        ),
        ([*MEASURED, replayed(BUCKETS, ALL_S)], ["--plot", "x.png"], "got --plot with --replay, expected one of them"),
        (MEASURED, ["--within", "much"], "got much, expected a share such as 20% or 0.2"),
        (MEASURED, ["--within", "nan"], "got nan, expected a share such as 20% or 0.2"),
    ],
)
def test_what_is_refused(
    rows: list[Record], options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder(tmp_path / "run", rows)
    with contextlib.suppress(SystemExit):  # argparse
        assert main(["forecast", "--replay", str(run), *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
