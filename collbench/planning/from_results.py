"""A fabric made of results: which of their fits answers for a collective in a VM, between hosts and among all."""

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import UsageError
from collbench.planning import measured
from collbench.planning.fabric import Fabric
from collbench.planning.measured import Ask, Told
from collbench.readers.fitted import Fitted
from collbench.readers.forecast import UNTRIED, Forecast, forecast
from collbench.readers.forecast_command import fits_of
from collbench.readers.forecast_range import Refusal, nearest_refusal, usual_hosts
from collbench.readers.forecast_rows import gather

_ALL_RANKS = ("first", "world")

_PREFERRED = (
    ("backend", "nccl"),
    ("placement", "in_place"),
    ("mode", "latency"),
    ("caller", "compiled"),
    ("call", "blocking"),
    ("operation", "sum"),
    ("neighbour", ""),
    ("pattern", ""),
    ("variant", ""),
    ("buffer", "plain"),
    ("sync", "library"),
    ("pages", "default"),
    ("root", "0"),
    ("cores", ""),
    ("topology", _ALL_RANKS[0]),
)
"""What a training step uses, the most telling first."""

_GROUPS = {"host": "groups of a host", "rail": "rails (a rank of each host)"}
"""What is asked of the topologies that split the tiers."""

_OF_A_GROUP = ("group", "transport", "device")
"""What the groups of a topology may differ in, which work at the same time."""


def fabric_of(paths: Sequence[Path], dtype: str = "", extrapolate: bool = False) -> Fabric:
    """Fit the results and let the fits answer; times of `dtype` (else of float32) go first, where there are any."""
    gathered = gather(paths)
    rows = [row for row in gathered.rows if row.status == "ok"]
    found = fits_of(gathered.rows, paths)
    per_host = max((row.ranks_per_host or 1 for row in rows), default=1)
    rails = len({row.group for row in rows if row.topology == "rail"})
    of = {kind: tuple(one for one in found if one.family.value("topology") == kind) for kind in ("host", "rail")}
    whole = tuple(one for kind in _ALL_RANKS for one in found if one.family.value("topology") == kind)

    def placed(devices: int) -> int:
        """As --at has it for as many ranks: of what was measured, the fewest hosts that hold them."""
        known = [usual_hosts(one, devices) for one in whole]
        return min((hosts for hosts in known if devices <= hosts * per_host), default=-(-devices // per_host))

    def ask(its: tuple[Fitted, ...]) -> Ask | None:
        return Asked(its, dtype, extrapolate) if its else None

    split = bool(of["host"] and of["rail"])
    return measured.fabric(
        ", ".join(str(path) for path in paths),
        per_host,
        whole=None if split else ask(whole),
        vm=ask(of["host"] or whole),
        rails=ask(of["rail"]),
        at_once=rails,
        notes=gathered.notes,
        placed=None if split else placed,
    )


@dataclass(frozen=True)
class Asked:
    """Answers from the fits of one kind of topology: of the setting that is nearest to a training step's."""

    fits: tuple[Fitted, ...]
    dtype: str
    extrapolate: bool

    def __call__(self, collective: str, size_bytes: int, ranks: int, hosts: int) -> Told:
        """Forecast it; a UsageError where the results cannot tell."""
        its = [one for one in self.fits if one.family.value("collective") == collective]
        if not its:
            known = ", ".join(sorted({one.family.value("collective") for one in self.fits}))
            topologies = " or ".join(sorted(self._topologies))
            raise UsageError(
                f"forecast: on the topology {topologies} got times of {known} alone, expected those of {collective} "
                "too; measure it there"
            )
        refused: list[Refusal] = []
        for same in self._by_preference(its):
            answers: list[tuple[Fitted, Forecast]] = []
            for one in same:
                try:
                    answers.append((one, forecast(one, size_bytes, ranks, hosts, self.extrapolate)))
                except UsageError as error:
                    refused.append(Refusal(one, size_bytes, ranks, hosts, error))
            measured = [answer for answer in answers if not answer[1].extrapolated]
            if answers:
                answers = measured or answers
                _of_one_setting([one for one, _ in answers])
                # Groups at once, such as the hosts: all wait for the slowest.
                chosen, slowest = max(answers, key=lambda answer: answer[1].time_s)
                return _told(chosen, slowest)
            # A step is not made of several settings' times, each where the others have none: only its size is missing.
            if any(self._knows(one, ranks, hosts) for one in same):
                break
        raise UsageError(self._where + str(nearest_refusal(refused)).removeprefix("forecast: "))

    def _knows(self, one: Fitted, ranks: int, hosts: int) -> bool:
        """Whether it can tell of so many ranks and hosts, at a size that it has."""
        for size in {int(its.curve.sizes[-1]) for its in one.fits}:
            with contextlib.suppress(UsageError):
                forecast(one, size, ranks, hosts, self.extrapolate)
                return True
        return False

    @property
    def _topologies(self) -> set[str]:
        return {one.family.value("topology") for one in self.fits}

    @property
    def _where(self) -> str:
        """How a refusal begins: of rails, ranks are hosts."""
        groups = [_GROUPS[kind] for kind in self._topologies if kind in _GROUPS]
        return f"forecast: {groups[0]}: " if groups else "forecast: "

    def _by_preference(self, its: Sequence[Fitted]) -> list[list[Fitted]]:
        """The fits, in groups of one setting, the preferred first; the groups of a topology stand together."""
        sorted_fits: dict[tuple[bool, ...], list[Fitted]] = {}
        for one in its:
            wanted = (("dtype", self.dtype or "float32"), *_PREFERRED)
            key = tuple(one.family.value(name) != value for name, value in wanted)
            sorted_fits.setdefault(key, []).append(one)
        return [sorted_fits[key] for key in sorted(sorted_fits)]


def _of_one_setting(its: Sequence[Fitted]) -> None:
    """Refuse fits of which nothing says whose are meant, such as those of two libraries."""
    for one, other in itertools.combinations([dict(fit.family.setting) for fit in its], 2):
        may = _OF_A_GROUP if one["group"] != other["group"] else ()
        name = next((name for name in one if name not in may and one[name] != other[name]), None)
        if name is not None:
            both = " and of ".join(sorted(its[name] or "none" for its in (one, other)))
            raise UsageError(
                f"forecast: {one['collective']}: {name}: got times of {both}, expected those of one alone; give "
                "results that have no others"
            )


def _told(of: Fitted, answer: Forecast) -> Told:
    marks = [f"times are those of {of.family.label}"]
    marks += [f"over ranks by the law {answer.law}"] if answer.law not in ("", UNTRIED) else []
    # Which rows rest on sizes, ranks or hosts beyond what was measured, these say themselves.
    # What stands in brackets is of that size alone.
    marks += [mark.partition(" (")[0] for mark in answer.marks if not mark.startswith("extrapolated")]
    return Told(answer.time_s, answer.low_s, answer.high_s, tuple(marks), answer.extrapolated)
