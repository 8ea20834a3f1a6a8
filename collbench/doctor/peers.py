"""Waiting for the peers of a launch: in a pod's init container, before a launcher that would not wait.

A launcher that starts before the workers' sshd answers fails at once (mpi-operator#386, #424, #443, #472); a name that
does not resolve yet is one of the ways in which a pod is not there yet.
"""

import queue
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from collbench.doctor.finding import Finding
from collbench.errors import DeadlineExceeded, UsageError

CHECK = "peers"
HOSTFILE = "/etc/mpi/hostfile"
"""Where the MPI operator of Kubeflow puts it."""
SSH = 22

_CONNECT_S = 2.0
_PAUSE_S = 0.5
_MOST_THREADS = 64
_MOST_NAMED = 8


def peers_of(listed: str | None, hostfile: str = HOSTFILE) -> list[str]:
    """The hosts to wait for: those of a list with commas, else those of the hostfile; a UsageError without either."""
    if listed is not None:
        names = [name.strip() for name in listed.split(",")]
        if not all(names):
            raise UsageError(f"--peers: got {listed!r}, expected names of hosts with commas between them")
        return list(dict.fromkeys(names))
    names = hosts_in(hostfile)
    if not names:
        raise UsageError(
            f"--wait: got no peers and no {hostfile}, expected --peers HOST,HOST; or start it under mpirun"
        )
    return names


def hosts_in(hostfile: str) -> list[str]:
    """The hosts of a hostfile of Open MPI (`host slots=2`) or of MPICH and Intel MPI (`host:2`); none without one."""
    try:
        lines = Path(hostfile).read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = (line.partition("#")[0].split() for line in lines)
    names = (first[0] for first in words if first)
    return list(dict.fromkeys(name if name.count(":") > 1 else name.partition(":")[0] for name in names))


def wait(peers: Sequence[str], port: int, seconds: float) -> Finding:
    """Wait until all peers take a TCP connection; DeadlineExceeded names those that did not, and why."""
    began = time.monotonic()
    deadline = began + seconds
    to_try: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    for peer in peers:
        to_try.put(peer)
    for _ in range(min(_MOST_THREADS, len(peers))):
        # Daemons: a name server that never answers must not keep the process.
        threading.Thread(target=_ask, args=(to_try, answers, port, deadline), name="peer", daemon=True).start()
    reasons = dict.fromkeys(peers, "no answer yet")
    while reasons:
        left = deadline - time.monotonic()
        try:
            peer, reason = answers.get(timeout=max(left, 0.001))
        except queue.Empty:
            break
        if reason:
            reasons[peer] = reason
        else:
            reasons.pop(peer, None)
    if not reasons:
        took = time.monotonic() - began
        return Finding(CHECK, "ok", f"all {len(peers)} peers answer on port {port} after {took:.1f} s")
    told = ", ".join(f"{peer} ({reason})" for peer, reason in list(reasons.items())[:_MOST_NAMED])
    more = f" and {len(reasons) - _MOST_NAMED} more" if len(reasons) > _MOST_NAMED else ""
    raise DeadlineExceeded(
        f"--wait: got no answer on port {port} from {told}{more} within {seconds:g} s, expected one from all "
        f"{len(peers)} peers; look at their pods and at what they run on that port, or wait longer"
    )


def _ask(
    to_try: "queue.SimpleQueue[str]", answers: "queue.SimpleQueue[tuple[str, str]]", port: int, deadline: float
) -> None:
    """Take peers one by one, and put back those that do not answer yet."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            peer = to_try.get(timeout=left)
        except queue.Empty:
            return
        reason = _problem(peer, port, min(_CONNECT_S, left))
        answers.put((peer, reason))
        if reason:
            time.sleep(min(_PAUSE_S, max(0.0, deadline - time.monotonic())))
            to_try.put(peer)


def _problem(peer: str, port: int, seconds: float) -> str:
    """Why a peer does not take a connection; empty if it does."""
    try:
        with socket.create_connection((peer, port), timeout=seconds):
            return ""
    except socket.gaierror:
        return "its name does not resolve"
    except TimeoutError:
        return "no answer to a connection"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    except UnicodeError:  # a name that cannot be one
        return "its name is none"
