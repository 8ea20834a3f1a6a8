"""The steps of a case through mpi4py: what a Python program pays."""

from collections.abc import Callable
from functools import partial
from typing import Any

from collbench.backends.base import Step, Steps, no_step

Calls = list[tuple[Callable[..., Any], list[Any]]]


def steps(rotations: list[Calls], meet: Step, call: str, mode: str) -> tuple[Steps, Callable[[], None]]:
    """Make the three steps of the given rotations, and what frees the requests that they hold."""
    if call == "blocking":
        return Steps(meet, _one_after_the_other(rotations)), lambda: None
    begin_calls = [partial(method, *arguments) for ((method, arguments),) in rotations]
    count = len(begin_calls)
    requests: list[Any] = [make() for make in begin_calls] if call == "persistent" else [None] * count

    def begin(k: int) -> None:
        requests[k % count] = begin_calls[k % count]()

    def start(k: int) -> None:
        requests[k % count].Start()

    def wait(k: int) -> None:
        requests[k % count].Wait()

    def free() -> None:
        if call == "persistent":
            for request in requests:
                request.Free()

    run: Step = start if call == "persistent" else begin
    if mode == "throughput":
        return Steps(meet, _both(run, wait)), free
    return Steps(meet, run, wait), free


def staged(
    steps: Steps, first: list[Callable[[], object] | None], last: list[Callable[[], object] | None], *, whole: bool
) -> Steps:
    """Put each rotation's own work before and after the operation; `whole`: all of it is in `run`."""
    if not any(first) and not any(last):
        return steps

    def before(k: int) -> None:
        if (work := first[k % len(first)]) is not None:
            work()

    def after(k: int) -> None:
        if (work := last[k % len(last)]) is not None:
            work()

    if whole:
        return Steps(steps.meet, _both(_both(before, steps.run), after), steps.finish)
    return Steps(steps.meet, _both(before, steps.run), _both(steps.finish, after))


def _one_after_the_other(rotations: list[Calls]) -> Step:
    """Blocking calls; the usual case of one call and one buffer set pays for nothing more."""
    bound = [[partial(method, *arguments) for method, arguments in calls] for calls in rotations]
    if not any(bound):
        return no_step
    if len(bound) == 1 and len(bound[0]) == 1:
        only = bound[0][0]

        def run_only(k: int) -> None:
            only()

        return run_only
    count = len(bound)

    def run(k: int) -> None:
        for call in bound[k % count]:
            call()

    return run


def _both(first: Step, second: Step) -> Step:
    def step(k: int) -> None:
        first(k)
        second(k)

    return step
