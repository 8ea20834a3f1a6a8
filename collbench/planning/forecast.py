"""`collbench forecast`: which question is asked, and of what: of results, or of a fabric that is described."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from collbench.errors import UsageError

_OF_TIMES = ("at", "ranks", "collective")
_OF_PLANS = ("workload", "memory", "large", "reference")
_NOT_OF_REPLAYS = ("fabric", "plot")
_TIMES, _STEP, _MEMORY, _LARGE, _REPLAY = "times", "--workload", "--memory", "--large", "--replay"
_BELONGS: Mapping[str, tuple[object, tuple[str, ...]]] = {
    "hosts": ((), (_TIMES, _STEP)),
    "devices": ((), (_STEP, _MEMORY, _LARGE)),
    "batch": (None, (_STEP,)),
    "global_batch": (None, (_STEP,)),
    "compute": ([], (_STEP,)),
    "overlap": ("", (_STEP,)),
    "bucketing": ("", (_STEP,)),
    "dtype": ("", (_STEP, _LARGE)),
    "zero": (None, (_STEP, _MEMORY)),
    "plot": (None, (_STEP,)),
    "device": ("", (_MEMORY,)),
    "device_memory": ("", (_MEMORY,)),
    "driver_keeps": ("", (_MEMORY,)),
    "optimizer": ("adamw", (_MEMORY,)),
    "precision": ("mixed", (_MEMORY,)),
    "activations": ("", (_MEMORY,)),
    "size": ("", (_LARGE,)),
    "within": (0.2, (_REPLAY,)),
}
"""What an option is where the user does not give it, and the questions that it is for."""


def command(options: argparse.Namespace) -> int:
    """Answer it, print the answer, and return the exit code."""
    planning = [name for name in _OF_PLANS if getattr(options, name)]
    times = [name for name in _OF_TIMES if getattr(options, name)]
    if options.replay:
        others = [*planning, *times, *(name for name in _NOT_OF_REPLAYS if getattr(options, name) is not None)]
        if others:
            raise UsageError(f"forecast: got --replay and --{others[0]}, expected one question at a time")
        _check_each_belongs(options, planning)
        from collbench.planning.replay_check import command as check

        return check(options.replay, options.results, options.within, options.extrapolate, options.form)
    if planning and times:
        raise UsageError(f"forecast: got --{planning[0]} and --{times[0]}, expected one question at a time")
    if options.results and options.fabric is not None:
        raise UsageError("forecast: got RESULTS and --fabric, expected one of them: measured, or described")
    _check_each_belongs(options, planning)
    if not planning and options.results:
        return _of_times(options)
    if times or (options.extrapolate and not options.results):
        for name in times:
            if path := next((text for text in map(str, getattr(options, name)) if Path(text).exists()), ""):
                raise UsageError(
                    f"forecast: --{name}: got {path}, which is a path, and no RESULTS; write RESULTS before --{name}"
                )
        raise UsageError("forecast: got no RESULTS, expected a run to fit; name its folder or its results.csv")
    from collbench.planning.command import PlanOptions
    from collbench.planning.command import command as answer

    measured = None
    if options.results:
        from collbench.planning.from_results import fabric_of

        measured = fabric_of(options.results, options.dtype, options.extrapolate)
    given = dict(vars(options), compute=tuple(options.compute))
    return answer(PlanOptions(**{name: given[name] for name in PlanOptions.__dataclass_fields__}), measured)


def _check_each_belongs(options: argparse.Namespace, planning: list[str]) -> None:
    """Refuse an option that no question is there for: it would change nothing, and the answer would look as if."""
    asked = {f"--{name}" for name in planning} | ({_REPLAY} if options.replay else set())
    asked = asked or ({_TIMES} if options.results else set())
    if not asked:
        return
    if options.memory and not (options.devices and (options.results or options.fabric)):
        asked -= {_STEP}
    for name, (unless, questions) in _BELONGS.items():
        if getattr(options, name) != unless and not asked.intersection(questions):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"forecast: got {option}, which changes nothing here, expected it with {' or '.join(questions)}; "
                "leave it out or ask that too"
            )


def _of_times(options: argparse.Namespace) -> int:
    from collbench.readers.forecast_command import ForecastOptions
    from collbench.readers.forecast_command import command as answer

    if len(options.hosts) > 1:
        raise UsageError(f"forecast: --hosts: got {len(options.hosts)} numbers with --at, expected one")
    return answer(
        ForecastOptions(
            results=tuple(options.results),
            at=_sizes(options.at),
            ranks=tuple(options.ranks),
            hosts=options.hosts[0] if options.hosts else None,
            collectives=tuple(options.collective),
            extrapolate=options.extrapolate,
            form=options.form,
        )
    )


def _sizes(words: Sequence[str]) -> tuple[str, ...]:
    """Join what the shell has parted: 16 MiB."""
    found: list[str] = []
    for word in words:
        if found and word.isalpha() and found[-1].replace(".", "", 1).isdigit():
            found[-1] += f" {word}"
        else:
            found.append(word)
    return tuple(found)
