"""`collbench forecast`: which question is asked, and of what: of results, or of a fabric that is described."""

import argparse

from collbench.errors import UsageError

_OF_TIMES = ("at", "ranks", "collective")
_OF_PLANS = ("workload", "memory", "large", "reference")
_NOT_OF_REPLAYS = ("fabric", "plot")


def command(options: argparse.Namespace) -> int:
    """Answer it, print the answer, and return the exit code."""
    planning = [name for name in _OF_PLANS if getattr(options, name)]
    times = [name for name in _OF_TIMES if getattr(options, name)]
    if options.replay:
        others = [*planning, *times, *(name for name in _NOT_OF_REPLAYS if getattr(options, name) is not None)]
        if others:
            raise UsageError(f"forecast: got --replay and --{others[0]}, expected one question at a time")
        from collbench.planning.replay_check import command as check

        return check(options.replay, options.results, options.within, options.extrapolate, options.form)
    if planning and times:
        raise UsageError(f"forecast: got --{planning[0]} and --{times[0]}, expected one question at a time")
    if options.results and options.fabric is not None:
        raise UsageError("forecast: got RESULTS and --fabric, expected one of them: measured, or described")
    if not planning and options.results:
        return _of_times(options)
    if times or (options.extrapolate and not options.results):
        raise UsageError("forecast: got no RESULTS, expected a run to fit; name its folder or its results.csv")
    from collbench.planning.command import PlanOptions
    from collbench.planning.command import command as answer

    measured = None
    if options.results:
        from collbench.planning.from_results import fabric_of

        measured = fabric_of(options.results, options.dtype, options.extrapolate)
    given = dict(vars(options), compute=tuple(options.compute))
    return answer(PlanOptions(**{name: given[name] for name in PlanOptions.__dataclass_fields__}), measured)


def _of_times(options: argparse.Namespace) -> int:
    from collbench.readers.forecast_command import ForecastOptions
    from collbench.readers.forecast_command import command as answer

    if len(options.hosts) > 1:
        raise UsageError(f"forecast: --hosts: got {len(options.hosts)} numbers with --at, expected one")
    return answer(
        ForecastOptions(
            results=tuple(options.results),
            at=tuple(options.at),
            ranks=tuple(options.ranks),
            hosts=options.hosts[0] if options.hosts else None,
            collectives=tuple(options.collective),
            extrapolate=options.extrapolate,
            form=options.form,
        )
    )
