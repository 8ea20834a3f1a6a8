"""The schema of a results file: every column once, with its type, unit and meaning.

The header, the row, the reader and `results/README.md` derive from `Record`. Columns are only ever added, at the end;
`SCHEMA` changes when a meaning does; readers go by name.

A cell is written so that any CSV reader opens the file without options: no NaN, no inf, integers of 64 bits, no line
break inside a cell, and text that a reader would take for a number, a truth value or a missing value in parentheses.
"""

import dataclasses
import math
import operator
import typing
import unicodedata
from collections.abc import Mapping
from typing import Any

from collbench.errors import UsageError

SCHEMA = 1

STATUSES = ("ok", "wrong", "skipped", "failed", "timeout")

Cell = str | int | float | bool | None
Key = tuple[str, str, int]

TEXT_LIMIT = 4000
"""Longest text of a cell: Python's own csv module refuses to read one of over 128 KiB."""

_INT_LIMIT = 2**63
_NOT_IN_A_CELL = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, half surrogates (no UTF-8 exists for them), line and paragraph separators."""
_MISSING_WORDS = frozenset(
    {"na", "n/a", "#na", "#n/a", "#n/a n/a", "<na>", "null", "none", "-1.#ind", "1.#ind", "-1.#qnan", "1.#qnan"}
)
_TRUTH_WORDS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


def column(unit: str, meaning: str, default: Any = None) -> Any:
    """Declare a column; the default says "not measured"."""
    return dataclasses.field(default=default, metadata={"unit": unit, "meaning": meaning})


def identity(meaning: str) -> Any:
    """Declare a column without which a row means nothing."""
    return dataclasses.field(metadata={"unit": "", "meaning": meaning})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row: what one case gave in one group and one launch. None is "not measured"."""

    schema: int = column("", "version of the meanings of the columns", SCHEMA)
    run_id: str | None = column("", "name of the run folder")
    launch: int = identity("number of this start of the processes within the run")
    started_at: str | None = column("", "when the case began, UTC, ISO 8601")
    scenario: str | None = column("", "name of the scenario")
    variant: str | None = column("", "named set of environment settings that the launch ran with")
    case_id: str = identity("short digest of the axes of the case; the same on every machine")
    status: str = identity("ok, wrong, skipped, failed or timeout")
    reason: str | None = column("", "one sentence: why the row is not ok, or not what was expected")
    notes: str | None = column("", "flags in words, separated by spaces, such as timer_floor, noisy, throttled")

    backend: str | None = column("", "backend that ran the case, such as mpi or nccl")
    library: str | None = column("", "library behind the backend, with its version")
    thread_level: str | None = column("", "MPI thread level that the library granted")
    caller: str | None = column("", "compiled (a C program's cost) or python (through the Python binding)")
    call: str | None = column("", "form of the call, such as blocking, nonblocking, persistent")
    collective: str | None = column("", "the collective, such as all_reduce")
    algorithm: str | None = column("", "algorithm that the library says it used")
    protocol: str | None = column("", "protocol that the library says it used")
    dtype: str | None = column("", "type of an element")
    operation: str | None = column("", "reduction operation; empty where nothing is reduced")
    root: int | None = column("", "root, as a rank of the group; empty where there is none")
    placement: str | None = column("", "out_of_place or in_place")
    mode: str | None = column(
        "", "latency (ranks meet before every operation), throughput (back to back) or graph (captured)"
    )
    sync: str | None = column("", "how the ranks meet before a sample")
    buffer: str | None = column("", "kind of buffer: plain, registered or symmetric")
    buffers: int | None = column("", "number of buffer sets that the iterations rotate over")
    page_bytes: int | None = column("bytes", "largest page that backs the buffers on any rank, once touched")

    topology: str | None = column("", "rule that cut the world into groups")
    group: str | None = column("", "the group of ranks, named within the topology")
    ranks: int | None = column("", "ranks in the group")
    hosts: int | None = column("", "hosts in the group")
    ranks_per_host: int | None = column("", "largest number of the group's ranks on one host")
    oversubscribed: bool | None = column("", "1 where a host had more ranks than cores for them, else 0")
    binding: str | None = column("", "cores that the ranks were bound to")
    device: str | None = column("", "model of the device that the ranks used")
    ranks_per_device: int | None = column("", "largest number of ranks that shared one device")
    transport: str | None = column("", "transport that carried the data, as far as it is known")

    requested_bytes: int | None = column("bytes", "size that the scenario asked for")
    size_bytes: int | None = column("bytes", "size that was run, by the convention of the collective")
    count: int | None = column("elements", "count argument of the call")
    send_bytes: int | None = column("bytes", "send buffer of a rank")
    recv_bytes: int | None = column("bytes", "receive buffer of a rank")

    warmup_iterations: int | None = column("", "iterations before the first sample")
    iterations: int | None = column("", "iterations that were measured")
    batch: int | None = column("", "iterations in one sample; 1 in mode latency")
    stopped_by: str | None = column(
        "", "what ended the sampling: precision, budget or iterations; late where every start was late"
    )
    clock: str | None = column("", "host or device: the clock that the times are from")
    clock_step_s: float | None = column("s", "step of that clock")
    timer_floor_s: float | None = column("s", "what an empty sample reads")
    time_min_s: float | None = column("s", "shortest sample; a sample is the largest duration over the group's ranks")
    time_p50_s: float | None = column("s", "median of the samples: the headline")
    time_p50_low_s: float | None = column("s", "lower end of the median's 95 % interval within this launch")
    time_p50_high_s: float | None = column("s", "upper end of the median's 95 % interval within this launch")
    time_p95_s: float | None = column("s", "95th percentile of the samples")
    time_p99_s: float | None = column("s", "99th percentile of the samples")
    time_max_s: float | None = column("s", "longest sample")
    time_mean_s: float | None = column("s", "mean of the samples")
    enqueue_p50_s: float | None = column("s", "median time until the call had returned, before it was finished")
    device_p50_s: float | None = column("s", "median time between the events on the device")

    algbw_GBps: float | None = column("GB/s", "size_bytes / time_p50_s; GB = 10^9 bytes")  # noqa: N815
    busbw_GBps: float | None = column("GB/s", "algbw_GBps times the bus factor of the collective")  # noqa: N815
    limit_GBps: float | None = column("GB/s", "bandwidth that the hardware could give at most")  # noqa: N815
    limit_source: str | None = column("", "where limit_GBps is from")
    limit_fraction: float | None = column("ratio", "busbw_GBps / limit_GBps")

    arrival_skew_s: float | None = column("s", "median time between the first and the last rank's arrival")
    slowest_rank: int | None = column("", "rank of the world that was slowest most often")
    slowest_rank_share: float | None = column("ratio", "part of the samples in which it was the slowest")
    wrong: int | None = column("elements", "wrong elements over all ranks; empty where nothing was verified")
    first_wrong: int | None = column("", "index of the first wrong element on the first rank that has one")

    pages: str | None = column("", "kind of pages that was asked for")
    pattern: str | None = column(
        "",
        "who sends how much to whom in all_to_all_v: uniform, linear, or a matrix; the way of a kernel; what a replay "
        "reduces",
    )
    seed: int | None = column("", "seed of the data")
    first_got: str | None = column("", "value of the first wrong element")
    first_expected: str | None = column("", "value that it should have had")
    neighbour: str | None = column(
        "", "what else ran on each rank's device meanwhile: alone (nothing), compute, copy, communicate"
    )
    slowdown: float | None = column("ratio", "time_p50_s over that of the same case without the neighbour, same launch")
    channels: int | None = column("", "channels that the library says it uses")
    host_p50_s: float | None = column(
        "s", "median by the host's clock; where a stream was held, from when it was let go"
    )
    stream_sync_p50_s: float | None = column("s", "median cost of synchronising an idle stream before each MPI call")
    sm_clock_MHz: float | None = column("MHz", "lowest clock of the ranks' devices after the case")  # noqa: N815
    temperature_C: float | None = column("degree C", "highest temperature of the ranks' devices after the case")  # noqa: N815
    power_W: float | None = column("W", "highest power of the ranks' devices after the case")  # noqa: N815
    throttle: str | None = column("", "why clocks were held down during the case, over the ranks' devices")
    transport_source: str | None = column("", "who says so: counters, library log, both, or the backend itself")
    crossing_bytes: int | None = column("bytes", "least that the case had to move between hosts, warm-up included")
    rdma_bytes: int | None = column("bytes", "what RDMA ports sent meanwhile, all hosts, less their idle rate")
    tcp_bytes: int | None = column("bytes", "what network interfaces sent besides, all hosts, less their idle rate")
    retransmissions: int | None = column("", "sent again meanwhile, by RDMA and TCP, all hosts")
    out_of_sequence: int | None = column("", "arrived out of order meanwhile, by RDMA and TCP, all hosts")
    ecn_marked: int | None = column("", "RoCE packets that arrived marked by a congested switch")
    cnps: int | None = column("", "congestion notifications sent and handled meanwhile, all hosts")
    pauses: int | None = column("", "pause frames (PFC, 802.3x) received and sent meanwhile, all hosts")
    drops: int | None = column("", "packets dropped or discarded by interfaces and ports meanwhile, all hosts")
    wait_share: float | None = column(
        "ratio", "part of the ranks' time in the operation before the last rank entered it"
    )
    last_rank: int | None = column(
        "", "rank of the world that arrived last most often; empty where that cannot be told from chance"
    )
    last_rank_share: float | None = column("ratio", "part of the samples in which it was the last")
    last_rank_delay_s: float | None = column("s", "median time of its arrival after the median of the others'")
    late_starts: int | None = column("", "samples discarded since a rank was late for their instant; sync clock only")
    clock_error_s: float | None = column(
        "s", "what arrivals of two ranks may be wrong by against each other; 0 where they read one clock"
    )
    members: str | None = column(
        "", "hosts of the group's ranks, in rank order, with semicolons between; one name where all are on it"
    )
    peer_device: str | None = column(
        "", "in a peer_copy of one rank: which visible device wrote to which, by number, and the latter's model"
    )

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status: got {self.status!r}, expected one of {', '.join(STATUSES)}")


@dataclasses.dataclass(frozen=True)
class Column:
    """What the schema says of one column; `kind` is the type of a cell that is not empty."""

    name: str
    kind: type
    unit: str
    meaning: str
    required: bool


def _column_of(field: "dataclasses.Field[Any]") -> Column:
    kind = (typing.get_args(field.type) or (field.type,))[0]
    unit, meaning = field.metadata["unit"], field.metadata["meaning"]
    return Column(field.name, kind, unit, meaning, required=field.default is dataclasses.MISSING)


COLUMNS = tuple(_column_of(field) for field in dataclasses.fields(Record))
HEADER = tuple(column.name for column in COLUMNS)


def key(record: Record) -> Key:
    """Name a row within a results file: what resume and the gate pair by."""
    return (record.case_id, record.group or "", record.launch)


def to_row(record: Record) -> list[str]:
    """Write a record as cells in the order of `HEADER`; a value that no cell may hold is a ValueError."""
    return [_written(column, getattr(record, column.name)) for column in COLUMNS]


def from_row(row: Mapping[str, str | None]) -> Record:
    """Read a record from cells by name, as we wrote them or as a table program does: 8.0 for 8, True for 1.

    Columns that this version does not know are ignored, and missing ones are None. A row of another schema, without an
    identity or with a cell of another type is a UsageError.
    """
    schema = row.get("schema")
    if schema != str(SCHEMA):
        remedy = "read it with the version of collbench that wrote it"
        raise UsageError(f"schema: got {schema!r}, expected {SCHEMA}; {remedy}")
    values: dict[str, Any] = {}
    for column in COLUMNS:
        cell = row.get(column.name) or ""
        if cell:
            values[column.name] = _read(column, cell)
        elif column.required:
            raise UsageError(f"{column.name}: got nothing, expected {column.meaning}; is this a results file?")
    try:
        return Record(**values)
    except ValueError as error:
        raise UsageError(f"{error}; is this a results file?") from error


def clean(text: str) -> str:
    """Return the text as a cell can hold it: one line, without control characters or spaces around it, not too long."""
    line = "".join(" " if unicodedata.category(char) in _NOT_IN_A_CELL else char for char in text).strip()
    return line if len(line) <= TEXT_LIMIT else line[: TEXT_LIMIT - 3].rstrip() + "..."


def columns_markdown() -> str:
    """Return the columns as a table in Markdown, for `results/README.md`."""
    lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
    for column in COLUMNS:
        kind = {str: "text", int: "integer", float: "number", bool: "0 or 1"}[column.kind]
        lines.append(f"| `{column.name}` | {kind} | {column.unit} | {column.meaning} |")
    return "\n".join(lines) + "\n"


def _written(column: Column, value: Any) -> str:
    if value is None:
        return ""
    if column.kind is str:
        if not isinstance(value, str):
            raise _bad(column, value, "text")
        text = clean(value)
        return f"({text})" if _misread(text) else text
    if column.kind is bool:
        if value not in (False, True):
            raise _bad(column, value, "a truth value")
        return "1" if value else "0"
    if isinstance(value, (str, bool)):
        raise _bad(column, value, "a number")
    if column.kind is int:
        try:
            integer = operator.index(value)
        except TypeError:
            raise _bad(column, value, "an integer") from None
        if not -_INT_LIMIT <= integer < _INT_LIMIT:
            raise _bad(column, value, "an integer of 64 bits with a sign")
        return str(integer)
    number = float(value)
    if not math.isfinite(number):
        raise _bad(column, value, "a finite number, or None for not measured")
    return repr(number)


def _read(column: Column, cell: str) -> Cell:
    if column.kind is str:
        inside = cell[1:-1]
        return inside if cell == f"({inside})" and _misread(inside) else cell
    if column.kind is bool:
        if cell.lower() not in _TRUTH_WORDS:
            raise UsageError(f"{column.name}: got {cell!r}, expected 0 or 1")
        return _TRUTH_WORDS[cell.lower()]
    try:
        if column.kind is int and cell.lstrip("+-").isdecimal():
            return int(cell)
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{column.name}: got {cell!r}, expected a finite number")
    if column.kind is float:
        return number
    if not number.is_integer():
        raise UsageError(f"{column.name}: got {cell!r}, expected an integer")
    return int(number)


def _misread(text: str) -> bool:
    """Whether a reader would take this text, or what is left of it without parentheses, for something else."""
    bare = text.strip("()").lower()
    if bare in _MISSING_WORDS or bare in _TRUTH_WORDS:
        return True
    try:
        float(bare)
    except ValueError:
        return False
    return True


def _bad(column: Column, value: object, expected: str) -> ValueError:
    return ValueError(f"{column.name}: got {value!r}, expected {expected}")
