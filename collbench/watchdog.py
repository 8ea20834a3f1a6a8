"""One thread a rank that makes no MPI call: it owns the signals and the deadline, and ends the process when it must.

The rank's main thread sits in compiled code or in a library's C code, where Python's signal handlers never run and from
where nothing can be raised. So the signals are blocked before any thread exists, and this thread waits for them. What
it has to say goes to the run folder first, since the launcher kills the other ranks within a moment of the first exit
and their output is lost.
"""

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from collbench.errors import CollbenchError, DeadlineExceeded, Interrupted
from collbench.leftovers import segments_of, unlink

SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
POLL_S = 0.25
"""How often the thread looks up: short against a deadline, and its few microseconds are long against nothing."""
SETTLE_S = 2.0
"""After an expiry the other ranks' lines are waited for: they expire at nearly the same moment."""
STOOD_STILL_S = 1.5
"""A watchdog that looks up so late was stopped, as its process was (SIGSTOP, a debugger, a VM that was paused)."""
BACKUP_S = 20.0
"""If this thread cannot run for so long (something holds the GIL), faulthandler's C thread ends the process."""

_ASK_S = 1.0
"""How often libraries are asked for errors of their own threads."""
_ABORT_S = 1.0

Report = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Phase:
    """What the rank is doing: `case` in words, `case_id`, and when it must be over (CLOCK_MONOTONIC seconds)."""

    name: str
    case: str = ""
    case_id: str = ""
    deadline: float | None = None
    timeout_s: float = 0.0


def block_signals() -> None:
    """Block the signals that the watchdog waits for; call it before anything starts a thread."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


class Library(Protocol):
    """What a library that works in threads of its own is asked, from the watchdog's thread."""

    def poll(self) -> str | None:
        """What went wrong, in words."""
        ...

    def abort(self) -> None:
        """End what is under way."""
        ...


class Watchdog:
    """The watchdog of one rank.

    `on_fault` is called with the fault (what `_fault` makes), must write it down at once, and says with True that
    somebody else will tell it to the user; `on_death` is called last, after the other ranks had time to write theirs.
    `libraries` are asked every second whether something went wrong in threads of their own, and to abort what is under
    way before the process ends. `signals` says whether it waits for the signals, which must be blocked then; `stderr`
    is the descriptor that it speaks on.
    """

    remedy = "[measure] timeout gives slow operations more time"
    """What the user may do where a deadline was too short."""

    def __init__(self, rank: int = 0, *, signals: bool = True, stderr: int = 2) -> None:
        self.rank = rank
        self._signals, self._stderr = signals, stderr
        self.on_fault: Report = lambda fault: False
        self.on_death: Report = lambda fault: None
        self.libraries: list[Library] = []
        self._phase = Phase("start")
        self._parent = os.getppid()
        self._dying = threading.Lock()
        self._backup_armed_until = 0.0
        self._still = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch; the process goes on alone."""
        self._stopped.set()
        self._thread.join(2 * POLL_S + 1)
        faulthandler.cancel_dump_traceback_later()

    def enter(self, name: str, timeout_s: float, case: str = "", case_id: str = "") -> None:
        """Say what begins now and how long it may take without another `enter`."""
        self._phase = Phase(name, case, case_id, time.monotonic() + timeout_s, timeout_s)

    def extend(self) -> None:
        """Start the present phase's time anew: there was progress."""
        phase = self._phase
        if phase.deadline is not None:
            self._phase = Phase(
                phase.name, phase.case, phase.case_id, time.monotonic() + phase.timeout_s, phase.timeout_s
            )

    @property
    def phase(self) -> Phase:
        """What the rank is doing."""
        return self._phase

    def die(self, error: CollbenchError, *, settle: bool = False) -> None:
        """Write the error down, say it, and end the process with its exit code, whatever the other ranks do."""
        if not self._dying.acquire(blocking=False):  # the other thread is at it already
            time.sleep(SETTLE_S + BACKUP_S)
        fault = self._fault(error)
        try:
            if not self.on_fault(fault):
                where = f"phase {fault['phase']}" + (f" of {fault['case']}" if fault["case"] else "")
                self._say(f"rank {self.rank} on {fault['host']}: {error} ({where})")
            settle_s = SETTLE_S / 2 if settle else 0.0
            time.sleep(settle_s)
            self._abort()
            self.on_death(fault)
            time.sleep(settle_s)  # the first exit would end the rank that is at it
        finally:
            try:
                unlink(segments_of([os.getpid()]))  # no MPI_Finalize will do it
            finally:
                os._exit(error.exit_code)

    def _abort(self) -> None:
        """Let the libraries abort, as long as that does not take long: the process ends in any event."""
        if not self.libraries:
            return

        def abort() -> None:
            for library in self.libraries:
                library.abort()

        thread = threading.Thread(target=abort, daemon=True)
        thread.start()
        thread.join(_ABORT_S)

    def _ask(self) -> None:
        for library in self.libraries:
            if (problem := library.poll()) is not None:
                self.die(CollbenchError(problem))

    def tell(self, error: CollbenchError) -> None:
        """Write down or say an error that all ranks end with in order; one of them says it."""
        if not self.on_fault(self._fault(error) | {"everyone": True}):
            self._say(str(error))

    def _fault(self, error: CollbenchError) -> dict[str, Any]:
        phase = self._phase
        return {
            "rank": self.rank,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "phase": phase.name,
            "case": phase.case,
            "case_id": phase.case_id,
            "at": self._main_thread_is_at(),
            "stood_still": bool(self._still),
            "reason": str(error),
            "exit_code": error.exit_code,
        }

    def _main_thread_is_at(self) -> str:
        """The line of Python that the rank's main thread is in; nothing where it is the one that asks."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        if frame is None or threading.current_thread() is threading.main_thread():
            return ""
        return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"

    def _watch(self) -> None:
        looked_up, still_until, asked = time.monotonic(), 0.0, 0.0
        while not self._stopped.is_set():
            caught = self._caught()
            if self._stopped.is_set():
                return
            gap, looked_up = time.monotonic() - looked_up, time.monotonic()
            if gap > STOOD_STILL_S:
                self._still, still_until = f" after it had stood still for {gap:.1f} s (stopped?)", looked_up
            phase = self._phase
            if phase.deadline is not None and still_until < phase.deadline - phase.timeout_s:
                self._still = ""
            # After a SIGSTOP and SIGCONT that took longer than POLL_S, CPython's sigtimedwait returns without a signal,
            # with whatever was in memory.
            if caught is not None and caught.si_signo in SIGNALS:
                name = signal.Signals(caught.si_signo).name
                self.die(Interrupted(f"got {name}{self._still}: the user, the launcher or the system ended this rank"))
            now = time.monotonic()
            if now > asked + _ASK_S:
                asked = now
                self._ask()
            if os.getppid() != self._parent:
                self.die(Interrupted("the launcher is gone, so this rank ends too"))
            if phase.deadline is not None and now > phase.deadline:
                self.die(
                    DeadlineExceeded(f"no progress for {phase.timeout_s:g} s{self._still}; {self.remedy}"),
                    settle=True,
                )
            if now > self._backup_armed_until - BACKUP_S / 2:
                faulthandler.dump_traceback_later(BACKUP_S + SETTLE_S, exit=True, file=self._stderr)
                self._backup_armed_until = now + BACKUP_S

    def _caught(self) -> signal.struct_siginfo | None:
        """Wait until a signal comes or it is time to look up."""
        if self._signals:
            return signal.sigtimedwait(SIGNALS, POLL_S)
        self._stopped.wait(POLL_S)
        return None

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # whoever read it, mpirun perhaps, is gone
            os.write(self._stderr, f"collbench: {text}\n".encode())
