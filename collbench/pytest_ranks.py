"""How the ranks of one pytest session keep in step: they meet at each point where one may be elsewhere.

Under mpirun each rank runs pytest by itself. All meet, on a communicator of their own and always by the same call,
when the tests are collected, before each measured case, after each phase (setup, call, teardown) of each test, after
each test, and at the end. Whoever finds the others somewhere else knows what happened: a rank that left a test without
its case, or that has ended. So nothing that one rank does alone makes another wait for ever, and what does (an endless
loop, a rank that is gone) the watchdog's deadline ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from collbench.errors import Agreed
from collbench.watchdog import Watchdog
from collbench.world import World

CASE, EXIT = "case", "exit"
_PASSED_STRICTLY = "[XPASS(strict)]"
"""How pytest's report begins where a test that should have failed did not."""


class LeftBehind(Agreed):
    """Another rank has left the test without the case that this one is to measure."""


@dataclass(frozen=True)
class Here:
    """Where a rank is: `kind` of point, `place` (the test, and its phase), and what it has to say."""

    kind: str
    place: str
    value: Any = None


@dataclass(frozen=True)
class Verdict:
    """What a phase of a test came to on one rank; `xfail` is None unless a failure was expected.

    An `echo` says only that another rank was not there: that rank's own verdict counts.
    """

    outcome: str
    text: str = ""
    xfail: str | None = None
    sections: tuple[tuple[str, str], ...] = ()
    echo: bool = False

    @property
    def weight(self) -> int:
        """What counts among several ranks: a failure, then a skip, then a rank that was left alone.

        A failure that was expected is a skip to pytest, and counts more than that another rank did pass.
        """
        if self.echo:
            return 1
        if self.outcome == "failed" and self.text.startswith(_PASSED_STRICTLY):
            return 2
        return {"passed": 0, "skipped": 3, "failed": 4}[self.outcome]


class Ranks:
    """The ranks of a session; every method is collective over them."""

    def __init__(self, world: World, watchdog: Watchdog, timeout_s: float) -> None:
        self.world = world if world.comm is None else replace(world, comm=world.comm.Dup())
        self.watchdog = watchdog
        self._timeout_s = timeout_s

    def named(self, rank: int) -> str:
        """A rank, in words."""
        return f"rank {rank} on {self.world.hosts[rank]}"

    def busy(self, what: str, place: str = "") -> None:
        """Say to the watchdog what begins now; it may take as long as a test may."""
        self.watchdog.enter(what, self._timeout_s, place)

    def together(self, kind: str, place: str, value: Any = None) -> list[Any]:
        """Return what every rank says at this point; those that wait for a case hear that it will not come."""
        while True:
            told = self._meet(Here(kind, place, value))
            if all((one.kind, one.place) == (kind, place) for one in told):
                return [one.value for one in told]
            if all(one.kind == CASE or (one.kind, one.place) == (kind, place) for one in told):
                continue
            self._astray(told)

    def at_case(self, place: str, case_id: str) -> None:
        """Begin a case together; LeftBehind where a rank is not there, Agreed where one is to measure another."""
        told = self._meet(Here(CASE, place, case_id))
        absent = next((rank for rank, one in enumerate(told) if one.kind != CASE), None)
        if absent is not None:
            raise LeftBehind(f"{self.named(absent)} has left the test without the case that the others are to measure")
        other = next((rank for rank, one in enumerate(told) if one != told[0]), None)
        if other is not None:
            raise Agreed(
                f"{place}: {self.named(other)} is to measure another case than rank 0, expected the same on all ranks; "
                "let no case depend on the rank"
            )

    def at_exit(self, code: int, reason: str) -> list[tuple[int, str]]:
        """Return the exit code and the reason of each rank, when all have come to their end."""
        while True:
            told = self._meet(Here(EXIT, "", (code, reason)))
            if all(one.kind == EXIT for one in told):
                return [one.value for one in told]

    def _meet(self, here: Here) -> list[Here]:
        self.busy(f"{here.kind}, waiting for the others", here.place)
        self.world.meet_quietly()
        told = self.world.all_gather(here)
        self.busy(here.kind, here.place)
        gone = next((rank for rank, one in enumerate(told) if one.kind == EXIT), None)
        if gone is not None and here.kind != EXIT:
            code, reason = told[gone].value
            pytest.exit(f"{self.named(gone)} has ended{f': {reason}' if reason else ''}", returncode=code or 1)
        return told

    def _astray(self, told: Sequence[Here]) -> None:
        other = next(rank for rank, one in enumerate(told) if (one.kind, one.place) != (told[0].kind, told[0].place))
        places = [f"{one.kind} {one.place}".strip() for one in (told[0], told[other])]
        pytest.exit(f"{self.named(other)} is at {places[1]}, rank 0 at {places[0]}, expected one place", returncode=1)


def agreed(own: int, verdicts: Sequence[Verdict]) -> int:
    """Return the rank whose verdict is everybody's: this one where it is as grave as any, else the first that is."""
    gravest = max(one.weight for one in verdicts)
    if verdicts[own].weight == gravest:
        return own
    return next(rank for rank, one in enumerate(verdicts) if one.weight == gravest)
