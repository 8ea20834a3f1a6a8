"""What libraries said that they choose: told in a launch that nobody times, kept in the run folder for the others."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from collbench.durable import sentences, write_atomically

if TYPE_CHECKING:
    from collbench.nccl_log import Choice

Choices = Mapping[tuple[str, str], "Choice"]
"""By case (`collbench.plan.spoken`) and group."""


def keep(folder: Path, variant: str, choices: Choices) -> None:
    """Write the choices of one variant's processes."""
    path = _path(folder, variant)
    rows = [[*key, dataclasses.asdict(choice)] for key, choice in sorted(choices.items())]
    with sentences(path, "write it"):
        write_atomically(path, json.dumps(rows, indent=1) + "\n", False)


def load(folder: Path, variant: str) -> "dict[tuple[str, str], Choice]":
    """Read them; empty where nobody asked."""
    if not there(folder, variant):
        return {}
    from collbench.nccl_log import Choice

    try:
        rows = json.loads(_path(folder, variant).read_text(encoding="utf-8"))
        return {(case_id, group): Choice(**values) for case_id, group, values in rows}
    except (OSError, ValueError, TypeError):
        return {}


def there(folder: Path, variant: str) -> bool:
    """Say whether somebody asked."""
    return _path(folder, variant).exists()


def _path(folder: Path, variant: str) -> Path:
    return folder / f"choices{'-' if variant else ''}{variant}.json"
