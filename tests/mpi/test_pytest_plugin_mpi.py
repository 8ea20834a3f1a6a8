"""pytest sessions over several ranks: in step, reported by rank 0 alone, ended when one rank fails."""

import json
from pathlib import Path
from typing import Any

import pytest

import launching
from collbench.results import read
from pytest_runs import CONFTEST, SCENARIO, on_ranks, reports

pytest.importorskip("pytest_benchmark")
pytestmark = pytest.mark.timeout(200)

LONG = pytest.mark.long
RANKS = (pytest.param(1, marks=LONG), 2, pytest.param(4, marks=LONG))
REDUCE = "all_reduce-8B-float32-out_of_place"
IDS = [f"{name}-{size}-float32-out_of_place" for name in ("all_reduce", "ping_pong") for size in ("8B", "4KiB")]


def stats(path: Path) -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(path.read_text())["benchmarks"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "g.toml").write_text(SCENARIO)
    return tmp_path


@pytest.mark.parametrize("ranks", RANKS)
def test_cases_are_tests_and_the_samples_are_those_of_the_run(ranks: int, folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (folder / "test_not_named.py").write_text("def test_other():\n    assert False\n")
    # Every rank works in a folder of its own, so that what it writes is seen.
    chdir = "\n(HERE / f'cwd-{RANK}').mkdir(exist_ok=True)\nos.chdir(HERE / f'cwd-{RANK}')\n"
    (folder / "conftest.py").write_text(CONFTEST + chdir)
    args = ["--collbench", str(folder / "g.toml"), "--collbench-output=run", "--benchmark-autosave", "--junitxml=j.xml"]
    done = on_ranks(ranks, folder, *args, "--benchmark-json=out.json").expect(0)
    assert done.out.count("test session starts") == 1
    assert done.out.count("4 passed" if ranks > 1 else "2 passed, 2 skipped") == 1
    assert done.out.count("collbench: results: cwd-0/run/results.csv") == 1
    out = folder / "out.json"
    for rank in range(1, ranks):
        assert list((folder / f"cwd-{rank}").iterdir()) == []
        assert json.loads((folder / f"told-{rank}.json").read_text()) == {"benchmark_json": "None", "xmlpath": "None"}
    assert list(folder.glob("cache-*")) == []
    assert len(list(folder.glob("cwd-0/.benchmarks/*/0001_*.json"))) == 1
    run = folder / "cwd-0" / "run"
    rows = {row.case_id: row for row in read(run)}
    assert list(stats(out)) == [name for name in IDS if ranks > 1 or "ping_pong" not in name]
    table = parquet.read_table(run / "samples.parquet").to_pylist()
    for one in stats(out).values():
        row = rows.pop(one["extra_info"]["case_id"])
        timed = range(1 if row.collective == "ping_pong" else ranks)
        worst: dict[int, float] = {}
        for sample in table:
            if sample["case_id"] == row.case_id and sample["rank"] in timed:
                worst[sample["sample"]] = max(worst.get(sample["sample"], 0.0), sample["duration_s"])
        assert one["stats"]["data"] == [worst[number] for number in sorted(worst)]
        assert one["stats"]["median"] == row.time_p50_s
        assert one["stats"]["rounds"] == row.iterations
        assert one["stats"]["iterations"] == 1
        assert (row.ranks, row.wrong) == (ranks, 0)
    assert {row.status for row in rows.values()} <= {"skipped"}
    assert set(reports(folder, ranks)) == set(IDS)


@pytest.mark.parametrize("ranks", RANKS)
def test_a_later_session_is_held_against_an_earlier_one(ranks: int, folder: Path) -> None:
    session = ("--collbench", "g.toml", "--collbench-output", "run", "-k", "all_reduce")
    on_ranks(ranks, folder, *session, "--benchmark-json=out.json").expect(0)
    against = ("--benchmark-compare=then.json", "--benchmark-compare-fail=median:10%")
    for factor, code in ((1e9, 0), (1e-9, 1)):
        then = json.loads((folder / "out.json").read_text())
        for one in then["benchmarks"]:
            one["stats"]["median"] *= factor
        (folder / "then.json").write_text(json.dumps(then))
        done = on_ranks(ranks, folder, *session[:2], *session[4:], *against).expect(code)
        assert done.out.count("2 passed") == 1 - code  # pytest-benchmark raises before that line
        assert done.err.count("Performance has regressed:") == code


TRAPS = """\
import pytest
from conftest import LAST, RANK, SIZE


@pytest.fixture
def broken():
    assert not LAST, "in setup"


@pytest.fixture
def breaking():
    yield
    assert not LAST, "in teardown"


def test_good(collective_benchmark):
    row = collective_benchmark(collective="all_reduce", size="16 B")
    assert (row.status, row.ranks, row.size_bytes) == ("ok", SIZE, 16)
    assert (collective_benchmark.rank, collective_benchmark.size) == (RANK, SIZE)


def test_before(collective_benchmark):
    if LAST:
        raise ValueError("before the case")
    collective_benchmark(collective="all_reduce", size="32 B")


def test_after(collective_benchmark):
    collective_benchmark({"collective": "broadcast", "size": 64, "dtype": "float64"})
    assert not LAST, "after the case"


def test_setup(broken, collective_benchmark):
    collective_benchmark(collective="all_reduce", size="128 B")


def test_teardown(breaking, collective_benchmark):
    collective_benchmark(collective="all_reduce", size="256 B")


def test_skipped(collective_benchmark):
    if LAST:
        pytest.skip("not on this rank")
    collective_benchmark(collective="all_reduce", size="512 B")


@pytest.mark.xfail
def test_expected(collective_benchmark):
    assert not LAST
    collective_benchmark(collective="all_reduce", size="1 KiB")


def test_without():
    assert not LAST, "no case at all"


def test_another(collective_benchmark):
    collective_benchmark(collective="all_reduce", size=f"{2048 * (RANK + 1)} B")


def test_again(collective_benchmark):
    collective_benchmark(collective="all_reduce", size="16 B")


def test_unknown(collective_benchmark):
    collective_benchmark(collective="all_reduce", dtype="float33", size="8 B")


@pytest.mark.benchmark(group="mine")
def test_last(collective_benchmark):
    assert collective_benchmark(collective="barrier").status == "ok"
"""


@pytest.mark.parametrize("ranks", RANKS)
def test_what_happens_on_one_rank_happens_on_all(ranks: int, folder: Path) -> None:
    (folder / "test_traps.py").write_text(TRAPS)
    args = ["test_traps.py", "--collbench=", "--collbench-output=run", "--benchmark-json=out.json"]
    done = on_ranks(ranks, folder, *args)
    assert done.code != 0
    assert reports(folder, ranks) == {
        "test_good": "passed",
        "test_before": "failed",
        "test_after": "failed",
        "test_setup": "failed",
        "test_teardown": "failed",
        "test_skipped": "skipped",
        "test_expected": "xfail",
        "test_without": "failed",
        "test_another": "passed" if ranks == 1 else "failed",
        "test_again": "failed",
        "test_unknown": "failed",
        "test_last": "passed",
    }
    for text in ("before the case", "after the case", "in setup", "in teardown", "no case at all"):
        assert text in done.out, text
    assert ("is to measure another case than rank 0" in done.out) == (ranks > 1)
    assert 'got "float33", expected one of' in done.out
    assert "got the case that test_traps.py::test_good has measured" in done.out
    found = stats(folder / "out.json")
    assert found["test_last"]["group"] == "mine"
    assert "test_before" not in found
    assert len({row.case_id for row in read(folder / "run")}) == len(read(folder / "run"))


SELECTED = """\
from conftest import LAST


def test_first(collective_benchmark):
    collective_benchmark(collective="all_reduce", size="16 B")


def test_second():
    assert not LAST


def test_third():
    pass
"""


@pytest.mark.parametrize("ranks", RANKS)
def test_x_and_lf_and_k_select_the_same_tests_on_all_ranks(ranks: int, folder: Path) -> None:
    (folder / "test_selected.py").write_text(SELECTED)
    args = ["test_selected.py", "--collbench=", "--collbench-output"]
    assert on_ranks(ranks, folder, *args, "run-1", "-x").code != 0
    assert reports(folder, ranks) == {"test_first": "passed", "test_second": "failed"}
    assert on_ranks(ranks, folder, *args, "run-2", "--lf").code != 0
    assert reports(folder, ranks) == {"test_second": "failed"}
    on_ranks(ranks, folder, *args, "run-3", "-k", "not second", "--deselect=test_selected.py::test_third").expect(0)
    assert reports(folder, ranks) == {"test_first": "passed"}
    assert list(folder.glob("cache-*")) == []


WRONG = """
import collbench.row_parts, collbench.runner

def wrong(damage, group):
    return {"wrong": 3, "first_wrong": 5, "reason": "rank 1: received[5]: got 1, expected 2"}

collbench.runner.wrong = wrong
"""


@pytest.mark.parametrize("ranks", RANKS)
def test_wrong_data_fail_a_test_and_what_cannot_run_skips_it(ranks: int, folder: Path) -> None:
    more = '[[sweep]]\nbackends = ["loopback"]\ncollectives = ["all_gather"]\ncalls = ["persistent"]\nsizes = ["8 B"]\n'
    (folder / "g.toml").write_text(SCENARIO + more)
    (folder / "conftest.py").write_text(CONFTEST + WRONG)
    done = on_ranks(ranks, folder, "--collbench=g.toml", "--collbench-output=run", "-rs", "-k", "8B and not ping_pong")
    assert done.code != 0
    told = (
        "all_reduce float32 sum 8 B out_of_place compiled blocking latency world: got 3 wrong elements, expected none"
    )
    assert told in done.out
    assert "1 failed, 1 skipped" in done.out
    assert "loopback" in done.out
    assert [row.status for row in read(folder / "run")] == ["wrong", "skipped"]
    assert set(reports(folder, ranks).values()) == {"failed", "skipped"}


HANGS = {
    "loops": "while True: pass",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "leaves": "os._exit(0)",
    "is interrupted": "raise KeyboardInterrupt",
}


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("loops", 2),
        ("is killed", 2),
        ("leaves", 2),
        ("is interrupted", 2),
        pytest.param("loops", 1, marks=LONG),
        pytest.param("loops", 4, marks=LONG),
    ],
)
def test_a_rank_that_is_gone_or_stuck_ends_all(name: str, ranks: int, folder: Path) -> None:
    (folder / "test_stuck.py").write_text(
        "import os, signal\nfrom conftest import LAST\n\n\ndef test_stuck(collective_benchmark):\n"
        f"    if LAST:\n        {HANGS[name]}\n    collective_benchmark(collective='all_reduce', size='16 B')\n"
    )
    args = ["test_stuck.py", "--collbench=", "--collbench-output=run", "--collbench-timeout=3 s"]
    done = on_ranks(ranks, folder, *args)
    # MPICH's mpirun ends the others as well where one leaves with 0, but calls that a success.
    assert done.code != 0 or (name, launching.flavour()) == ("leaves", "mpich")
    assert done.seconds < 40
    assert " passed" not in done.out
    if name == "loops":
        assert "no progress for 3 s; [measure] timeout and --collbench-timeout give" in done.err
        assert "of test_stuck.py::test_stuck" in done.err


@pytest.mark.parametrize("ranks", RANKS[1:])
@pytest.mark.parametrize("name", ["order", "number", "error"])
def test_collections_that_differ_are_refused(name: str, ranks: int, folder: Path) -> None:
    lines = {
        "order": "@pytest.mark.parametrize('n', [1, 2] if LAST else [2, 1])\ndef test_n(n):\n    pass\n",
        "number": "@pytest.mark.parametrize('n', range(2 + LAST))\ndef test_n(n):\n    pass\n",
        "error": "assert not LAST, 'cannot be imported'\n\n\ndef test_n():\n    pass\n",
    }
    (folder / "test_n.py").write_text(f"import pytest\nfrom conftest import LAST\n\n\n{lines[name]}")
    done = on_ranks(ranks, folder, "test_n.py", "--collbench=").expect(4)
    who = f"ERROR: collection: rank {ranks - 1} on "
    said = "could not collect test_n.py: " if name == "error" else "that are not the 2 of rank 0"
    assert (done.err.count(who), done.err.count(said)) == (1, 1)


def refusals() -> list[Any]:
    xdist = "def pytest_addoption(parser):\n    parser.getgroup('x')._addoption('-n', dest='numprocesses', type=int)\n"
    return [
        pytest.param(
            ["--collbench=g.toml", "-n", "2"], xdist, "got workers of pytest-xdist (-n), expected none", id="xdist"
        ),
        pytest.param(
            ["--collbench=g.toml", "-p", "no:benchmark"],
            "",
            "pip install 'collbench[bench]'",
            id="benchmark",
            marks=LONG,
        ),
        pytest.param(["--collbench", "test_x.py"], "", "write --collbench= where only tests", id="path", marks=LONG),
        pytest.param(["--collbench=nowhere.toml"], "", 'scenario: got "nowhere.toml"', id="scenario"),
        pytest.param(["--collbench=g.toml", "--pdb"], "", "got --pdb or --trace on 2 ranks", id="pdb"),
        pytest.param(
            ["--collbench=g.toml", "--collbench-output=."], "", "got a folder with files in it", id="output", marks=LONG
        ),
        pytest.param(
            ["nothing.py", "--collbench="], "", "file or directory not found: nothing.py", id="pytest", marks=LONG
        ),
    ]


@pytest.mark.parametrize(("args", "conftest", "says"), refusals())
def test_what_cannot_run_is_refused_once(args: list[str], conftest: str, says: str, folder: Path) -> None:
    (folder / "conftest.py").write_text(conftest)
    done = on_ranks(2, folder, *args).expect(4)
    assert done.err.count(says) == 1


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_the_fixture_says_what_it_needs_on_several_ranks(ranks: int, folder: Path) -> None:
    (folder / "test_mine.py").write_text("def test_mine(collective_benchmark):\n    assert False\n")
    done = on_ranks(ranks, folder, "test_mine.py")
    assert done.code != 0
    assert f"got {ranks} ranks and no --collbench" in done.out
