"""A run folder: rows that are on disk before the next case starts, and what a resume and a reader need.

```
<run>/results.csv        one row a case, group and launch
<run>/scenario.toml      the scenario as it was run
<run>/run.json           what a resume must agree with (RunInfo)
<run>/environment.json   what ran where; environment-<launch>.json for a later launch that differs
<run>/pending.json       the case that is running now; left behind by a run that died
<run>/tries.json         how often each case was begun without an end; a resume measures these last
<run>/ended-<start>.json the exit code of a launch, until `collbench launch` has read it
<run>/faults/            one file a rank that had to say something before it ended
<run>/lock               held (flock) while a run writes the folder
```
Every method may be called from any thread. `write_fault`, `set_pending`, `clear_pending` and `take_pending` wait for
no other thread: they serve a watchdog whose main thread hangs.
"""

import contextlib
import csv
import dataclasses
import io
import json
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from collbench.durable import append_durably, lock_file, sentences, sync_folder, write_atomically
from collbench.errors import CollbenchError, UsageError
from collbench.record import HEADER, Record, from_row, to_row
from collbench.results_text import line_of, to_json, whole_length

RESULTS = "results.csv"
LOCK_WAIT_S = 5.0
"""How long a lock is waited for: the ranks of a killed run are gone within a few seconds."""
OTHER_THREAD_WAIT_S = 10.0
"""How long an append waits for another thread's: a thread that hangs in fsync must not hang the watchdog as well."""

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """What a resume must agree with: the scenario's name and digest, the ranks, the launches, the devices.

    `created` is in UTC. `devices[variant][rank]` are UUIDs; a variant that uses none, or has not begun, is not in it.
    """

    scenario: str
    scenario_digest: str
    ranks: int
    created: str
    launches: int = 1
    devices: Mapping[str, Sequence[Sequence[str]]] = dataclasses.field(default_factory=dict)


class RunFolder:
    """The folder of one run; `create` makes a new one, `open` takes one that exists."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.RLock()
        self._lock_fd: int | None = None
        self._checked = False

    @classmethod
    def create(cls, name: str, path: Path | None = None, parent: Path = Path("results")) -> Self:
        """Make `path`, or a new folder under `parent` that is named by the time (UTC) and the scenario's `name`.

        A `path` that exists must be an empty folder.
        """
        if path is not None:
            with sentences(path, "make the run folder"):
                path.mkdir(parents=True, exist_ok=True)
                if any(path.iterdir()):
                    raise UsageError(
                        f"{path}: got a folder with files in it, expected an empty one; resume it or name another"
                    )
            return cls(path)
        stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('.-') or 'run'}"
        with sentences(parent, "make a run folder in it"):
            parent.mkdir(parents=True, exist_ok=True)
            number = 1
            while True:
                candidate = parent / (stem if number == 1 else f"{stem}-{number}")
                # mkdir either makes the folder or fails: of two runs that start in the same second, each gets its own.
                with contextlib.suppress(FileExistsError):
                    candidate.mkdir()
                    return cls(candidate)
                number += 1

    @classmethod
    def open(cls, path: Path) -> Self:
        """Take a run folder that exists."""
        if not path.is_dir():
            raise UsageError(f"{path}: got {'a file' if path.exists() else 'nothing'}, expected a run folder")
        return cls(path)

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def results_path(self) -> Path:
        return self.path / RESULTS

    @property
    def scenario_path(self) -> Path:
        return self.path / "scenario.toml"

    def lock(self, wait_s: float = LOCK_WAIT_S) -> None:
        """Lock the folder for this process until `unlock` or its end; a folder that stays busy is a UsageError."""
        path = self.path / "lock"
        with self._guarded():
            if self._lock_fd is not None:
                return
            with sentences(path, "lock the run folder"):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                try:
                    lock_file(descriptor, path, wait_s)
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
                except BaseException:
                    os.close(descriptor)
                    raise
            self._lock_fd = descriptor

    def unlock(self) -> None:
        """Let go of the lock, if this process holds it."""
        with self._guarded():
            if self._lock_fd is not None:
                os.close(self._lock_fd)
                self._lock_fd = None
                self._checked = False

    def __enter__(self) -> Self:
        self.lock()
        return self

    def __exit__(self, *_: object) -> None:
        self.unlock()

    def append(self, records: Iterable[Record]) -> None:
        """Append the rows and return when they are on disk; either all of them are there, or none.

        Locks the folder if it is not locked yet. A full disk is a CollbenchError, a read-only folder a UsageError.
        """
        text = "".join(line_of(to_row(record)) for record in records)
        if not text:
            return
        with self._guarded():
            if not self._checked:
                self.repair()
                self.check_header()
                self._checked = True
            with sentences(self.results_path, "append rows"):
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                descriptor = os.open(self.results_path, flags, 0o666)
                try:
                    size = os.fstat(descriptor).st_size
                    append_durably(descriptor, size, (text if size else line_of(HEADER) + text).encode())
                    if not size:
                        sync_folder(self.path)
                finally:
                    os.close(descriptor)

    def read(self) -> list[Record]:
        """Read all whole rows; a folder without rows yet is an empty list."""
        return read(self.results_path) if self.results_path.exists() else []

    def drop(self, unwanted: Callable[[Record], bool]) -> int:
        """Take rows out, all at once, and say how many; locks the folder if it is not locked yet."""
        with self._guarded(), sentences(self.results_path, "rewrite it"):
            self.lock()
            rows = self.read()
            kept = [row for row in rows if not unwanted(row)]
            if len(kept) < len(rows):
                text = line_of(HEADER) + "".join(line_of(to_row(row)) for row in kept)
                write_atomically(self.results_path, text, durable=True)
            return len(rows) - len(kept)

    def repair(self) -> str:
        """Cut off a last line that is not whole, as a crash may leave it, and return what was cut.

        Locks the folder if it is not locked yet.
        """
        with self._guarded(), sentences(self.results_path, "repair it"):
            self.lock()
            try:
                content = self.results_path.read_bytes()
            except FileNotFoundError:
                return ""
            whole = whole_length(content)
            if whole < len(content):
                with self.results_path.open("r+b") as file:
                    file.truncate(whole)
                    os.fsync(file.fileno())
            return content[whole:].decode(errors="replace")

    def check_header(self) -> None:
        """Refuse to add rows to a file that does not begin as this version writes it: a UsageError says why."""
        try:
            with self.results_path.open(encoding="utf-8", newline="") as file:
                first = file.readline()
        except FileNotFoundError:
            return
        plain = first.removeprefix("\ufeff").replace("\r", "")
        if first != plain == line_of(HEADER):
            raise UsageError(
                f"{self.results_path}: got line ends or a byte order mark of an editor or a table program, expected "
                "the file as collbench wrote it; save it as UTF-8 without a mark, with line ends of LF"
            )
        if first and first != line_of(HEADER):
            raise UsageError(
                f"{self.results_path}: got the columns of another version of collbench, expected this version's; "
                "start a new run folder"
            )

    def write_scenario(self, text: str) -> None:
        """Keep the scenario as it was run."""
        self._write("scenario.toml", text)

    def write_info(self, info: RunInfo) -> None:
        """Write down what a resume must agree with."""
        self._write("run.json", to_json(dataclasses.asdict(info)))

    def read_info(self) -> RunInfo:
        """Read what a resume must agree with; a folder without it is a UsageError."""
        path = self.path / "run.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            found = {"devices": {}} | found  # an earlier version's run has none
            return RunInfo(**{field.name: found[field.name] for field in dataclasses.fields(RunInfo)})
        except FileNotFoundError:
            raise UsageError(f"{path}: got nothing, expected what a run writes first; start a new run") from None
        except OSError as error:
            got = f"no text ({error.strerror or error})"
        except ValueError:
            got = "text that is not JSON"
        except TypeError:
            got = "JSON that is no object"
        except KeyError as error:
            got = f"no {error.args[0]}"
        raise UsageError(f"{path}: got {got}, expected what a run writes first; start a new run")

    def write_environment(self, launch: int, environment: Mapping[str, object]) -> Path:
        """Write down what ran where; a later launch gets a file of its own where it differs from the first."""
        text = to_json(environment)
        name = "environment.json"
        with contextlib.suppress(FileNotFoundError):
            if (self.path / name).read_text(encoding="utf-8") != text:
                name = f"environment-{launch}.json"
        self._write(name, text)
        return self.path / name

    def set_pending(self, text: str) -> None:
        """Leave word of the case that starts now: JSON of what its rows are to hold."""
        # Not durable on purpose: it serves a process that dies, and costs a case no wait for the disk.
        self._write("pending.json", text, durable=False)

    def clear_pending(self) -> None:
        """Take back the word: the case has its rows."""
        with sentences(self.path, "clear the pending case"):
            (self.path / "pending.json").unlink(missing_ok=True)

    def take_pending(self) -> str | None:
        """Return what `set_pending` left and clear it; of two callers only one gets it.

        A run that died between its append and `clear_pending` leaves a case that has its rows: compare the keys.
        """
        taken = self.path / f".pending-{os.getpid()}-{threading.get_ident()}"
        with sentences(self.path, "take the pending case"):
            try:
                (self.path / "pending.json").rename(taken)
                text = taken.read_text(encoding="utf-8")
            except FileNotFoundError:
                return None
            taken.unlink()
            return text

    def remove_halves(self) -> None:
        """Remove what a process that was killed while it wrote a file left of it; the folder must be locked."""
        for half in self.path.glob(".*-*-*"):
            with sentences(half, "remove it"):
                half.unlink(missing_ok=True)

    def write_tries(self, tries: Mapping[str, int]) -> None:
        """Write down how often each case was begun without an end."""
        self._write("tries.json", to_json(tries))

    def read_tries(self) -> dict[str, int]:
        """Read how often each case was begun without an end; a folder without such cases is an empty dict."""
        try:
            found = json.loads((self.path / "tries.json").read_text(encoding="utf-8"))
            return {str(case_id): int(number) for case_id, number in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):  # only the order of the cases is in it
            return {}

    def write_ending(self, start: str, code: int) -> None:
        """Say that the launch that was started as `start` ended in order, with this exit code."""
        self._write(f"ended-{start}.json", json.dumps({"exit_code": code}), durable=False)

    def take_ending(self, start: str) -> int | None:
        """Return the exit code of the launch that was started as `start`, and clear it; None where it had no end.

        Each start has a file of its own: another one, which found everything done, may have ended meanwhile.
        """
        path = self.path / f"ended-{start}.json"
        try:
            code = int(json.loads(path.read_text(encoding="utf-8"))["exit_code"])
        except (OSError, ValueError):
            return None
        with contextlib.suppress(OSError):
            path.unlink()
        return code

    def write_fault(self, rank: int, fault: Mapping[str, object]) -> bool:
        """Write down at once why a rank ends, and say whether that worked; it raises no OSError on the way down."""
        line = (json.dumps({**fault, "rank": rank}, default=str) + "\n").encode()
        try:
            folder = self.path / "faults"
            folder.mkdir(exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(folder / f"rank-{rank}.jsonl", flags, 0o666)
            try:
                return os.write(descriptor, line) == len(line)
            finally:
                os.close(descriptor)
        except OSError:
            return False

    def read_faults(self) -> list[dict[str, Any]]:
        """Read what the ranks wrote, by rank; of a torn line remains `{"rank": ..., "unreadable": ...}`."""
        faults = []
        for path in (self.path / "faults").glob("rank-*.jsonl"):
            rank = int(path.stem.removeprefix("rank-"))
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    faults.append({"rank": rank, **json.loads(line)})
                except (ValueError, TypeError):
                    faults.append({"rank": rank, "unreadable": line})
        return sorted(faults, key=lambda fault: int(fault["rank"]))

    def _write(self, name: str, text: str, durable: bool = True) -> None:
        with sentences(self.path / name, "write it"):
            write_atomically(self.path / name, text, durable)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        if not self._guard.acquire(timeout=OTHER_THREAD_WAIT_S):
            raise CollbenchError(
                f"{self.path}: another thread has been writing for {OTHER_THREAD_WAIT_S:g} s; is the disk stuck?"
            )
        try:
            yield
        finally:
            self._guard.release()


def read(path: Path) -> list[Record]:
    """Read the rows of a results file, or of the one in a run folder.

    A row that is whole but unreadable is a UsageError. A last line without its end is being written, or was when the
    run died: it is left out, with a warning in the log.
    """
    try:
        path = path / RESULTS if path.is_dir() else path
        content = path.read_bytes()
        end = content.rfind(b"\n") + 1
        text = content[:end].decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{path}: got nothing, expected a results file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: got {error}, expected a results file that can be read") from error
    if end < len(content):
        _log.warning("%s: the last line has no end and is left out; its run was cut off or still writes", path)
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    records = []
    try:
        header = next(rows, [])
        if text and "case_id" not in header:
            raise UsageError("got no column case_id, expected the header of a results file")
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise UsageError(f"got {len(row)} cells, expected {len(header)}; resume the run to repair its last row")
            records.append(from_row(dict(zip(header, row, strict=True))))
    except (UsageError, csv.Error) as error:
        raise UsageError(f"{path}: line {rows.line_num}: {error}") from error
    return records
