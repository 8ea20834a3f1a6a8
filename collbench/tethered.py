"""A program that never outlives the rank that started it, nor its time limit."""

import subprocess
import sys
import time
from os import getpid
from pathlib import Path
from typing import Self

_POLL_S = 0.01
_LISTEN = "0A"
"""TCP_LISTEN in /proc/net/tcp."""

_TETHER = """
import ctypes, os, signal, sys
signal.pthread_sigmask(signal.SIG_SETMASK, [])
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error}")
"""
"""Becomes the program, which the kernel ends when its parent is gone (PR_SET_PDEATHSIG). It is a process between since
a rank has threads: Python code between its fork and the start of a program could wait for one of theirs for ever."""


class Tethered:
    """The program, from its start to the end of the `with`."""

    def __init__(self, words: list[str]) -> None:
        self.name = words[0]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _TETHER, str(getpid()), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self.out, self.err = "", ""
        self.code: int | None = None
        """The exit code; None where its time was up and it was ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdout is not None and not self._process.stdout.closed:  # nobody has waited for it
            self.kill()
            self._process.communicate()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def listens(self, port: int, limit_s: float) -> bool:
        """Wait until a TCP port of this host takes connections; False where the program ended, or has not by then."""
        deadline = time.monotonic() + limit_s
        while self._process.poll() is None and time.monotonic() < deadline:
            if _open(port):
                return True
            time.sleep(_POLL_S)
        return False

    def wait(self, limit_s: float) -> int | None:
        """Wait until it has ended, and end it where it has not by then; its exit code, or None."""
        try:
            self.out, self.err = self._process.communicate(timeout=max(0.0, limit_s))
            self.code = self._process.returncode
        except subprocess.TimeoutExpired:
            self.kill()
            self.out, self.err = self._process.communicate()
        return self.code

    @property
    def last_words(self) -> str:
        """What it wrote on stderr, as one line, else its last line on stdout."""
        lines = [[line.strip() for line in text.splitlines() if line.strip()] for text in (self.err, self.out)]
        return ("; ".join(lines[0]) or next(reversed(lines[1]), "") or "it said nothing")[:300]


def _open(port: int) -> bool:
    """Whether a TCP port of this host is listened at, IPv4 or IPv6."""
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        if any(cells[1].endswith(f":{port:04X}") and cells[3] == _LISTEN for cells in map(str.split, lines)):
            return True
    return False
