"""One pytest session over all ranks: it starts and ends them, keeps them in step, and lets rank 0 alone report.

The signals stay pytest's: they cannot be blocked any more when pytest runs, so the watchdog does not wait for them.
Ctrl-C is KeyboardInterrupt as soon as Python runs again; in the midst of a case it ends all ranks, since the others
could not be told. What the launcher sends (SIGTERM) ends a rank at once. The deadlines hold as ever.
"""

import contextlib
import os
import socket
import sys
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

import pytest

from collbench.errors import CannotRun, CollbenchError, Interrupted, UsageError
from collbench.pytest_bench import Bench, Measured, told_path
from collbench.pytest_cases import CASES, case_of, named
from collbench.pytest_options import SELECTION, SILENT, refused
from collbench.pytest_plugin import REFUSED
from collbench.pytest_ranks import LeftBehind, Ranks, Verdict, agreed
from collbench.rank import START_TIMEOUT_S, STOP_TIMEOUT_S, default_backend
from collbench.start import after_rank_0, import_all, launcher_rank, launcher_size, start_world, stop_world
from collbench.watchdog import Watchdog
from collbench.world import World

_REASON = 500


def around(config: pytest.Config) -> Generator[None, Any, Any]:
    """Start the ranks, let pytest run, and end them with one exit code."""
    problem = refused(config)
    found = _told(problem) if problem is not None else _started(config)
    if isinstance(found, int):
        config.stash[REFUSED] = found
        return (yield)
    session, code, failure = found, 1, None
    config.pluginmanager.register(session, "collbench-session")
    try:
        code = int((yield) or 0)
    except BaseException as error:
        failure = error
        code = int(pytest.ExitCode.USAGE_ERROR) if isinstance(error, pytest.UsageError) else 1
    if failure is not None and session.rank == 0 and session.size > 1:
        _say(failure)  # the launcher may end this rank as soon as another one exits
    code = session.end(code, failure)
    if failure is not None and session.size == 1:
        raise failure
    return code


class Session:
    """The plugin that pytest has on each rank while a session runs over all of them."""

    def __init__(self, config: pytest.Config, ranks: Ranks, bench: Bench, backend: str, started_mpi: bool) -> None:
        self._config, self._ranks, self._bench = config, ranks, bench
        self._backend, self._started_mpi = backend, started_mpi
        self._adopts = any(getattr(config.option, name, False) for name in SELECTION)
        self._uncollected: list[str] = []
        self._reason = ""
        self._stdout: TextIO | None = None
        self._nowhere: TextIO | None = None
        self._open = False
        if self.rank:
            self._be_silent()

    @property
    def rank(self) -> int:
        """This rank's number."""
        return self._ranks.world.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._ranks.world.size

    def measure(self, test: str, axes: Any) -> Measured:
        """Measure a case on all ranks, for a test that is under way on all of them."""
        from collbench.plan import Case

        case = axes
        if not isinstance(axes, Case):
            case = case_of(axes, ranks=self.size, backend=self._backend, measure=self._bench.scenario.measure)
        self._ranks.at_case(test, case.case_id)
        if not self._open:
            self.open()
        try:
            return self._bench.measure(case, test)
        except Exception:
            raise
        except BaseException as error:  # Ctrl-C, or a timeout of the test: the others are in the midst of it
            if self.size > 1:
                self._ranks.watchdog.die(Interrupted(f"{type(error).__name__} in the midst of a case"))
            raise
        finally:
            self._ranks.busy("test", test)

    def open(self) -> None:
        """Begin the run, once."""
        output = self._config.option.collbench_output
        self._open = True
        self._bench.open(output, keep=output is not None or self._config.option.collbench is not None)

    def close(self) -> None:
        """End the run."""
        if self._open:
            self._ranks.busy("close")
            self._bench.close()
            self._open = False

    def end(self, code: int, failure: BaseException | None) -> int:
        """End the ranks; return the exit code of all: that of rank 0, or the first other than 0."""
        self._speak()
        reason = self._reason or (str(failure) if failure is not None else "")
        told = self._ranks.at_exit(code, reason[-_REASON:])
        if self.rank == 0:
            for rank, (_, other) in enumerate(told):
                if rank and other and other != told[0][1]:
                    sys.stderr.write(f"collbench: {self._ranks.named(rank)} has ended: {other}\n")
        with contextlib.suppress(CollbenchError):
            self.close()
        sys.stdout.flush()
        sys.stderr.flush()
        self._ranks.watchdog.enter("finalize", STOP_TIMEOUT_S)
        if self._started_mpi:
            stop_world(self._ranks.world)
        self._ranks.watchdog.stop()
        if self._nowhere is not None:
            self._nowhere.close()
        return next((code for code, _ in told if code), 0)

    @pytest.hookimpl
    def pytest_configure(self, config: pytest.Config) -> None:
        cache: Any = getattr(config, "cache", None)
        if self.rank and cache is not None:
            cache.set = lambda key, value: None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        self._speak()
        self._ranks.busy("collect")

    def pytest_report_header(self) -> str:
        world, scenario = self._ranks.world, self._bench.scenario
        hosts = len(set(world.hosts))
        return (
            f"collbench: {scenario.title}; {world.size} rank{'s' * (world.size > 1)} on {hosts} "
            f"host{'s' * (hosts > 1)}; {world.library or 'no MPI'}; backend {self._backend}"
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._uncollected.append(f"{report.nodeid}: {_last_line(report.longreprtext)}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        import hashlib

        ids = [item.nodeid for item in session.items]
        digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()
        selected = ids if self._adopts and self.rank == 0 else None
        told = self._ranks.together("collected", "", (digest, len(ids), tuple(self._uncollected), selected))
        for rank, (other, number, uncollected, _) in enumerate(told):
            if uncollected != told[0][2]:
                found = (uncollected or told[0][2])[0]
                where = self._ranks.named(rank if uncollected else 0)
                raise pytest.UsageError(
                    f"collection: {where} could not collect {found}; expected the same on all ranks"
                )
            if not self._adopts and other != told[0][0]:
                raise pytest.UsageError(
                    f"collection: {self._ranks.named(rank)} has {number} tests that are not the {told[0][1]} of rank "
                    "0, or in another order, expected the same on all ranks; let nothing in the collection depend on "
                    "the rank, the host or chance"
                )
        if self._adopts:
            self._adopt(session, told[0][3])

    def _adopt(self, session: pytest.Session, selected: list[str]) -> None:
        """Take the tests that rank 0 has selected, in its order."""
        own = {item.nodeid: item for item in session.items}
        missing = next((nodeid for nodeid in selected if nodeid not in own), "")
        told = self._ranks.together("selected", "", missing)
        for rank, lacks in enumerate(told):
            if lacks:
                raise pytest.UsageError(
                    f"collection: {self._ranks.named(rank)} has no test {lacks}, which rank 0 has selected, expected "
                    "the same on all ranks"
                )
        session.items[:] = [own[nodeid] for nodeid in selected]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        self._ranks.together("begin", "")
        if session.items and not session.testsfailed and not self._config.option.collectonly:
            try:
                self.open()
            except CollbenchError as error:
                raise pytest.UsageError(str(error)) from error
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._ranks.busy("test", item.nodeid)
        result = yield
        session = item.session
        for fail, stop in self._ranks.together("after", item.nodeid, (session.shouldfail, session.shouldstop)):
            session.shouldfail = session.shouldfail or fail
            session.shouldstop = session.shouldstop or stop
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        echo = call.excinfo is not None and isinstance(call.excinfo.value, LeftBehind)
        verdicts = self._ranks.together("phase", f"{item.nodeid} {call.when}", _verdict(report, echo))
        self._ranks.busy("test", item.nodeid)
        lead = agreed(self.rank, verdicts)
        if lead != self.rank:
            self._follow(report, lead, verdicts[lead])
        return report

    def _follow(self, report: pytest.TestReport, lead: int, verdict: Verdict) -> None:
        """Let a report say what another rank's does."""
        where = self._ranks.named(lead)
        report.outcome = verdict.outcome  # type: ignore[assignment]
        vars(report).pop("wasxfail", None)
        text = f"{where}: {verdict.text}" if verdict.text else where
        if verdict.xfail is not None:
            report.wasxfail = verdict.xfail
            report.longrepr = text
        elif verdict.outcome == "skipped":
            report.longrepr = (str(report.location[0]), (report.location[1] or 0) + 1, text)
        else:
            report.longrepr = text
        report.sections += [(f"{name} ({where})", content) for name, content in verdict.sections]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._bench.path is not None:
            if self._bench.note:
                terminalreporter.write_line(f"collbench: {self._bench.note}")
            terminalreporter.write_line(f"collbench: results: {told_path(self._bench.path / 'results.csv')}")

    def pytest_internalerror(self, excrepr: object) -> None:
        self._reason = f"INTERNALERROR: {_last_line(str(excrepr))}"

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if not isinstance(excinfo.value, pytest.Session.Interrupted):
            self._reason = excinfo.exconly()

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        world = self._ranks.world
        machine_info["collbench"] = {
            "ranks": world.size,
            "hosts": len(set(world.hosts)),
            "library": world.library or None,
            "backend": self._backend,
        }

    def _be_silent(self) -> None:
        """On other ranks than 0: pytest's report goes nowhere, and no plugin writes a file."""
        option = self._config.option
        for name, value in SILENT.items():
            if hasattr(option, name):
                setattr(option, name, value)
        if getattr(option, "basetemp", None):
            option.basetemp = Path(f"{option.basetemp}-rank{self.rank}")
        # pytest's reporter keeps the stream that it finds when it is configured.
        self._stdout, self._nowhere = sys.stdout, Path(os.devnull).open("w")  # noqa: SIM115
        sys.stdout = self._nowhere

    def _speak(self) -> None:
        if self._stdout is not None:
            sys.stdout, self._stdout = self._stdout, None


def alone(config: pytest.Config) -> Session:
    """Return a session without --collbench, for tests that use the fixture in one process; else a UsageError."""
    announced = launcher_size()
    if announced is not None and announced[1] > 1:
        raise UsageError(
            f"collective_benchmark: got {announced[1]} ranks and no --collbench, expected it, so that rank 0 alone "
            "reports; add --collbench= to the command"
        )
    if "PYTEST_XDIST_WORKER" in os.environ:
        raise UsageError("collective_benchmark: got a worker of pytest-xdist, expected none; leave -n out")
    world = _no_mpi()
    watchdog = Watchdog()  # not started: nothing can hang where nobody else is
    return Session(config, Ranks(world, watchdog, 0.0), Bench(world, watchdog, None, _plan(())), "loopback", False)


def _no_mpi() -> World:
    return World(hosts=(socket.gethostname(),), alone_because="no mpirun has started pytest")


def _started(config: pytest.Config) -> "Session | int":
    """Bring the ranks up; the exit code where that cannot be, on rank 0 with its reason said."""
    watchdog = Watchdog(launcher_rank(), signals=False, stderr=os.dup(2))  # pytest takes 2 for itself while tests run
    watchdog.remedy = "[measure] timeout and --collbench-timeout give slow operations and slow tests more time"
    watchdog.start()
    watchdog.enter("start", START_TIMEOUT_S)
    world, started_mpi = None, False
    try:
        mpi = sys.modules.get("mpi4py.MPI")
        started_mpi = mpi is None or not mpi.Is_initialized()  # a conftest.py may have
        world = start_world() if launcher_size() is not None else _no_mpi()
        watchdog.rank = world.rank
        return _planned(config, world, watchdog, started_mpi)
    except CollbenchError as error:
        code = _told(str(error), None if world is None else world.rank)
        watchdog.enter("finalize", STOP_TIMEOUT_S)
        if world is not None and started_mpi:
            stop_world(world)
        watchdog.stop()
        return code


def _planned(config: pytest.Config, world: World, watchdog: Watchdog, started_mpi: bool) -> Session:
    from collbench.plan import expand
    from collbench.scenario import load

    # Compiled now: while a test runs it has a deadline.
    import_all("collbench.kernels.call_loop", "collbench.kernels.pattern", "collbench.runner")
    name = config.option.collbench
    backend = default_backend(world)
    scenario = world.from_root(lambda: load(name)) if name else None
    cases: tuple[Any, ...] = ()
    if scenario is not None:
        if scenario.variants:
            raise CannotRun(
                f"{scenario.name}: got variants, which need processes of their own, expected none; "
                "use `collbench launch`"
            )
        cases = expand(scenario, ranks=world.size, backend=backend).cases
        path = Path(scenario.source).resolve()
        config.stash[CASES] = {path: named(cases, backend)}
        _collect(config, path)
    ranks = Ranks(world, watchdog, config.option.collbench_timeout)
    return Session(config, ranks, Bench(world, watchdog, scenario, _plan(cases)), backend, started_mpi)


def _collect(config: pytest.Config, path: Path) -> None:
    """Let pytest collect the scenario: beside the tests that the command line names, not beside all there are."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args[:] = [str(path)]
    elif all(Path(arg.partition("::")[0]).resolve() != path for arg in config.args):
        config.args.append(str(path))


def _plan(cases: tuple[Any, ...]) -> Any:
    from collbench.plan import Plan

    return Plan(cases)


def _told(problem: str, rank: int | None = None) -> int:
    """Say what is wrong on one rank, of which the launcher tells where MPI is not up; the exit code."""
    if rank is None:
        rank = launcher_rank()
        after_rank_0(rank)
    if rank == 0:
        sys.stderr.write("".join(f"ERROR: {line}\n" for line in problem.splitlines()))
        sys.stderr.flush()
    return int(pytest.ExitCode.USAGE_ERROR)


def _say(failure: BaseException) -> None:
    if isinstance(failure, pytest.UsageError):
        _told(str(failure), 0)
    else:
        traceback.print_exception(failure)
    sys.stderr.flush()


def _verdict(report: pytest.TestReport, echo: bool) -> Verdict:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    told = tuple(report.sections) if report.failed else ()
    return Verdict(str(report.outcome), text, getattr(report, "wasxfail", None), told, echo)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
