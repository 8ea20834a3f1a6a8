"""`collbench launch --ab` and its kin: from the command line to a plan."""

import argparse
import shlex
from dataclasses import replace

from collbench.ab_plan import FILE, Plan, Side
from collbench.errors import UsageError
from collbench.launcher import default_ranks
from collbench.units import parse_duration

_SIDES = ("ab", "ab_variants", "ab_python", "ab_prefix", "aa")
_ONLY_HERE = (
    "most_rounds", "time_limit", "threshold", "floor", "across", "bands", "case", "format", "noise_floor", "force"
)  # fmt: skip
_ROUNDS, _ROUNDS_AA = 20, 5


def wanted(options: argparse.Namespace) -> bool:
    """Whether it is an A/B that is asked for, or to go on with; options that have a meaning only there are refused."""
    if any(getattr(options, name) for name in _SIDES):
        return True
    if options.resume is not None and (options.resume / FILE).is_file():
        return True
    for name in _ONLY_HERE:
        if getattr(options, name):
            word = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"launch: got {word} alone, expected it with --ab, --ab-variants or their kin, or with --aa"
            )
    return False


def command(options: argparse.Namespace) -> int:
    """Run an A/B, or go on with one; the exit code."""
    from collbench.ab import AbOptions, run
    from collbench.readers.gate_command import options_of

    told = AbOptions(
        plan=None if options.resume is not None else _plan(options),
        output=options.resume or options.output,
        time_limit_s=None if options.time_limit is None else _seconds(options.time_limit),
        form=options_of(options).form,
        noise_floor=options.noise_floor,
        force=options.force,
        quiet=options.quiet,
    )
    if options.resume is not None:
        _refuse_changes(options)
    return run(told)


def _plan(options: argparse.Namespace) -> Plan:
    from collbench.readers.gate_command import options_of, rules_of

    if options.launches is not None:
        raise UsageError(f"launch: got --launches {options.launches} with an A/B, expected --most-rounds")
    if (options.scenario is None) == (options.ab is None):
        got = "no SCENARIO" if options.scenario is None else f"--ab and {options.scenario}"
        raise UsageError(f"launch: got {got}, expected --ab BASE NEW, or one SCENARIO and what its sides differ in")
    sides = [Side(source) for source in options.ab or (options.scenario, options.scenario)]
    if options.aa and any(getattr(options, name) for name in _SIDES if name != "aa"):
        raise UsageError("launch: got --aa with sides that differ, expected one SCENARIO: both sides are the same")
    for name, part in (("ab_variants", "variant"), ("ab_python", "python")):
        for at, value in enumerate(getattr(options, name) or ()):
            sides[at] = replace(sides[at], **{part: value})
    for at, value in enumerate(options.ab_prefix or ()):
        sides[at] = replace(sides[at], prefix=tuple(_words(value)))
    if sides[0] == sides[1] and not options.aa:
        raise UsageError("launch: got the same on both sides, expected two that differ; --aa takes one twice")
    return Plan(
        sides=(sides[0], sides[1]),
        rules=rules_of(options_of(options)),
        rounds=options.most_rounds or (_ROUNDS_AA if options.aa else _ROUNDS),
        ranks=options.ranks or default_ranks(),
        launcher=options.launcher,
        launcher_args=options.launcher_args,
        choices=not options.no_choices,
    )


def _refuse_changes(options: argparse.Namespace) -> None:
    """What an A/B decides by is fixed when it begins, or its error rate would not be what it says."""
    kept = ("most_rounds", "threshold", "floor", "across", "bands", "case", "ranks", "launches", "scenario")
    for name in (*_SIDES, *kept):
        if getattr(options, name):
            raise UsageError(
                f"launch: --resume: got --{name.replace('_', '-')} too, expected an A/B as it was begun "
                "(only --time-limit, --format and --quiet may be new)"
            )


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"--ab-prefix: got {text!r} ({error}), expected words as a shell takes them; close the quotation"
        ) from None


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"launch: --time-limit: {error}") from error
