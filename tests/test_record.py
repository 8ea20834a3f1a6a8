import csv
import dataclasses
import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.errors import UsageError
from collbench.record import COLUMNS, HEADER, SCHEMA, STATUSES, Record, clean, from_row, key, to_row

ROOT = Path(__file__).resolve().parent.parent

# The public interface, written out a second time on purpose: a column may only be added, at the end.
_PUBLIC = """
schema run_id launch started_at scenario variant case_id status reason notes
backend library thread_level caller call collective algorithm protocol dtype operation root placement mode sync buffer
buffers page_bytes
topology group ranks hosts ranks_per_host oversubscribed binding device ranks_per_device transport
requested_bytes size_bytes count send_bytes recv_bytes
warmup_iterations iterations batch stopped_by clock clock_step_s timer_floor_s time_min_s time_p50_s time_p50_low_s
time_p50_high_s time_p95_s time_p99_s time_max_s time_mean_s enqueue_p50_s device_p50_s
algbw_GBps busbw_GBps limit_GBps limit_source limit_fraction
arrival_skew_s slowest_rank slowest_rank_share wrong first_wrong
pages pattern seed first_got first_expected
neighbour slowdown channels host_p50_s stream_sync_p50_s sm_clock_MHz temperature_C power_W throttle
transport_source crossing_bytes rdma_bytes tcp_bytes retransmissions out_of_sequence ecn_marked cnps pauses
drops wait_share last_rank last_rank_share last_rank_delay_s late_starts clock_error_s members peer_device
"""
PUBLIC = _PUBLIC.split()

AWKWARD = [
    "nan", "inf", "-Infinity", "NA", "None", "null", "N/A", "true", "False", "0", "1", "007", "1e5", "1234e567",
    "1_000", "\uff11\uff12", "(nan)", "((1))", "(", "()", "=1+1", 'say "hi", he said', "a\r\nb", "\ttab\0nul", "\u2028",
    "\x85", "\ud800", "\ufeffmark", "µs ≤ 5 %", "'", '"', '""', ",", ";", " edges ",
]  # fmt: skip


def record(**values: Any) -> Record:
    return Record(**{"launch": 1, "case_id": "c0ffee", "status": "ok", **values})


def as_csv(records: list[Record]) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows([HEADER, *map(to_row, records)])
    return file.getvalue().encode()


def from_csv(content: bytes) -> list[Record]:
    return [from_row(row) for row in csv.DictReader(io.StringIO(content.decode(), newline=""), strict=True)]


def test_the_columns_are_the_public_interface() -> None:
    assert list(HEADER) == PUBLIC
    assert SCHEMA == 1


def test_every_column_is_described() -> None:
    assert {column.kind for column in COLUMNS} == {str, int, float, bool}
    assert all(column.meaning for column in COLUMNS)
    assert {column.unit for column in COLUMNS if column.name.endswith("_s")} == {"s"}
    assert {column.unit for column in COLUMNS if column.name.endswith("_bytes")} == {"bytes"}
    assert {column.unit for column in COLUMNS if column.name.endswith("_GBps")} == {"GB/s"}


def test_the_documentation_is_in_step() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "write_columns"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_reading_a_results_file_needs_no_heavy_library() -> None:
    code = "import sys, collbench.results; print({'numpy', 'numba', 'mpi4py', 'pydantic'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"


def test_a_row_is_written_by_the_rules() -> None:
    cells = dict(zip(HEADER, to_row(record(oversubscribed=True, time_p50_s=1e-6, wrong=0, root=None)), strict=True))
    assert cells["schema"] == "1"
    assert cells["oversubscribed"] == "1"
    assert cells["time_p50_s"] == "1e-06"
    assert cells["wrong"] == "0"
    assert cells["root"] == ""
    assert cells["reason"] == ""


def test_an_integer_in_a_column_of_numbers_is_written_as_a_number() -> None:
    # Readers guess a type from the first rows: a column must look the same everywhere.
    assert "3.0" in to_row(record(time_p50_s=3))


finite = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers(-(2**63), 2**63 - 1)
text = st.text(max_size=40) | st.sampled_from(AWKWARD)


STRATEGIES: dict[type, st.SearchStrategy[Any]] = {str: text, int: integers, float: finite, bool: st.booleans()}
MEASURED = [column for column in COLUMNS if not column.required and column.name != "schema"]


@st.composite
def records(draw: st.DrawFn) -> Record:
    filled = draw(st.lists(st.sampled_from(MEASURED), max_size=8, unique=True))
    return record(
        launch=draw(integers),
        case_id=draw(text.filter(clean)),
        status=draw(st.sampled_from(STATUSES)),
        **{column.name: draw(STRATEGIES[column.kind]) for column in filled},
    )


def as_read(one: Record) -> Record:
    """What must come back: text in one line, and nothing for empty text."""
    texts = {column.name: getattr(one, column.name) for column in COLUMNS if column.kind is str}
    cleaned: dict[str, Any] = {name: clean(value) or None for name, value in texts.items() if value is not None}
    return dataclasses.replace(one, **cleaned)


@given(st.lists(records(), max_size=3))
def test_records_survive_a_csv_file(given_records: list[Record]) -> None:
    content = as_csv(given_records)
    assert content.count(b"\n") == len(given_records) + 1
    assert from_csv(content) == [as_read(one) for one in given_records]


@pytest.mark.parametrize("value", AWKWARD)
def test_awkward_text_comes_back(value: str) -> None:
    one = record(variant=value)
    assert from_csv(as_csv([one])) == [as_read(one)]
    assert not set(to_row(one)[HEADER.index("variant")]) & set("\r\n\0\x85\u2028\ud800")


def test_text_has_an_end() -> None:
    assert len(clean("x" * 200_000)) == len(clean(clean("x" * 200_000))) <= 4000
    assert from_csv(as_csv([record(reason="x" * 200_000)]))[0].reason == "x" * 3997 + "..."


def many() -> list[Record]:
    """More rows than any reader guesses types from, and each column's hard values only after them."""
    first = [record(case_id="1234567890", variant=str(row), wrong=0, time_p50_s=float(row + 1)) for row in range(200)]
    last = [record(case_id="12345e6789", variant=value, oversubscribed=True, seed=2**63 - 1) for value in AWKWARD]
    return first + last


def test_pandas_opens_it_without_options() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(io.BytesIO(as_csv(many())))
    assert list(frame.columns) == PUBLIC
    assert len(frame) == len(many())
    assert frame["time_p50_s"].dropna().tolist() == [float(row + 1) for row in range(200)]
    assert frame["wrong"].dropna().eq(0).all()
    assert frame["variant"].tolist() == [
        to_row(one)[HEADER.index("variant")] or pytest.approx(float("nan"), nan_ok=True) for one in many()
    ]
    assert set(frame["case_id"]) == {"(1234567890)", "(12345e6789)"}


def test_what_pandas_writes_is_read_again() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(io.BytesIO(as_csv(many())))
    back = from_csv(frame.drop(columns="seed").to_csv(index=False).encode())
    assert back == [dataclasses.replace(as_read(one), seed=None) for one in many()]


def test_polars_opens_it_without_options() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.read_csv(as_csv(many()))
    assert frame.columns == PUBLIC
    assert frame["variant"].to_list() == [to_row(one)[HEADER.index("variant")] or None for one in many()]
    assert frame["time_p50_s"].drop_nulls().to_list() == [float(row + 1) for row in range(200)]
    assert from_csv(frame.write_csv().encode()) == [as_read(one) for one in many()]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_p50_s", float("nan")),
        ("busbw_GBps", float("inf")),
        ("time_p50_s", "1"),
        ("wrong", 1.0),
        ("wrong", True),
        ("seed", 2**63),
        ("oversubscribed", "yes"),
        ("variant", 3),
    ],
)
def test_what_no_cell_may_hold_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name}: got .*, expected "):
        to_row(record(**{name: value}))


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^status: got 'fine', expected one of ok, wrong, skipped, failed, timeout$"):
        record(status="fine")


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    one = record(
        time_p50_s=numpy.float64(0.1),
        time_max_s=numpy.float32(0.5),
        wrong=numpy.int64(3),
        oversubscribed=numpy.bool_(True),
    )
    assert from_csv(as_csv([one])) == [record(time_p50_s=0.1, time_max_s=0.5, wrong=3, oversubscribed=True)]


def row(**cells: str | None) -> dict[str, str | None]:
    return {"schema": "1", "case_id": "c0ffee", "status": "ok", "launch": "1", **cells}


def test_columns_are_read_by_name() -> None:
    assert from_row(row(not_known_yet="x", wrong="2")) == record(wrong=2)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"schema": "2"}, "schema: got '2', expected 1; "),
        ({"schema": None}, "schema: got None, expected 1; "),
        ({"case_id": ""}, "case_id: got nothing, expected "),
        ({"status": "fine"}, "status: got 'fine', expected one of "),
        ({"wrong": "1.5"}, "wrong: got '1.5', expected an integer"),
        ({"wrong": "many"}, "wrong: got 'many', expected a finite number"),
        ({"time_p50_s": "nan"}, "time_p50_s: got 'nan', expected a finite number"),
        ({"time_p50_s": "-inf"}, "time_p50_s: got '-inf', expected a finite number"),
        ({"oversubscribed": "2"}, "oversubscribed: got '2', expected 0 or 1"),
    ],
)
def test_a_bad_cell_is_one_sentence(cells: dict[str, str | None], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_row(row(**cells))
    assert str(caught.value).startswith(message)


def test_integers_that_a_table_program_rewrote_are_read() -> None:
    assert from_row(row(wrong="8.0", oversubscribed="True")) == record(wrong=8, oversubscribed=True)
    assert from_row(row(seed="9223372036854775807")).seed == 2**63 - 1


def test_a_key_names_a_row() -> None:
    assert key(record(group="world", launch=3)) == ("c0ffee", "world", 3)
    assert key(record()) == ("c0ffee", "", 1)


def test_records_travel() -> None:
    one = record(time_p50_s=0.5, variant="ring")
    assert pickle.loads(pickle.dumps(one)) == one
    assert Record(**json.loads(json.dumps(dataclasses.asdict(one)))) == one
