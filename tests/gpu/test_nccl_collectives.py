"""Every collective of NCCL in every form on 1 to 4 and 8 devices; the matrix of types is scripts/verify_matrix."""

from collections import Counter
from pathlib import Path

import pytest

import launching
from collbench.record import Record
from collbench.results import read

HEAD = """
schema = 1
[measure]
time_budget = "5 ms"
least_time = "1 ms"
least_iterations = 3
warmup_time = "2 ms"
modes = MODES
"""
ALL = (
    '["all_reduce", "reduce", "reduce_scatter", "all_gather", "gather", "scatter", "broadcast", "all_to_all", '
    '"all_to_all_v", "send_recv", "ping_pong"]'
)
FORMS = f"""{HEAD.replace("MODES", '["latency", "graph"]')}
[[sweep]]
backends = ["nccl"]
collectives = {ALL}
callers = ["compiled", "python"]
placements = ["out_of_place", "in_place"]
buffers = [2]
patterns = ["linear"]
sizes = ["1000 B"]
[[sweep]]
backends = ["nccl"]
collectives = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather"]
buffer = ["registered", "symmetric"]
sizes = ["1000 B"]
"""
TYPES = f"""{HEAD.replace("MODES", '["throughput"]')}
[[sweep]]
backends = ["nccl"]
collectives = ["all_reduce", "reduce_scatter"]
dtypes = ["int8", "uint64", "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2", "int16"]
operations = ["sum", "prod", "min", "max", "avg"]
sizes = ["1000 B"]
[[sweep]]
backends = ["nccl"]
collectives = ["broadcast", "gather"]
dtypes = ["int8", "float8_e5m2"]
roots = ["all"]
sizes = ["0 B", "1000 B"]
"""

EIGHT = pytest.param(8, marks=pytest.mark.long)
LIMIT_S = 300
ALIKE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives whose buffers are the same on every rank, as windows must be."""


def version_of(rows: list[Record]) -> tuple[int, ...]:
    """The NCCL that ran: the extras allow 2.22 and later."""
    library = next(str(row.library) for row in rows if row.status == "ok")
    return tuple(map(int, library.removeprefix("NCCL ").split(".")))


def run(scenario: str, ranks: int, tmp_path: Path) -> Path:
    env = {"EMUGPU_COUNT": str(ranks)} if launching.emulated() else {}
    if not env and launching.cuda_devices() < ranks:
        pytest.skip(f"{ranks} CUDA devices are needed")
    path = tmp_path / "s.toml"
    path.write_text(scenario)
    folder = tmp_path / "run"
    command: list[str | Path] = ["launch", path, "-n", str(ranks), "-o", folder, "--no-choices"]
    launching.collbench(command, timeout=LIMIT_S, env=env).expect(0)
    return folder


@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.parametrize("ranks", [*launching.RANKS, EIGHT])
def test_every_form(ranks: int, tmp_path: Path) -> None:
    rows = read(run(FORMS, ranks, tmp_path))
    assert {row.status for row in rows} <= {"ok", "skipped"}
    assert {row.wrong for row in rows if row.status == "ok"} == {0}
    done = Counter((row.collective, row.caller, row.mode, row.placement, row.buffer) for row in rows if row.wrong == 0)
    moved_only = {"all_to_all", "all_to_all_v", "send_recv", "ping_pong"}
    for collective in ALL.strip("[]").replace('"', "").split(", "):
        for caller in ("compiled", "python"):
            for mode in ("latency", "graph"):
                expected = 0 if collective == "ping_pong" and ranks == 1 else 1
                assert done[collective, caller, mode, "out_of_place", "plain"] == expected
                if collective not in moved_only:
                    assert done[collective, caller, mode, "in_place", "plain"] == 1
    for row in rows:
        if row.mode == "graph" and row.status == "ok":
            assert row.batch == 16
            assert row.clock == "device"
        # CuPy has no method for these, so a Python program makes them of sends and receives.
        if row.status == "ok" and row.collective in ("gather", "all_to_all"):
            own = row.caller == "compiled" and version_of(rows) >= (2, 28)
            assert row.algorithm == (None if own else "grouped send/recv")
    windows = [row for row in rows if row.buffer == "symmetric"]
    symmetric, all_four = {row.collective for row in windows if row.status == "ok"}, set(ALIKE)
    # Which windows and registrations there are depends on the library and the device; what there is not says why.
    assert symmetric == all_four if launching.emulated() else symmetric <= all_four
    assert all(row.reason for row in rows if row.status == "skipped")
    if version_of(rows) >= (2, 27):
        assert any("differ from rank to rank" in str(row.reason) for row in windows if row.collective == "gather")


@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.parametrize("ranks", [3, EIGHT])
def test_every_type_and_operation(ranks: int, tmp_path: Path) -> None:
    rows = read(run(TYPES, ranks, tmp_path))
    lacking = 0
    for row in rows:
        if row.dtype == "int16":
            assert row.reason == "NCCL has no type for int16"
        elif row.status == "skipped" and not launching.emulated():
            # Reductions of fp8 need compute capability 9.0, the types NCCL 2.24.
            assert str(row.dtype).startswith("float8")
            assert row.reason
            lacking += 1
        else:
            assert row.wrong == 0
    assert len([row for row in rows if row.status == "ok"]) == 2 * 8 * 5 + 2 * 2 * ranks * 2 - lacking


TOPOLOGIES = f"""{HEAD.replace("MODES", '["latency"]')}
[[sweep]]
backends = ["nccl", "mpi", "staged"]
collectives = ["all_reduce", "broadcast"]
topologies = ["pairs", "first:doubling", "bisection", "0,2;1", "every:3", "rail"]
sizes = ["1000 B"]
"""


@pytest.mark.timeout(LIMIT_S + 20)
def test_groups_have_rows_of_their_own(tmp_path: Path) -> None:
    # Suspects among the pairs are measured once more.
    rows = [row for row in read(run(TOPOLOGIES, 4, tmp_path)) if not str(row.group).startswith("again:")]
    groups: dict[str | None, set[str | None]] = {}
    for row in rows:
        groups.setdefault(row.topology, set()).add(row.group)
        assert row.status == ("skipped" if row.topology == "rail" else "ok")
        assert (row.wrong == 0) == (row.topology != "rail")
    assert groups == {
        "pairs": {"0-1", "0-2", "0-3", "1-2", "1-3", "2-3"},
        "first:doubling": {"first:2", "first:4"},
        "bisection": {"0-2", "1-3"},
        "0,2;1": {"0,2", "1"},
        "every:3": {"every:3"},
        "rail": {"rail"},
    }
    assert len({(row.case_id, row.group) for row in rows}) == len(rows) == 3 * 2 * (6 + 2 + 2 + 2 + 1 + 1)
    assert {row.ranks for row in rows if row.topology == "pairs"} == {2}


SHARED = f"""{HEAD.replace("MODES", '["latency"]')}
ranks_per_device = 2
[[sweep]]
backends = ["nccl"]
collectives = ["all_reduce"]
sizes = ["1000 B"]
"""


def test_ranks_may_share_a_device_where_the_scenario_says_so(tmp_path: Path) -> None:
    if launching.cuda_devices() < 1:
        pytest.skip("a CUDA device is needed")
    path = tmp_path / "s.toml"
    path.write_text(SHARED)
    run_folder = tmp_path / "run"
    # They must leave each other room on the device, and have no multicast (NCCL User Guide).
    settings = launching.one_device() | {"NCCL_MAX_CTAS": "2", "NCCL_NVLS_ENABLE": "0"}
    done = launching.collbench(["launch", path, "-n", "2", "-o", run_folder, "--no-choices"], env=settings)
    (row,) = read(run_folder)
    if row.status == "skipped" and "from 2.30 on" in str(row.reason):
        assert done.code == 7
        pytest.skip(str(row.reason))
    done.expect(0)
    assert (row.status, row.wrong, row.ranks_per_device) == ("ok", 0, 2)
    assert "shared_device" in str(row.notes).split()
