"""Files that outlive a crash, and file-system errors as sentences."""

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from collbench.errors import CollbenchError, UsageError

LOCK_POLL_S = 0.05

_REMEDIES: dict[int | None, tuple[type[CollbenchError], str]] = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), (UsageError, "choose a folder that you may write to")),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), (UsageError, "a file is in the way; choose another name")),
    **dict.fromkeys(
        (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP), (UsageError, "choose a file system that has locks")
    ),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), (CollbenchError, "make room and resume the run")),
}


@contextlib.contextmanager
def sentences(path: Path, deed: str) -> Iterator[None]:
    """Turn an OSError into one sentence with a remedy."""
    try:
        yield
    except OSError as error:
        kind, remedy = _REMEDIES.get(error.errno, (CollbenchError, "check the file system"))
        raise kind(f"{path}: could not {deed}: {error.strerror or error}; {remedy}") from error


def write_atomically(path: Path, text: str, durable: bool = True) -> None:
    """Write a file so that a reader sees the old content or the new, and with `durable` so that it stays."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def append_durably(descriptor: int, size: int, content: bytes) -> None:
    """Append the content to a file of `size` bytes and wait for the disk; on any failure cut it back to that size."""
    try:
        written = os.write(descriptor, content)
        if written != len(content):
            raise OSError(errno.ENOSPC, f"only {written} of {len(content)} bytes were taken")
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def sync_folder(path: Path) -> None:
    """Make a new name in the folder durable, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def lock_file(descriptor: int, path: Path, wait_s: float) -> None:
    """Lock the file for this process; one that stays locked is a UsageError that names the holder, as written in it."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(LOCK_POLL_S)
                continue
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            raise UsageError(
                f"{path}: got a folder that {holder} writes, expected a free one; wait for it or end it"
            ) from None
        return
