"""The pytest plugin: `mpirun -n 4 pytest --collbench SCENARIO`, and the fixture `collective_benchmark`.

pytest loads this module in every session of an environment that has collbench, so it imports nothing of it before
--collbench or the fixture asks. `pytest_session` runs a session over several ranks, `pytest_ranks` keeps them in step,
`pytest_cases` makes tests of cases, `pytest_bench` measures them.

PYTEST_DONT_REWRITE
"""

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collbench.plan import Case
    from collbench.pytest_cases import ScenarioFile
    from collbench.pytest_session import Session
    from collbench.record import Record

_FIXTURE = "collective_benchmark"
_TIMEOUT_S = 120.0
REFUSED: pytest.StashKey[int] = pytest.StashKey()
"""The exit code of a session that cannot run."""
_ALONE: pytest.StashKey["Session"] = pytest.StashKey()
_TIMER: pytest.StashKey[Any] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what starts a session over all ranks."""
    group = parser.getgroup("collbench", "collective communication (collbench)")
    group.addoption(
        "--collbench",
        metavar="SCENARIO",
        nargs="?",
        const="",
        help="Run on all ranks of mpirun as one session, in which rank 0 reports. The cases of the scenario (a path, "
        f"or the name of a shipped one) are tests; --collbench= runs only tests of your own that use {_FIXTURE}.",
    )
    group.addoption(
        "--collbench-output",
        metavar="DIR",
        type=Path,
        help="The run folder, with results.csv and samples.parquet. Default: a new one in results/.",
    )
    group.addoption(
        "--collbench-timeout",
        metavar="TIME",
        type=_seconds,
        default=_TIMEOUT_S,
        help=f"End all ranks where a phase of a test takes longer. Default: {_TIMEOUT_S:g} s.",
    )


def _seconds(text: str) -> float:
    from argparse import ArgumentTypeError

    from collbench.units import parse_duration

    try:
        found = parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if found <= 0:
        raise ArgumentTypeError(f'got "{text}", expected more than 0 s')
    return found


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Run the session over all ranks where --collbench is given, and pytest tests at all."""
    option = config.option
    passive = ("help", "version", "markers", "showfixtures", "show_fixtures_per_test", "cacheshow")
    if option.collbench is None or any(getattr(option, name, None) for name in passive):
        return (yield)
    from collbench.pytest_session import around

    return (yield from around(config))


@pytest.hookimpl(tryfirst=True, specname="pytest_cmdline_main")
def pytest_cmdline_main_refused(config: pytest.Config) -> int | None:
    """Let pytest run nothing where the ranks could not be started: a wrapper cannot."""
    return config.stash.get(REFUSED, None)


def pytest_configure(config: pytest.Config) -> None:
    """Offer the fixture: pytest-benchmark sees by its own whether a test is a benchmark, where it is installed."""
    config.pluginmanager.register(_Fixture() if config.pluginmanager.hasplugin("benchmark") else _NoFixture())


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what a test without --collbench has begun."""
    if (session := config.stash.get(_ALONE, None)) is not None:
        session.close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """Collect the scenario of --collbench."""
    if parent.config.option.collbench is None or file_path.suffix != ".toml":
        return None
    from collbench.pytest_cases import CASES, ScenarioFile

    if file_path.resolve() not in parent.config.stash.get(CASES, {}):
        return None
    found: ScenarioFile = ScenarioFile.from_parent(parent, path=file_path.resolve())
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give the fixture `benchmark` of our tests a timer that tells what collbench has measured."""
    if _FIXTURE in getattr(item, "fixturenames", ()):
        from collbench.pytest_cases import Replay

        item.stash[_TIMER] = timer = Replay()
        marked = item.get_closest_marker("benchmark")
        settings = dict(marked.kwargs) if marked is not None else {}
        item.add_marker(pytest.mark.benchmark(**settings | {"timer": timer}), append=False)


class CollectiveBenchmark:
    """What the fixture is: call it with a case, once in a test."""

    def __init__(self, session: "Session", item: pytest.Item, benchmark: Any) -> None:
        self._session, self._item, self._benchmark = session, item, benchmark
        self._used = False

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self._session.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._session.size

    def __call__(self, case: "dict[str, Any] | Case | None" = None, /, **axes: Any) -> "Record":
        """Measure a case on all ranks and return its row; wrong data, and a case that fails, fail the test on all.

        The case is a dict of axes or the axes themselves: collective="all_reduce", size="64 KiB", dtype="float32".
        """
        __tracebackhide__ = True
        from collbench.errors import CannotRun, UsageError

        if self._used:
            raise UsageError(f"{_FIXTURE}: got a second case in one test, expected one; write another test for it")
        try:
            if case is not None and axes:
                raise UsageError(f"{_FIXTURE}: got a case and axes, expected one of them; put the axes into the case")
            self._used = True
            measured = self._session.measure(self._item.nodeid, axes if case is None else case)
            problem: Exception | None = measured.problem()
        except Exception as error:
            problem = error
        if isinstance(problem, CannotRun):
            pytest.skip(str(problem))
        if problem is not None:
            # So that pytest-benchmark knows that it failed, and does not complain that nobody used it.
            self._benchmark.pedantic(_fail, args=(problem,))
        row = measured.slowest
        samples_s = measured.samples_s[row.group or ""]
        self._benchmark.extra_info.update(measured.info)
        self._item.stash[_TIMER].load(samples_s)
        self._benchmark.pedantic(lambda: None, rounds=len(samples_s))
        return row


def _fail(problem: Exception) -> None:
    __tracebackhide__ = True
    raise problem


class _Fixture:
    @pytest.fixture
    def collective_benchmark(self, request: pytest.FixtureRequest, benchmark: Any) -> CollectiveBenchmark:
        """Measure one case of collbench on all ranks: collective_benchmark(collective="all_reduce", size="64 KiB")."""
        return CollectiveBenchmark(_session(request.config), request.node, benchmark)


class _NoFixture:
    @pytest.fixture
    def collective_benchmark(self) -> None:
        """Measure one case of collbench on all ranks; needs pytest-benchmark."""
        pytest.fail(
            f"{_FIXTURE}: got no pytest-benchmark, expected version 5 or later; pip install 'collbench[bench]'",
            pytrace=False,
        )


def _session(config: pytest.Config) -> "Session":
    """The session over all ranks, or one of this process alone."""
    running: Session | None = config.pluginmanager.get_plugin("collbench-session")
    if running is not None:
        return running
    if _ALONE not in config.stash:
        from collbench.errors import UsageError
        from collbench.pytest_session import alone

        try:
            config.stash[_ALONE] = alone(config)
        except UsageError as error:
            pytest.fail(str(error), pytrace=False)
    return config.stash[_ALONE]
