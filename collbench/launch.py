"""Starts mpirun (or srun) for the user, once for each launch, and accounts for however it ends."""

import ctypes
import os
import random
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from collbench import choices
from collbench.backends import DEFAULT, backend_named
from collbench.books import LAUNCHED, TERMINAL, shown_path
from collbench.errors import CannotRun, CollbenchError, Interrupted, UsageError
from collbench.faults import Fault, Reason, account_for, hosts_in, reason_of
from collbench.launcher import command_of, crosses_hosts, default_ranks, find_launcher
from collbench.leftovers import kill, processes_with, remove_session, segments_of, unlink
from collbench.listing import default_backend_here
from collbench.output import complain, tell
from collbench.results import RunFolder
from collbench.runs import begin_run, check_launches, drop_unfinished, open_run, resumed_by
from collbench.samples import check_available
from collbench.scenario import Scenario, Variant, load

_TERM_GRACE_S = 8.0
"""From TERM to KILL: Open MPI's own escalation takes 5 s, a rank's last word at most 2 s."""
_POLL_S = 0.1
_START_LIMIT_S = 180.0
"""A launcher that has not brought rank 0 up by then (an ssh that waits for a password) is ended."""
_LOOK_S = 1.0
"""How often the folder is looked at for a rank's last word, after which the launcher must end within the grace."""
_LAST_WORD_S = 2.0
"""Time for ranks that outlive their launcher: their watchdogs see it gone within 0.25 s."""
_PR_SET_PDEATHSIG = 1
_NOT_UP = 213
"""Of Open MPI's mpirun, where its own server did not come up (its listener's thread failed, once in some hundred starts
under load): none of our processes has run."""
IN_ORDER = (0, 3, 5, 7)
"""Exit codes of a launch after which the next one has its turn."""
_KNOWN_CODES = frozenset({2, 4, 7})
"""Exit codes that ranks end with where they cannot write to the folder. (MPICH's mpirun also ends with the number of a
signal that a rank died of.)"""


@dataclass(frozen=True)
class LaunchOptions:
    """What `collbench launch` was told."""

    scenario: str
    ranks: int | None = None
    launches: int | None = None
    launcher: str = ""
    launcher_args: str = ""
    output: Path | None = None
    resume: bool = False
    choices: bool = True
    quiet: bool = False


@dataclass
class Signals:
    """Remembers SIGINT and SIGTERM while a launch runs."""

    got: list[int] = field(default_factory=list)

    def __enter__(self) -> "Signals":
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.got.append(number)


def launch(options: LaunchOptions) -> int:
    """Run a scenario in as many launches as asked for; the exit code of the worst."""
    scenario = load(options.scenario)
    launcher = find_launcher(options.launcher)
    if scenario.measure.samples:
        check_available()
    if options.resume:
        folder, ranks, launches = _resumed(options, scenario)
        words, variables = command_of(launcher, ranks, options.launcher_args)
    else:
        ranks, launches = options.ranks or default_ranks(), options.launches or 1
        words, variables = command_of(launcher, ranks, options.launcher_args)
        folder = begin_run(options.output, scenario, options.scenario, ranks, launches)
    folder.unlock()  # rank 0 holds it while a launch runs
    compile_kernels(scenario)
    exported = crosses_hosts(launcher, options.launcher_args)
    starter = Starter(folder, ranks, launches, words, variables, exported, options.quiet)
    codes = []
    with Signals() as signals:
        if options.choices:
            starter.ask_choices(scenario, scenario.variants or (None,), signals)
        for number, variant in _order(scenario, launches) if not signals.got else ():
            codes.append(starter.start(signals, variant, "--launch", str(number)))
            # A resume goes on, or a case that always ends its launch would keep those that follow from theirs; but not
            # after what is refused, since each launch would refuse it.
            refused = codes[-1] == UsageError.exit_code
            if signals.got or refused or (codes[-1] not in IN_ORDER and not options.resume):
                break
    if options.quiet and folder.results_path.exists():
        tell(str(shown_path(folder.results_path)))
    return Interrupted.exit_code if signals.got else worst(codes)


def worst(codes: Sequence[int]) -> int:
    """The exit code of several launches."""
    return next((code for code in (3, 4, 1, 2, 130, 5, 6) if code in codes), max(codes, default=0))


@dataclass(frozen=True)
class Starter:
    """Starts the launches of one run folder, and accounts for however each ends.

    `command` is the launcher's, up to the program, and `variables` what it needs. The words of `prefix` come before all
    of it; what they start (a container, perhaps) need not inherit the environment.
    """

    folder: RunFolder
    ranks: int
    launches: int
    command: Sequence[str]
    variables: Mapping[str, str]
    exported: bool = False
    quiet: bool = False
    python: str = ""
    prefix: Sequence[str] = ()

    def start(self, signals: Signals, variant: Variant | None, *more: str) -> int:
        """Start a launch of one variant and wait for it; its exit code."""
        program = [self.python or sys.executable, "-m", "collbench", "run", str(self.folder.scenario_path)]
        program += ["--output", str(self.folder.path), "--launches", str(self.launches), *more]
        program += ["--variant", variant.name] if variant else []
        program += ["--quiet"] if self.quiet else []
        settings = {**self.variables, **(dict(variant.env) if variant else {})}
        passed = [word for name in [*settings, LAUNCHED] for word in ("-x", name)] if self.exported else []
        command = [*self.command, *passed, *program]
        if not self.quiet:
            shown = [f"{name}={shlex.quote(value)}" for name, value in settings.items()]
            tell(" ".join(["$", *self.prefix, *shown, shlex.join(command)]))
        return _one(command, settings, self.folder, signals, self.ranks, self.prefix)

    def ask_choices(self, scenario: Scenario, variants: Iterable[Variant | None], signals: Signals) -> None:
        """Let the libraries say what they choose, once for each variant, where they can."""
        if not _tells_choices(scenario, self.ranks):
            return
        for variant in variants:
            # Of no weight: what goes wrong here goes wrong in what is timed as well.
            if not signals.got and not choices.there(self.folder.path, variant.name if variant else ""):
                self.start(signals, variant, "--choices")


def _tells_choices(scenario: Scenario, ranks: int) -> bool:
    """Whether a library here may be asked what it chooses: one whose log is not the user's own."""
    if "NCCL_DEBUG" in os.environ:
        return False
    default = default_backend_here(ranks)
    named = {default if name == DEFAULT else name for sweep in scenario.sweeps for name in sweep.backends}
    kinds = [backend_named(name) for name in named]
    return any(kind.tells_choices and kind.unavailable() is None for kind in kinds)


def _resumed(options: LaunchOptions, scenario: Scenario) -> tuple[RunFolder, int, int]:
    """Open the run to complete, check that it is of this scenario, and take out the rows that are measured anew."""
    assert options.output is not None
    if (whole := resumed_by(options.output)) != options.output:
        raise UsageError(f"--resume: got {options.output}, a side of an A/B, expected all of it: --resume {whole}")
    info = RunFolder.open(options.output).read_info()
    if options.ranks not in (None, info.ranks):
        raise UsageError(f"--resume: got -n {options.ranks}, expected {info.ranks} ranks as the run began with")
    check_launches(info, options.launches)
    folder = open_run(options.output, scenario, info.ranks)
    drop_unfinished(folder)
    return folder, info.ranks, info.launches


def _order(scenario: Scenario, launches: int) -> Iterator[tuple[int, Variant | None]]:
    """Interleave: each round has every variant once, in an order of its own, so that no variant has the quiet hours."""
    for number in range(launches):
        yield from ((number, variant) for variant in shuffled(scenario.variants or (None,), scenario, number))


def shuffled(variants: Sequence[Variant | None], scenario: Scenario, number: int) -> list[Variant | None]:
    """The variants of a launch in the order of that launch."""
    order = list(variants)
    random.Random(f"{scenario.measure.seed}:{number}").shuffle(order)
    return order


def compile_kernels(scenario: Scenario) -> None:
    """Compile the kernels once, before the ranks need them all at the same time."""
    import collbench.kernels.call_loop
    import collbench.kernels.pattern

    if any("clock" in sweep.syncs for sweep in scenario.sweeps):
        import collbench.kernels.start_at
    if any(sweep.kind == "replay" for sweep in scenario.sweeps):
        import collbench.kernels.spin  # noqa: F401


def _one(
    command: list[str],
    settings: Mapping[str, str],
    folder: RunFolder,
    signals: Signals,
    ranks: int,
    prefix: Sequence[str] = (),
) -> int:
    """Start one launch, wait for it or end it, and account for the case that it may have died in."""
    code, start = _started(command, settings, folder, signals, prefix)
    spoken = any(one.get("start") == start for one in folder.read_faults())
    if code == _NOT_UP and not (spoken or signals.got):
        complain(f"{Path(command[0]).name} did not come up (exit code {code}) and started nothing; once more")
        code, start = _started(command, settings, folder, signals, prefix)
    ending = folder.take_ending(start)
    if ending is not None and code in (0, ending) and not signals.got:
        return ending
    return _accounted(command, folder, signals, ranks, code, start)


def _started(
    command: list[str], settings: Mapping[str, str], folder: RunFolder, signals: Signals, prefix: Sequence[str]
) -> tuple[int, str]:
    """Start the launcher and wait for it: its exit code, and the word that names this start."""
    start = uuid.uuid4().hex[:12]
    added = {**settings, LAUNCHED: start}
    if sys.stdout.isatty():
        added[TERMINAL] = "1"
    if prefix:  # a container has an environment of its own
        command = [*prefix, "env", *(f"{name}={value}" for name, value in added.items()), *command]
    # A session of its own: Ctrl-C reaches us alone, and we end the launch in order.
    try:
        process = subprocess.Popen(
            command, env=os.environ | added, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_tether()
        )
    except OSError as error:
        raise CannotRun(f"{command[0]}: got {error}, expected a launcher that can be started") from error
    return _wait(process, folder, signals, start), start


def _accounted(command: list[str], folder: RunFolder, signals: Signals, ranks: int, code: int, start: str) -> int:
    """Say why a launch did not end in order, and give the case that it died in its row; the exit code."""
    name = Path(command[0]).name
    reason = reason_of(_faults(folder, start), hosts_in(folder, ranks), ended_by_us=bool(signals.got))
    if signals.got and (reason is None or reason.status == "failed"):
        told = f"interrupted by {signal.Signals(signals.got[0]).name}"
        reason = Reason("failed", told, Interrupted.exit_code)
    elif reason is None:
        known = code if code in _KNOWN_CODES else CollbenchError.exit_code
        text = f"{name} ended with {_ending(code)} and no rank left a word in the run folder"
        if code == 0:
            text += f"; is {command[0]} an mpirun that starts what it is given?"
        reason = Reason("failed", text, known)
    elif code < 0:
        text = f"{name} ended with {_ending(code)}; then {reason.text}"
        reason = Reason(reason.status, text, CollbenchError.exit_code if reason.status == "failed" else 4)
    case = ""
    try:
        record = account_for(folder, start, reason.status, reason.text)
        if record is not None and "(phase " not in reason.text:
            case = f" in the case {record.case_id} ({record.collective} {record.requested_bytes} B {record.caller})"
    except CollbenchError as error:
        case = f"; the case in progress has no row ({error})"
    folder.unlock()
    complain(f"collbench: {reason.text}{case}{_keep(folder)}")
    return Interrupted.exit_code if signals.got else reason.exit_code


def _faults(folder: RunFolder, start: str) -> list[Fault]:
    return [fault for fault in folder.read_faults() if fault.get("start") == start]


def _keep(folder: RunFolder) -> str:
    if not folder.results_path.exists():
        return ""
    resume = f"collbench launch --resume {resumed_by(folder.path)}"
    return f"; finished rows are in {folder.results_path}, and `{resume}` completes them"


def _ending(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    # Shells and mpirun pass a rank's signal on as 128 and its number, MPICH's as the number.
    of_rank = {9: "SIGKILL", 11: "SIGSEGV", 134: "SIGABRT", 135: "SIGBUS", 137: "SIGKILL", 139: "SIGSEGV"}.get(code)
    return f"exit code {code}" + (f" (a rank died of {of_rank}, it seems)" if of_rank else "")


def _tether() -> Callable[[], None]:
    """What a launcher's process does before it starts: ask the kernel for a TERM when we are gone, however we went."""
    libc, parent = ctypes.CDLL(None), os.getpid()

    def work() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return work


def _wait(process: "subprocess.Popen[bytes]", folder: RunFolder, signals: Signals, start: str) -> int:
    """Wait for the launcher; pass signals on as TERM, end what does not end by itself, and leave nothing behind."""
    kill_at: float | None = None
    began = looked = time.monotonic()
    before, up, segments = _locked_at(folder), False, set[Path]()
    doomed_at: float | None = None
    while True:
        try:
            code = process.wait(_POLL_S)
            break
        except subprocess.TimeoutExpired:
            pass
        now = time.monotonic()
        if not up and _locked_at(folder) != before:  # rank 0 is up, and so is MPI
            up = True
            segments = segments_of(processes_with(LAUNCHED, start))
        if doomed_at is None and now > looked + _LOOK_S:
            looked = now
            if not up and now > began + _START_LIMIT_S:
                doomed_at = now
            elif _faults(folder, start):
                doomed_at = now + _TERM_GRACE_S
        if kill_at is None and (signals.got or (doomed_at is not None and now > doomed_at)):
            process.send_signal(signal.SIGTERM)
            kill_at = now + _TERM_GRACE_S
        elif kill_at is not None and now > kill_at:
            kill(processes_with(LAUNCHED, start))
    deadline = time.monotonic() + _LAST_WORD_S
    while processes_with(LAUNCHED, start) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    left = processes_with(LAUNCHED, start)
    segments |= segments_of(left)
    kill(left)
    unlink(segments)
    if code < 0:
        remove_session(process.pid)
    return code


def _locked_at(folder: RunFolder) -> int:
    """When rank 0 of a launch last took the folder's lock: its first sign of life."""
    try:
        return (folder.path / "lock").stat().st_mtime_ns
    except OSError:
        return 0
