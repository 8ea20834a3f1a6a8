"""Replays held against forecasts: what is forecast from which rows, when it holds, and what is printed."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from collbench.cli import main
from collbench.errors import UsageError
from collbench.planning import replay_check, replay_cost, tables
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
    """An all_reduce of 1 ns a byte."""
    return row(collective="all_reduce", size_bytes=size, time_p50_s=size * NS * scale, **values)


def about(rows: Any, like: Record) -> Any:
    """A cost of 1 ns a byte, 5 % about, whatever the rows say."""
    return lambda collective, size, ranks: Range(0.95 * size * NS, size * NS, 1.05 * size * NS)


def replayed(what: Replayed, time_s: float, **values: Any) -> Record:
    return row(collective="replay", pattern=what.text, size_bytes=sum(what.sizes), time_p50_s=time_s, **values)


MEASURED = [reduced(size) for size in SIZES]
ALL_S = 8 * MIB * NS


def only(rows: list[Record], cost_of: Any = None) -> replay_check.Check:
    (found,) = replay_check.checks(rows, cost_of=cost_of)
    return found


def test_back_to_back_the_buckets_add_up() -> None:
    found = only([replayed(BUCKETS, 1.1 * ALL_S)], about)
    assert found.forecast is not None
    assert found.forecast.middle == pytest.approx(ALL_S)
    assert found.forecast.low == pytest.approx(0.95 * ALL_S)
    assert found.forecast.high == pytest.approx(1.05 * ALL_S)
    assert found.difference == pytest.approx(0.1)
    assert found.holds(0.11)
    assert not found.holds(0.09)
    assert found.hidden is None


@pytest.mark.parametrize(
    ("share", "within", "verdict"),
    [
        (1.04, 0.05, "holds"),
        (1.04, 0.03, "in the interval only"),
        (0.96, 0.03, "in the interval only"),
        (1.06, 0.03, "off"),
        (0.94, 0.03, "off"),
        (1.06, 0.07, "holds"),
    ],
)
def test_an_interval_that_holds_it_is_no_forecast_that_holds(share: float, within: float, verdict: str) -> None:
    found = only([replayed(BUCKETS, share * ALL_S)], about)
    assert (found.verdict(within), found.holds(within)) == (verdict, verdict == "holds")


def test_calls_that_wait_add_the_computation() -> None:
    found = only([*MEASURED, replayed(COMPUTING, 0.04 + ALL_S)])
    assert found.difference == pytest.approx(0.0)


WAITED = replayed(COMPUTING, 0.04 + ALL_S)
PIPELINED_S = 0.04 + 2 * MIB * NS
"""Ready at 25, 35 and 40 ms, in need of 2.1, 4.2 and 2.1 ms: only the last one is exposed."""


def test_calls_that_do_not_wait_are_a_pipeline() -> None:
    found = only([*MEASURED, replayed(COMPUTING, PIPELINED_S, call="nonblocking")])
    assert found.forecast is not None
    assert found.forecast.middle == pytest.approx(PIPELINED_S)
    assert found.exposed is not None
    assert found.exposed.middle == pytest.approx(0.04 + ALL_S)
    assert found.hidden is None  # nothing says what it takes where calls wait


@pytest.mark.parametrize(("late_s", "hidden"), [(0.0, 1.0), (3 * MIB * NS, 0.5), (6 * MIB * NS, 0.0)])
def test_what_was_hidden_is_told_by_the_same_with_calls_that_wait(late_s: float, hidden: float) -> None:
    others = [WAITED, replayed(COMPUTING, 9.0, dtype="float16"), replayed(BUCKETS, 9.0)]
    its = replayed(COMPUTING, PIPELINED_S + late_s, call="nonblocking")
    found = replay_check.checks([*MEASURED, *others, its])
    assert [one.hidden for one in found] == [None, None, None, pytest.approx(hidden)]


def test_nothing_is_said_of_what_was_hidden_where_the_intervals_are_wider() -> None:
    wide = {"time_min_s": 0.04, "time_max_s": 0.055}
    found = replay_check.checks([*MEASURED, WAITED, replayed(COMPUTING, 0.045, call="nonblocking", **wide)])
    assert found[1].hidden is None
    whole = [replayed(BUCKETS, ALL_S), replayed(BUCKETS, ALL_S, call="nonblocking")]
    assert [one.hidden for one in replay_check.checks([*MEASURED, *whole])] == [None, None]


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
    assert "got no all_reduce of float16 by mpi on 2 ranks" in found[1].reason


def test_rows_in_the_same_setting_come_first() -> None:
    slow = [reduced(size, 10.0, placement="out_of_place") for size in SIZES]
    assert only([*slow, *MEASURED, replayed(BUCKETS, ALL_S)]).difference == pytest.approx(0.0)
    assert only([*slow, replayed(BUCKETS, 10 * ALL_S)]).difference == pytest.approx(0.0)
    other = [reduced(size, 10.0, variant="tree") for size in SIZES]
    assert only([*other, replayed(BUCKETS, ALL_S)]).forecast is None
    assert only([*MEASURED, reduced(2 * MIB, 5.0, status="failed"), replayed(BUCKETS, ALL_S)]).holds(0.01)


def test_costs_are_those_of_the_fit() -> None:
    """Three launches of 10 us and 1 ns a byte, 4 % about: between their sizes, and with an interval."""
    rows = [
        row(
            collective="all_reduce", size_bytes=1024 << step, launch=launch,
            time_p50_s=(1e-5 + (1024 << step) * NS) * (0.96 + 0.04 * launch),
        )
        for launch in range(3)
        for step in range(12)
    ]  # fmt: skip
    like = replayed(BUCKETS, ALL_S)
    found = replay_cost.by_fit()(rows, like)("all_reduce", 50_000, 2)
    assert found.middle == pytest.approx(6e-5, rel=0.01)
    assert 0.5 * found.middle < found.low < 0.96 * found.middle
    assert 1.04 * found.middle < found.high < 2 * found.middle
    with pytest.raises(UsageError, match="expected 1 KiB to 2 MiB as measured"):
        replay_cost.by_fit()(rows, like)("all_reduce", 4 * MIB, 2)
    assert replay_cost.by_fit(extrapolate=True)(rows, like)("all_reduce", 4 * MIB, 2).middle > 2 * MIB * NS
    with pytest.raises(UsageError, match="got no all_gather of float32 by mpi on 2 ranks where t was replayed"):
        replay_cost.by_fit()(rows, like)("all_gather", 1024, 2)


def test_buckets_back_to_back_are_forecast_from_operations_back_to_back() -> None:
    """Where they were measured; what computes between lets the ranks begin together again."""
    back_to_back = [reduced(size, 1.25, mode="throughput", placement="out_of_place") for size in SIZES]
    rows = [*MEASURED, *back_to_back]
    found = only([*rows, replayed(BUCKETS, 1.25 * ALL_S)])
    assert found.difference == pytest.approx(0.0)
    assert "throughput, out_of_place, blocking" in tables.written([replay_check.table([found], 0.2)], "csv")
    assert only([*rows, replayed(COMPUTING, 0.04 + ALL_S)]).difference == pytest.approx(0.0)
    its = replayed(COMPUTING, 0.04 + 1.25 * ALL_S, mode="throughput")
    assert only([*rows, its]).difference == pytest.approx(0.0)


def test_a_size_beyond_what_was_measured_is_no_forecast_and_says_so() -> None:
    found = only([*MEASURED, replayed(Replayed("net", "ddp", (16 * MIB,)), 1.0)])
    assert found.forecast is None
    assert not found.holds(10.0)
    text = tables.written([replay_check.table([found], 0.2)], "text")
    assert "no forecast" in text
    assert "expected 1 MiB to 8 MiB as measured" in text


def test_a_forecast_beyond_what_was_measured_is_marked() -> None:
    pytest.importorskip("scipy")
    rows = [reduced(size) for size in SIZES[:2]] + [reduced(size // 4) for size in SIZES[:2]]
    for call in ("blocking", "nonblocking"):
        for what, marked in ((BUCKETS, True), (Replayed("net", "ddp", (MIB, 2 * MIB)), False)):
            found = only([*rows, replayed(what, ALL_S, call=call)], replay_cost.by_fit(extrapolate=True))
            table = replay_check.table([found], 0.2)
            assert table.rows[0]["extrapolated"] == marked
            assert ("EXTRAPOLATED" in tables.written([table], "text")) == marked


def test_no_cost_is_asked_with_rows_of_replays() -> None:
    def cost_of(rows: Any, like: Record) -> Any:
        assert all(one.collective == "all_reduce" for one in rows)
        return lambda collective, size, ranks: Range(0.5, 1.0, 2.0)

    assert only([*MEASURED, replayed(BUCKETS, 3.0)], cost_of).forecast == Range(1.5, 3.0, 6.0)


def folder(path: Path, rows: list[Record]) -> Path:
    with RunFolder.create(path.name, path) as run:
        run.append(rows)
    return path


@pytest.mark.parametrize(
    ("time_s", "code", "verdict"),
    [
        (1.1 * ALL_S, 0, "holds"),
        (1.3 * ALL_S, 5, "in the interval only"),  # of one launch, another may take twice as long
        (2.5 * ALL_S, 5, "off"),
    ],
)
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
    assert main(["forecast", "--replay", str(run), "--within", "160%", "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    (values,) = table["rows"]
    assert values["measured_s"] == time_s
    assert values["forecast_s"] == pytest.approx(ALL_S)
    assert values["difference"] == pytest.approx(time_s / ALL_S - 1)
    assert main(["forecast", "--replay", str(run), "--within", "0.05"]) == 5


def test_a_difference_beyond_within_is_exit_code_5_however_wide_the_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scattered = [reduced(size, 0.5 + launch, launch=launch) for size in SIZES for launch in range(2)]
    run = folder(tmp_path / "run", [*scattered, replayed(BUCKETS, 1.3 * ALL_S)])
    assert main(["forecast", "--replay", str(run)]) == 5
    said = capsys.readouterr().out
    assert said.splitlines()[2].endswith("in the interval only")
    assert "Only holds is exit code 0" in " ".join(said.replace("#", "").split())
    assert main(["forecast", "--replay", str(run), "--within", "60%"]) == 0


def test_the_all_reduce_of_the_same_results_count_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = folder(tmp_path / "run", [*MEASURED, replayed(BUCKETS, ALL_S)])
    assert main(["forecast", "--replay", str(run), "--replay", str(run / "results.csv"), "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert [row["launches"] for row in table["rows"]] == [1]
    assert f"{run / 'results.csv'}: given more than once, counted once" in table["notes"]


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        ("skipped", 0, "skipped: net/ddp/none, blocking, by nccl: no device"),
        ("failed", 5, "failed: net/ddp/none, blocking, by nccl: no device"),
        ("wrong", 5, "wrong: net/ddp/none, blocking, by nccl: 3 wrong elements"),
    ],
)
def test_replays_without_a_time_are_named(
    status: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why = {"wrong": 3} if status == "wrong" else {"reason": "no device"}
    other = row(collective="replay", pattern=BUCKETS.text, backend="nccl", status=status, **why)
    run = folder(tmp_path / "run", [*MEASURED, replayed(BUCKETS, ALL_S), other])
    assert main(["forecast", "--replay", str(run)]) == code
    assert said in capsys.readouterr().out


def test_the_all_reduce_may_come_from_another_run(tmp_path: Path) -> None:
    known, run = folder(tmp_path / "known", MEASURED), folder(tmp_path / "run", [replayed(BUCKETS, ALL_S)])
    assert main(["forecast", str(known), "--replay", str(run)]) == 0
    assert main(["forecast", "--replay", str(run), "--replay", str(known)]) == 0
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
        ([*MEASURED, replayed(BUCKETS, ALL_S)], ["--plot", "x.png"], "got --replay and --plot, expected one question"),
        (MEASURED, ["--workload", "resnet50"], "got --replay and --workload, expected one question at a time"),
        (MEASURED, ["--at", "1 MiB"], "got --replay and --at, expected one question at a time"),
        (MEASURED, ["--within", "much"], "got much, expected a share such as 20% or 0.2"),
        (MEASURED, ["--within", "5"], "got 5, expected a share; write 5% or 500%"),
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


@pytest.mark.parametrize(
    "pattern",
    ["", "x", "w/ddp/none: 0",
     "w/ddp/1e ms backward 0.5: 8", "w/ddp/1..2 ms backward 0.5: 8",
     "w/ddp/1 ms backward 7: 8", "w/ddp/1e300 ms backward 0.5: 8",
     f"w/ddp/none: {'9' * 30}", f"w/ddp/none: {'9' * 5000}"],
)  # fmt: skip
def test_a_pattern_that_says_nothing_is_refused_in_one_sentence(pattern: str) -> None:
    from collbench.errors import CannotRun
    from collbench.replay import parse

    with pytest.raises(CannotRun, match=r"^replay: got pattern .{0,90}, expected WORKLOAD/BUCKETING/COMPUTE: SIZES"):
        parse(pattern)
