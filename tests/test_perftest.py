"""The backend perftest as far as it needs no second rank: its options, the length of a test, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import pytest

import fake_perftest
from collbench.backends import backend_named, perftest
from collbench.backends.perftest import Perftest, command, iterations_of
from collbench.perftest_report import Report
from collbench.plan import Case, expand
from collbench.rdma_endpoint import Endpoint
from collbench.scenario import Measure, Scenario, Sweep
from collbench.world import World

PAIR = World(size=2, ranks=(0, 1), hosts=("a", "b"))


def case(pattern: str = "host", **axes: object) -> Case:
    sweep = Sweep(kind="kernel", backends=("perftest",), collectives=("rdma_write",), patterns=(pattern,), sizes=(64,))
    (one,) = expand(Scenario(name="t", title="t", sweeps=(sweep,))).cases
    return replace(one, **axes)  # type: ignore[arg-type]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ib_write_bw and a port for it."""
    for name, value in fake_perftest.write(tmp_path).items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(perftest, "endpoint", lambda environment: Endpoint("rxe0", 1, 1, "127.0.0.1"))
    perftest._answer.cache_clear()
    return tmp_path


def test_the_command() -> None:
    roce = command(Endpoint("rxe0", 1, 3, "10.0.0.1"), 65536, 200)
    assert " ".join(roce) == "ib_write_bw -d rxe0 -i 1 -x 3 -s 65536 -n 200 -F --report_gbits"
    ib = command(Endpoint("mlx5_0", 2), 8, 5, 3)
    assert " ".join(ib) == "ib_write_bw -d mlx5_0 -i 2 -s 8 -n 5 -F --report_gbits --use_cuda=3"


@pytest.mark.parametrize(
    ("rate", "most", "expected"),
    [(1e9, 100_000, 2000), (1e9, 500, 500), (1e3, 100_000, 5), (1e9, 2, 5)],
)
def test_a_test_takes_the_time_of_a_case(rate: float, most: int, expected: int) -> None:
    measure = Measure(time_budget_s=2.0, most_iterations=most)
    assert iterations_of(Report(1_000_000, 5, rate), measure) == expected


def test_it_has_a_row_in_the_table_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert backend_named("perftest") is Perftest
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Perftest.unavailable() == "ib_write_bw is not on PATH; install the package perftest"


def test_what_it_refuses(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Perftest.unavailable() is None
    backend = Perftest(PAIR)
    assert backend.library == "perftest 6.06"
    assert backend.refuse(case()) is None
    assert backend.refuse(case(caller="python")) == "ib_write_bw has no caller python"
    assert backend.refuse(replace(case(), collective="all_reduce", pattern="")) == (
        "perftest has rdma_write alone, and not all_reduce"
    )
    assert Perftest(World()).refuse(case()) == "ib_write_bw runs between 2 ranks; the group has 1"
    assert "was built without CUDA (its help has no --use_cuda)" in str(backend.refuse(case("device")))
    monkeypatch.setattr(perftest, "endpoint", lambda environment: "there is no RDMA device here")
    assert Perftest(PAIR).refuse(case()) == "a: there is no RDMA device here"
    assert "got 0 bytes" in str(backend.overflows(case(), 0, backend.layout(case(), 0)))


def test_with_cuda_the_device_is_asked(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PERFTEST", "mr")
    monkeypatch.setattr(perftest, "driver_problem", lambda: "no driver")
    assert Perftest(PAIR).refuse(case("device")) == "no driver"
    monkeypatch.setattr(perftest, "driver_problem", lambda: None)
    monkeypatch.setattr(perftest, "visible_devices", lambda: 4)
    backend = Perftest(replace(PAIR, rank=1, place=6))
    assert backend.refuse(case("device")) is None
    assert backend._words(case("device"), 64, 5)[-1] == "--use_cuda=2"


def test_a_case_is_a_throughput_one_whatever_is_asked_for() -> None:
    sweep = Sweep(kind="kernel", backends=("perftest",), collectives=("rdma_write",), patterns=(), sizes=(64,))
    both = Measure(modes=("latency", "throughput"))
    cases = expand(Scenario(name="t", title="t", sweeps=(sweep,), measure=both)).cases
    assert [(one.pattern, one.mode) for one in cases] == [("host", "throughput"), ("device", "throughput")]
