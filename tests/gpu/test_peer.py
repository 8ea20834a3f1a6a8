"""Our own all_reduce over peer memory, on several ranks; needs CUDA devices, real or emulated."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import launching
from collbench.results import read

PROGRAM = Path(__file__).with_name("run_cases.py")
COUNT = 6001  # of 4 bytes: three blocks, parts of unequal length, and a last pack that is not full

PAGE = 2 << 20
AXES = ("operation", "dtype", "count", "placement", "mode", "caller", "buffers")
PLAIN: list[dict[str, Any]] = [
    dict(zip(AXES, values, strict=True))
    for values in (
        ("sum", "float32", COUNT, "out_of_place", "latency", "compiled", 2),
        ("sum", "float32", COUNT, "in_place", "graph", "compiled", 1),
        ("prod", "float16", 1009, "out_of_place", "graph", "python", 2),
        ("max", "bfloat16", 3, "in_place", "throughput", "compiled", 1),
        ("min", "int8", 77, "out_of_place", "throughput", "python", 3),
        ("sum", "float64", 0, "out_of_place", "latency", "compiled", 1),
    )
]
# Of three blocks and of one: emulated blocks run one after the other, so with several the ranks stay within a call.
REPEATED: list[dict[str, Any]] = [
    {"dtype": "uint32", "placement": "in_place", "mode": "throughput", "repeat": 60, "count": count}
    for count in (COUNT, 2045)
]


def needs(devices: int) -> None:
    if launching.cuda_devices() < devices:
        pytest.skip(f"{devices} CUDA devices are needed")


def peer(ranks: int, cases: list[dict[str, Any]], folder: Path) -> list[list[dict[str, Any]]]:
    needs(ranks)
    given = folder / "cases.json"
    defaults = {"collective": "all_reduce", "count": COUNT, "operation": "sum"}
    given.write_text(json.dumps({"backend": "peer", "cases": [defaults | case for case in cases]}))
    # Where the device is emulated, random delays bring the ranks out of step.
    env = {"EMUGPU_JITTER_US": "200"}
    done = launching.mpirun(ranks, [sys.executable, PROGRAM, given], timeout=90, env=env).expect(0)
    found: list[list[dict[str, Any]]] = json.loads(done.out)
    return found


@pytest.mark.parametrize("ranks", launching.RANKS)
def test_every_rank_gets_the_right_bits(ranks: int, tmp_path: Path) -> None:
    both = [({}, "one_shot"), ({"one_shot_bytes": -1}, "two_shot")]
    cases = [case | {"set": attributes} for attributes, _ in both for case in (*PLAIN, *REPEATED)]
    found = iter(zip(cases, peer(ranks, cases, tmp_path), strict=True))
    for _, algorithm in both:
        for _ in PLAIN:
            case, outcomes = next(found)
            for one in outcomes:
                assert (one["failed"], one["damage"], one["algorithm"]) == (None, None, algorithm), case
                # Others map it all, so it lies in pages of its own; the plan has that, and what meetings need.
                assert {size % PAGE for size in (*one["taken"], one["planned"])} == {0}
                assert one["planned"] >= sum(one["taken"]) + PAGE
        for _ in REPEATED:
            assert [one["right"] for one in next(found)[1]] == [True] * ranks


def test_damage_and_an_absent_rank_are_seen_and_nothing_hangs(tmp_path: Path) -> None:
    short = {"dtype": "int8", "count": 77}
    cases = [
        {"shorten": 1, **short},
        {"absent": 2, "mode": "throughput", "set": {"deadline_s": 0.5}},
        {"shorten": 0, **short},
    ]
    first, absent, last = peer(3, cases, tmp_path)
    for outcomes in first, last:  # also the case after a rank was absent: one element is wrong, and no more
        assert [str(one["damage"]).partition(":")[2][:13] for one in outcomes] == [" received[76]"] * 3
    assert absent[2]["status"] is None
    for one in absent[:2]:
        code, later, seconds = one["status"]
        assert (code, later) == (2 + 1, 2 + 1)  # the absent rank's number and one
        assert seconds < 2  # fifty calls take no longer than one


SCENARIO = """
schema = 1
title = "peer"
[measure]
time_budget = "5 ms"
least_time = "1 ms"
warmup_time = "1 ms"
modes = ["latency", "throughput"]
[[sweep]]
backends = ["peer"]
collectives = ["all_reduce", "all_gather"]
dtypes = ["float32", "float8_e4m3"]
sizes = ["4 KiB"]
"""


@pytest.mark.parametrize(
    ("env", "said"),
    [({}, ""), ({"EMUGPU_PEER": "0"}, "no peer access")],
    ids=["peers", "no peer access"],
)
def test_rows_of_a_run(env: dict[str, str], said: str, tmp_path: Path) -> None:
    needs(2)
    if env and not launching.emulated():
        pytest.skip("an emulated device is needed")
    scenario = tmp_path / "peer.toml"
    scenario.write_text(SCENARIO)
    done = launching.collbench(["launch", scenario, "-n", "2", "-o", tmp_path / "run"], env=env)
    rows = read(tmp_path / "run")
    if not launching.emulated() and done.code == 7:
        pytest.skip(str(rows[0].reason))
    done.expect(7 if said else 0)
    for row in rows:
        if row.collective == "all_gather":
            assert "peer has all_reduce only" in str(row.reason)
        elif said:
            assert row.status == "skipped"
            assert "ranks 0 and 1 (" in str(row.reason)
            assert said in str(row.reason)
        elif row.dtype == "float32":
            assert (row.status, row.wrong, row.algorithm) == ("ok", 0, "one_shot")
            assert row.clock == ("device" if row.mode == "latency" else "host")
        else:
            assert "cannot reduce float8_e4m3" in str(row.reason)
