"""The backends of a launch: opened when a case first needs them, for the world and for the groups of a topology."""

from collections.abc import Callable
from typing import TypeVar

from collbench.backends import backend_named
from collbench.backends.base import Backend, BoundCall
from collbench.errors import Agreed, CannotRun, CollbenchError
from collbench.topology import Round
from collbench.watchdog import Watchdog
from collbench.world import World

T = TypeVar("T")


class Opened:
    """What is open. All of it is collective over the world, but `together` over the group that it is given."""

    def __init__(self, world: World, watchdog: Watchdog) -> None:
        self._world = world
        self._watchdog = watchdog
        self._whole: dict[str, Backend] = {}
        self._grouped: dict[tuple[str, Round], tuple[World | None, Backend | None]] = {}
        self._refusals: dict[str, str | None] = {}

    def for_round(self, name: str, groups: Round) -> tuple[World | None, Backend | None]:
        """Return this rank's group of a round, None where it has none, and the backend; CannotRun says why not."""
        parent = self._backend(name)
        if len(groups) == 1 and len(groups[0].ranks) == self._world.size:
            return self._world, parent
        key = (name, groups)
        if key not in self._grouped:
            number = next((i for i, group in enumerate(groups) if self._world.rank in group.ranks), -1)
            group = self._world.part(groups[number].ranks if number >= 0 else (), number)
            opened = self.together(self._world, lambda: parent.for_group(group, number))
            if opened is not None:
                self._watchdog.libraries.append(opened)
            self._grouped[key] = group, opened
        return self._grouped[key]

    def _backend(self, name: str) -> Backend:
        """Open a backend for the world, or raise why it cannot be used; all ranks do the same."""
        kind = backend_named(name)
        if name not in self._refusals:
            problem = refusal(kind.unavailable(), self._world)
            self._refusals[name] = problem or refusal(kind.misfit(self._world), self._world)
        if self._refusals[name] is not None:
            raise CannotRun(str(self._refusals[name]))
        if name not in self._whole:
            self._whole[name] = self.together(self._world, lambda: kind(self._world))
            self._watchdog.libraries.append(self._whole[name])
        return self._whole[name]

    def close_groups(self) -> None:
        """Close what was opened for groups."""
        for group, backend in self._grouped.values():
            if backend is not None:
                self._watchdog.libraries.remove(backend)
                backend.close()
            if group is not None:
                group.comm.Free()
        self._grouped.clear()

    def close(self) -> None:
        """Close everything."""
        self.close_groups()
        for backend in self._whole.values():
            self._watchdog.libraries.remove(backend)
            backend.close()
        self._whole.clear()

    def together(self, group: World, work: Callable[[], T]) -> T:
        """Do what may fail on some ranks of a group: if it does on any, all raise the same error, and nobody waits."""
        result: list[T] = []
        try:
            result.append(work())
            problem = None
        except Agreed:  # raised on every rank
            raise
        except MemoryError:
            problem = "out of memory; a smaller size, or fewer ranks on a host, would fit"
        except CollbenchError as error:
            problem = str(error)
        except Exception as error:  # a library's own exception types are not known here
            problem = f"{type(error).__name__}: {error}"
        phase = self._watchdog.phase
        self._watchdog.enter(f"{phase.name} done, waiting for the others", phase.timeout_s, phase.case, phase.case_id)
        first = group.first_problem(problem)
        self._watchdog.enter(phase.name, phase.timeout_s, phase.case, phase.case_id)
        if first is None:
            return result[0]
        if result and isinstance(result[0], BoundCall):
            result[0].close()
        raise CollbenchError(on_rank(first, group))


def refusal(problem: str | None, group: World) -> str | None:
    """Agree on why the ranks cannot go on: the first one's reason, and whose it is unless all say it. Collective."""
    problems = group.all_gather(problem)
    first = next(((rank, text) for rank, text in enumerate(problems) if text), None)
    if first is None or len(set(problems)) == 1:
        return problems[0]
    return on_rank(first, group)


def on_rank(problem: tuple[int, str], group: World) -> str:
    """Say whose problem it is, where there are several ranks."""
    rank, text = problem
    return text if group.size == 1 else f"{group.named(rank)}: {text}"
