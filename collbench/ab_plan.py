"""What an A/B is: two sides, the order of their launches, when one looks at them, and the file that a resume reads."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from collbench.durable import sentences, write_atomically
from collbench.errors import UsageError
from collbench.readers.environments import NAMES
from collbench.readers.gate import Rules
from collbench.readers.gate_rows import AXES
from collbench.readers.shift import launches_needed
from collbench.record import Record

FILE = "ab.json"
NAMES_OF_SIDES = ("base", "new")
ROUND = 4
"""Launches of a round, two of each side: A B B A, and the next time B A A B, so that a drift cancels."""
_GROWTH = 1.5
"""Between one look and the next: more looks would cost each of them more of the error than they save in launches."""

_UNDER_TEST = {
    "scenario": ("settings", "transport"),
    "variant": ("settings", "transport"),
    "python": ("library", "packages", "settings", "transport", "thread_level"),
    "prefix": ("library", "packages", "driver", "settings", "transport", "thread_level", "page_bytes"),
}
"""What differs, or may follow, where the sides differ in that: no environment comparison may refuse it."""
_NEVER_UNDER_TEST = frozenset({"collective", "group"})


@dataclass(frozen=True)
class Side:
    """One side: a scenario, perhaps one variant of it, a Python of its own, and words that come before the launcher."""

    scenario: str
    variant: str = ""
    python: str = ""
    prefix: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All that an A/B was asked for, and how far it is. `rounds` are the most."""

    sides: tuple[Side, Side]
    rules: Rules
    rounds: int
    ranks: int
    launcher: str = ""
    launcher_args: str = ""
    choices: bool = True
    finished: int = 0
    """Launches of both sides that have ended in order."""
    looked: int = 0
    looked_at: int = 0
    """How often one has looked, and after how many rounds the last time."""
    looks: tuple[int, ...] = ()
    """After which rounds one looks; empty until the first round has shown what there is to decide."""

    @property
    def is_aa(self) -> bool:
        """Whether both sides are one and the same."""
        return self.sides[0] == self.sides[1]

    @property
    def done(self) -> int:
        """Rounds that are complete."""
        return self.finished // ROUND

    def keep(self, folder: Path) -> None:
        """Write it, and how far it is, where a resume finds it."""
        with sentences(folder / FILE, "write it"):
            write_atomically(folder / FILE, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `keep` wrote."""
        path = folder / FILE
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            sides = [Side(**(side | {"prefix": tuple(side["prefix"])})) for side in content["sides"]]
            lists = {name: tuple(content["rules"][name]) for name in ("across", "bands", "cases")}
            more = {"sides": (sides[0], sides[1]), "rules": Rules(**content["rules"] | lists)}
            return cls(**content | more | {"looks": tuple(content["looks"])})
        except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise UsageError(
                f"{path}: got {type(error).__name__} ({error}), expected what an A/B wrote; start a new one"
            ) from error

    def left(self) -> Iterator[tuple[int, int]]:
        """The side, 0 or 1, and the number of each launch that is still to come."""
        yield from order(self.rounds)[self.finished :]


def order(rounds: int) -> list[tuple[int, int]]:
    """The side and the number within it of every launch: A B B A, then B A A B, and again."""
    found: list[tuple[int, int]] = []
    for one in range(rounds):
        counts = [2 * one, 2 * one]
        for place in range(ROUND):
            side = (place in (1, 2)) ^ one % 2
            found.append((side, counts[side]))
            counts[side] += 1
    return found


def looks_at(level: float, most: int) -> tuple[int, ...]:
    """After which rounds, of `most`, one looks at decisions that have this level in all; empty where none can be made.

    Each of k looks has a k-th of the level (Bonferroni, which holds however the looks hang together), so the first is
    where that has an interval. The last is after all rounds.
    """
    count = 1
    while True:
        at = math.ceil(launches_needed(level / count) / 2)
        if at > most:
            return ()
        found = [at]
        while found[-1] < most:
            at = max(found[-1] + 1, math.ceil(found[-1] * _GROWTH))
            found.append(at if math.ceil(at * _GROWTH) <= most else most)
        if len(found) <= count:
            return tuple(found)
        count = len(found)


def under_test(plan: Plan, base: list[Record], new: list[Record]) -> Rules:
    """The rules, with what the sides differ in as what is tested: what was asked for, and axes of one value each."""
    allowed = {name for what, names in _UNDER_TEST.items() if _differs(plan, what) for name in names}
    both = {axis: (_values(base, axis), _values(new, axis)) for axis in AXES if axis not in _NEVER_UNDER_TEST}
    axes = {axis for axis, (ours, theirs) in both.items() if len(ours) == len(theirs) == 1 and ours != theirs}
    names = dict.fromkeys([*plan.rules.across, *(one for one in (*AXES, *NAMES) if one in axes | allowed)])
    return replace(plan.rules, across=tuple(names))


def _differs(plan: Plan, what: str) -> bool:
    return bool(getattr(plan.sides[0], what) != getattr(plan.sides[1], what))


def _values(rows: list[Record], axis: str) -> set[object]:
    return {getattr(row, axis) for row in rows if row.status != "skipped"}
