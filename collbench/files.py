"""Small files of the kernel, read so that what is not there or not allowed is None and no error."""

from pathlib import Path

_MOST_BYTES = 1 << 20


def text(path: str | Path) -> str | None:
    """A file's text; None where it cannot be read (some files of /sys answer with EINVAL where they hold nothing)."""
    raw = raw_bytes(path)
    return None if raw is None else raw.decode(errors="replace").strip("\0 \t\r\n")


def number(path: str | Path) -> int | None:
    """The whole number that a file holds; None where it holds none."""
    try:
        return int(text(path) or "", 0)
    except ValueError:
        return None


def raw_bytes(path: str | Path) -> bytes | None:
    """What a file holds, as far as this user may read it."""
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_BYTES)
    except (OSError, ValueError):
        return None


def link(path: str | Path) -> str | None:
    """The last part of what a symbolic link points to; it need not exist."""
    try:
        return Path(path).readlink().name
    except OSError:
        return None


def entries(folder: str | Path) -> list[Path]:
    """A folder's entries, numbers in their order; empty where it cannot be read."""
    try:
        found = list(Path(folder).iterdir())
    except OSError:
        return []
    return sorted(found, key=lambda one: (one.name.rstrip("0123456789"), len(one.name), one.name))
