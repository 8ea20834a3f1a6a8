"""The pytest plugin in one process: what it costs, what it takes from pytest-benchmark, names, cases, verdicts."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from collbench.errors import UsageError
from collbench.plan import expand
from collbench.pytest_cases import Replay, case_of, named
from collbench.pytest_options import SELECTION, SILENT
from collbench.pytest_ranks import Verdict, agreed
from collbench.scenario import Measure, find, load
from pytest_runs import SCENARIO, alone

HEAVY = {"cupy", "mpi4py", "numba", "numpy", "pyarrow", "pydantic"}


def test_pytest_finds_it_and_its_import_is_nearly_free() -> None:
    (found,) = (one for one in entry_points(group="pytest11") if one.name == "collbench")
    assert found.value == "collbench.pytest_plugin"
    program = f"import sys, pytest; before = set(sys.modules); import {found.value}; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if name.startswith("collbench")] != []
    assert {name for name in loaded if name.startswith("collbench.")} == {"collbench.pytest_plugin"}
    assert HEAVY.isdisjoint(loaded)


def test_a_session_that_does_not_ask_for_it_loads_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "import sys\n\n\ndef test_x():\n"
        f"    assert {HEAVY - {'numpy'}!r}.isdisjoint(sys.modules)\n"
        "    assert {name for name in sys.modules if name.startswith('collbench.')} == {'collbench.pytest_plugin'}\n"
    )
    alone(tmp_path, "test_x.py", "-W", "error").expect(0)


def test_shipped_cases_have_readable_names_of_their_own() -> None:
    cases = expand(load("gate"), ranks=2, backend="mpi").cases
    names = [name for name, _ in named(cases, "mpi")]
    assert names[0] == "all_reduce-8B-float32-out_of_place"
    assert names[-1] == "broadcast-1MiB-float32-in_place"
    for scenario in ("gate", "quickstart", "latency", "library"):
        listed = named(expand(load(scenario), ranks=4, backend="mpi").cases, "mpi")
        assert len({name for name, _ in listed}) == len(listed)
        assert not any("::" in name or " " in name or "/" in name for name, _ in listed)


def test_the_gate_has_cases_in_each_band() -> None:
    sizes = {case.requested_bytes for case in expand(load("gate"), ranks=2).cases}
    latency, middle, bandwidth = 64 << 10, 4 << 20, 1 << 40
    bands = [
        sum(low <= size < high for size in sizes)
        for low, high in ((0, latency), (latency, middle), (middle, bandwidth))
    ]
    assert min(bands) >= 1
    assert find("gate").read_text().startswith("# Did a collective get slower?")


def test_a_test_names_a_case_by_its_axes() -> None:
    axes = {"collective": "all_reduce", "size": "64 KiB", "mode": "throughput", "call": "nonblocking"}
    case = case_of(axes, ranks=2, backend="mpi", measure=Measure())
    assert (case.backend, case.requested_bytes, case.mode, case.call) == ("mpi", 65536, "throughput", "nonblocking")
    assert named([case], "mpi")[0][0] == "all_reduce-64KiB-float32-out_of_place-nonblocking-throughput"
    rooted = case_of({"collective": "reduce", "size": 8, "root": 1}, ranks=2, backend="mpi", measure=Measure())
    assert (rooted.root, named([rooted], "mpi")[0][0]) == ("1", "reduce-8B-float32-out_of_place-root_1")


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"size": "8 B"}, "collective_benchmark: collective: got nothing"),
        ("all_reduce", "collective_benchmark: got 'all_reduce', expected the axes of a case; write e.g. collective="),
        (["all_reduce"], "collective_benchmark: got ['all_reduce'], expected the axes of a case"),
        ({"collective": "all_reduce", "sise": "8 B"}, "got axis 'sise', expected one of backend, collective"),
        ({"collective": "all_reduce", "size": "8 Bits"}, '"8 Bits"'),
        ({"collective": "all_reduce"}, "expected sizes for all_reduce"),
        ({"collective": "all_reduse", "size": "8 B"}, "did you mean all_reduce?"),
        ({"collective": "reduce", "size": "8 B", "root": "all"}, "got 2 cases, expected one"),
    ],
)
def test_a_case_that_is_none_says_why(axes: object, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        case_of(axes, ranks=2, backend="mpi", measure=Measure())
    assert says in str(caught.value)


def test_a_replayed_duration_is_the_very_number() -> None:
    durations = [0.1 + 0.2, 1e-9 / 3, 7e-7]
    timer = Replay()
    assert timer() > 0
    timer.load(durations)
    assert [-timer() + timer() for _ in durations] == durations


def test_the_gravest_verdict_counts_and_an_echo_does_not() -> None:
    passed, skipped, failed = (Verdict(outcome) for outcome in ("passed", "skipped", "failed"))
    echo = Verdict("failed", echo=True)
    assert agreed(1, [failed, failed]) == 1
    assert agreed(0, [passed, passed]) == 0
    assert agreed(0, [passed, skipped, failed]) == 2
    assert agreed(0, [echo, skipped]) == 1
    assert agreed(0, [passed, echo]) == 1
    assert agreed(0, [echo, passed]) == 0
    expected, not_failed = Verdict("skipped", "so it fails", "known"), Verdict("failed", "[XPASS(strict)] known")
    assert agreed(0, [not_failed, expected]) == 1
    assert agreed(0, [not_failed, failed]) == 1
    assert agreed(0, [not_failed, passed]) == 0


def test_the_options_that_silence_other_ranks_are_those_of_pytest_and_its_benchmarks(
    pytestconfig: pytest.Config,
) -> None:
    pytest.importorskip("pytest_benchmark")
    foreign = {"htmlpath", "report_log"}  # plugins that are not here
    assert {name for name in SILENT if not hasattr(pytestconfig.option, name)} <= foreign
    assert set(SELECTION) <= set(SILENT)
    files = [name for name in vars(pytestconfig.option) if name.startswith("benchmark_") and "save" in name]
    assert set(files) - {"benchmark_save_data"} <= set(SILENT)


def test_what_is_taken_from_pytest_benchmark_is_there(pytestconfig: pytest.Config) -> None:
    """The plugin's name and `pedantic` (with the marker's `timer` and `extra_info`: tests/mpi compares the samples)."""
    fixture = pytest.importorskip("pytest_benchmark.fixture")
    assert pytestconfig.pluginmanager.hasplugin("benchmark")
    assert callable(fixture.BenchmarkFixture.pedantic)


def test_without_mpirun_one_rank_runs_over_the_loopback(tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    (tmp_path / "g.toml").write_text(SCENARIO)
    (tmp_path / "test_mine.py").write_text(
        "def test_mine(collective_benchmark):\n"
        "    row = collective_benchmark(collective='all_gather', size='1 KiB')\n"
        "    assert (row.backend, row.ranks, row.status) == ('loopback', 1, 'ok')\n\n\n"
        "def test_mpi(collective_benchmark):\n    collective_benchmark(collective='scan', size='8 B', backend='mpi')\n"
    )
    done = alone(tmp_path, "test_mine.py", "--collbench=g.toml", "--collbench-output=run", "-rs", "-W", "error").expect(
        0
    )
    assert "backend loopback" in done.out
    assert "3 passed, 3 skipped" in done.out
    assert "no mpirun has started pytest" in done.out
    done = alone(tmp_path, "test_mine.py", "-W", "error").expect(0)
    assert "1 passed, 1 skipped" in done.out
    words = ("test_mine.py", "--collbench=g.toml", "--collbench-output=skipped", "--benchmark-skip", "-W", "error")
    assert "6 skipped" in alone(tmp_path, *words).expect(0).out
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__", ".pytest_cache", ".benchmarks"} == {
        "g.toml", "test_mine.py", "run", "skipped"
    }  # fmt: skip


def test_a_second_case_in_one_test_is_refused_with_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    case = "    collective_benchmark(collective='all_gather', size='1 KiB')\n"
    (tmp_path / "test_mine.py").write_text(f"def test_mine(collective_benchmark):\n{case}{case}")
    done = alone(tmp_path, "test_mine.py", "-W", "error").expect(1)
    assert "UsageError: collective_benchmark: got a second case in one test, expected one; write another" in done.out


def test_a_timeout_of_nothing_is_refused(tmp_path: Path) -> None:
    assert '--collbench-timeout: got "0 s", expected more than 0 s' in (
        alone(tmp_path, "--collbench=", "--collbench-timeout", "0 s").expect(4).err
    )


def test_without_pytest_benchmark_the_fixture_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("def test_mine(collective_benchmark):\n    pass\n")
    done = alone(tmp_path, "test_mine.py", "-p", "no:benchmark").expect(1)
    assert "got no pytest-benchmark, expected version 5 or later; pip install 'collbench[bench]'" in done.out
