"""Recorded and written trees of /sys, /proc and /dev, and copies of them that tests break."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from collbench.doctor.finding import Finding, Seen

TREES = Path(__file__).with_name("data") / "sysfs"
T = TypeVar("T")


def tree(name: str) -> str:
    """The root of a tree as it is."""
    return str(TREES / name)


def changed(name: str, folder: Path, files: Mapping[str, str | bytes | None]) -> str:
    """A copy of a tree in which files have another text; None takes a file or a folder out."""
    root = folder / f"{name}-{len(list(folder.iterdir()))}"
    if name:
        shutil.copytree(TREES / name, root, symlinks=True)
    for path, content in files.items():
        place = root / path
        if content is None:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    root.mkdir(exist_ok=True)
    return str(root)


def seen(*facts: T) -> list[Seen[T]]:
    """One rank on each of the hosts a, b, c ..."""
    return [Seen(rank, "abcdefgh"[rank], one) for rank, one in enumerate(facts)]


def levels(found: list[Finding]) -> list[str]:
    """The findings' levels, those of differences marked."""
    return [f"{one.level}{' (differs)' if one.differs else ''}" for one in found]


def holding(found: list[Finding], words: str) -> Finding:
    """The only finding that says these words."""
    (one,) = [finding for finding in found if words in finding.seen]
    return one
