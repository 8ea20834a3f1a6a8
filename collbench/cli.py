"""The commands: parse, call, print, exit code. Nothing heavy is imported before a command needs it."""

import argparse
import contextlib
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from collbench import __version__
from collbench.errors import CollbenchError, UsageError
from collbench.output import complain, deliver, mend_streams
from collbench.planning import arguments as planning

_MOST = 1_000_000
"""Above any number of ranks, launches or seconds that somebody means."""

_LAST_PORT = 65535

_EPILOG = """\
exit codes:
  0 all well          1 a case or a rank failed      2 usage or scenario error   3 wrong data
  4 timeout or hang   5 an expectation failed        6 comparison ambiguous      7 cannot run here
  130 interrupted

first steps:
  collbench launch quickstart        measure all_reduce between the cores (or GPUs) of this machine
  collbench list                     what can run here, and why the rest cannot
  collbench show quickstart -n 4     what a scenario would do
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and names the help."""

    def error(self, message: str) -> NoReturn:
        where = self.prog.removeprefix("collbench").strip()
        complain(f"collbench: {where + ': ' if where else ''}{message}; see {self.prog} --help")
        sys.exit(UsageError.exit_code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    mend_streams()
    parser = _parser()
    try:
        options = _parsed(parser, sys.argv[1:] if arguments is None else arguments)
        if options.command is None:
            deliver(parser.format_help())
            return 0
        command: Callable[[argparse.Namespace], int] = options.function
        return command(options)
    except CollbenchError as error:
        for line in str(error).splitlines():
            complain(f"collbench: {line}")
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse; argparse itself prints a help or the version and exits."""
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text):
            return parser.parse_args(arguments)
    except SystemExit:
        deliver(text.getvalue())
        raise


def _printed(work: Callable[[], int]) -> int:
    """Do what is there to print something, and print it."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        code = work()
    deliver(text.getvalue())
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="collbench",
        description="Measure collective communication: verified, with its uncertainty, and with the path it took.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"collbench {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)

    launch = commands.add_parser(
        "launch", help="start the ranks with mpirun or srun, and run a scenario", allow_abbrev=False
    )
    _run_arguments(launch)
    launch.add_argument("-n", "--ranks", type=_positive, help="number of ranks (default: one a core, at least 2)")
    launch.add_argument("--launches", type=_positive, help="start the processes so many times (default 1)")
    launch.add_argument("--launcher", default="", help="path of mpirun or srun (default: beside Python, then on PATH)")
    launch.add_argument("--launcher-args", default="", help="more arguments for it, as one quoted text")
    launch.add_argument(
        "--no-choices", action="store_true", help="do not ask NCCL for its algorithms in a launch of their own"
    )
    _ab_arguments(launch)
    launch.set_defaults(function=_launch)

    run = commands.add_parser(
        "run", help="be one rank of a launch: mpirun -n N collbench run SCENARIO", allow_abbrev=False
    )
    _run_arguments(run)
    run.add_argument("--variant", default="", help="name of the variant whose settings these processes have")
    run.add_argument("--launch", type=_count, default=0, help="number of this launch within the run (default 0)")
    run.add_argument("--launches", type=_positive, help="number of launches that the run will have (default 1)")
    run.add_argument("--choices", action="store_true", help="time nothing: ask the libraries what they choose")
    run.set_defaults(function=_run)

    show = commands.add_parser("show", help="print a scenario's cases without running them", allow_abbrev=False)
    show.add_argument("scenario", help="path of a scenario file, or the name of a shipped one")
    show.add_argument("-n", "--ranks", type=_positive, help="number of ranks (default: as launch)")
    show.set_defaults(function=_show)

    listing = commands.add_parser("list", help="list scenarios, collectives and backends", allow_abbrev=False)
    listing.set_defaults(function=_list)

    doctor = commands.add_parser(
        "doctor", help="examine what will get into the figures here, alone or on every rank", allow_abbrev=False
    )
    doctor.add_argument("scenario", nargs="?", help="also tell what this scenario needs and is not here (exit code 7)")
    doctor.add_argument("--noise", action="store_true", help="measure what takes the cores away (also with --wait)")
    doctor.add_argument("--seconds", type=_count, help="how long to measure that: 0 is not at all (default 3)")
    doctor.add_argument("--json", action="store_true", help="print the findings, and all that was seen, as JSON")
    doctor.add_argument(
        "--wait", type=_positive, metavar="SECONDS", help="first wait so long until all peers answer (exit code 4)"
    )
    doctor.add_argument("--peers", metavar="HOST,HOST", help="whom to wait for (default: those of /etc/mpi/hostfile)")
    doctor.add_argument("--port", type=_positive, help="the TCP port that they answer on (default 22)")
    doctor.set_defaults(function=_doctor)

    ladder = commands.add_parser(
        "ladder", help="say which layer loses the bandwidth, by the results of a ladder", allow_abbrev=False
    )
    ladder.add_argument("results", type=Path, help="a run folder, or its results.csv")
    ladder.set_defaults(function=_ladder)

    pairs = commands.add_parser(
        "pairs", help="say which host or device is slow, by the results of pairs", allow_abbrev=False
    )
    pairs.add_argument("results", type=Path, help="a run folder, or its results.csv")
    pairs.set_defaults(function=_pairs)

    compare = commands.add_parser(
        "compare", help="say whether NEW is slower than BASE: exit code 0, 5 or 6 (undecided)", allow_abbrev=False
    )
    _compare_arguments(compare)

    baseline = commands.add_parser(
        "baseline", help="keep results for later ones to be compared with", allow_abbrev=False
    )
    deeds = baseline.add_subparsers(dest="deed", metavar="DEED", parser_class=_Parser, required=True)
    add = deeds.add_parser("add", help="append a run to the baselines, by machine and commit", allow_abbrev=False)
    add.add_argument("run", type=Path, help="a run folder, or its results.csv")
    add.add_argument("--to", type=Path, metavar="FOLDER", help="where baselines are (default: results/baselines)")
    add.add_argument("--commit", help="what the run measured (default: the commit of this repository)")
    add.set_defaults(function=_baseline_add)

    forecast = commands.add_parser(
        "forecast",
        help="plan: times at other sizes and ranks, memory, steps, and where the fabric stops paying",
        allow_abbrev=False,
    )
    planning.add(forecast, _positive)
    forecast.set_defaults(function=_forecast)

    schema = commands.add_parser("schema", help="print the JSON Schema of scenario files", allow_abbrev=False)
    schema.add_argument("--columns", action="store_true", help="print the columns of results.csv instead, as Markdown")
    schema.set_defaults(function=_schema)
    return parser


def _compare_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results", type=Path, nargs="*", metavar="RESULTS", help="BASE and NEW (run folders, or their results.csv)"
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--baseline", action="store_true", help="only NEW: compare it with the newest baseline that fits")
    one.add_argument("--guidelines", action="store_true", help="only RESULTS: is the library consistent with itself")
    parser.add_argument("--baselines", type=Path, metavar="FOLDER", help="where baselines are")
    _rules_arguments(parser)
    parser.set_defaults(function=_compare)


def _rules_arguments(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--threshold", help="slower is more than so much more time (default 10%%)")
    parser.add_argument("--floor", help="and more than so much longer (default 1us)")
    parser.add_argument("--across", action="extend", nargs="+", metavar="NAME", help="what is tested: it differs")
    parser.add_argument("--bands", action="extend", nargs="+", metavar="BAND", help="gate only these sizes")
    parser.add_argument(
        "--case", action="append", help="gate by these cases instead of by bands: a case_id, or its words"
    )
    parser.add_argument("--format", choices=("text", "json", "markdown"))
    parser.add_argument(
        "--noise-floor", type=Path, metavar="RUN", help="refuse a threshold below what these launches differ by"
    )
    parser.add_argument("--force", action="store_true", help="take a threshold below the noise floor all the same")


def _ab_arguments(launch: argparse.ArgumentParser) -> None:
    both = launch.add_argument_group("A/B in one job", "two sides, launches in turns, and then compare (docs/gates.md)")
    both.add_argument(
        "--ab", nargs=2, metavar=("BASE", "NEW"), help="two scenarios; of one SCENARIO, the sides may be:"
    )
    both.add_argument("--ab-variants", nargs=2, metavar=("BASE", "NEW"), help="two of its variants")
    both.add_argument(
        "--ab-python", nargs=2, metavar=("BASE", "NEW"), help="two Pythons, each with its mpirun beside it"
    )
    both.add_argument(
        "--ab-prefix", nargs=2, metavar=("BASE", "NEW"), help="words before mpirun, e.g. to enter a container"
    )
    both.add_argument("--aa", action="store_true", help="the same on both sides: how much it differs from itself")
    both.add_argument("--most-rounds", type=_positive, help="rounds of two launches a side (default 20; 5 with --aa)")
    both.add_argument("--time-limit", metavar="TIME", help='end after so long, e.g. "10 min"')
    _rules_arguments(both)


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", nargs="?", help="path of a scenario file, or the name of a shipped one")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-o", "--output", type=Path, metavar="FOLDER", help="run folder (default: a new one in results/)"
    )
    where.add_argument("--resume", type=Path, metavar="RUN", help="complete the run in this folder")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only the path of the results, and errors")


def _positive(text: str) -> int:
    number = _count(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {text}, expected a whole number above 0")
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number")
    if len(text) > len(str(_MOST)) or int(text) > _MOST:
        raise argparse.ArgumentTypeError(f"got {text}, expected at most {_MOST}")
    return int(text)


def _scenario_of(options: argparse.Namespace) -> str:
    if options.resume is not None:
        kept = options.resume / "scenario.toml"
        if not kept.is_file():
            raise UsageError(f"--resume: got {options.resume}, expected a run folder (one with scenario.toml in it)")
        return str(options.scenario or kept)
    if options.scenario is None:
        raise UsageError("scenario: got none, expected a path or a shipped name; `collbench list` shows them")
    return str(options.scenario)


def _launch(options: argparse.Namespace) -> int:
    from collbench import ab_command

    if ab_command.wanted(options):
        return ab_command.command(options)
    from collbench.launch import LaunchOptions, launch

    return launch(
        LaunchOptions(
            scenario=_scenario_of(options),
            ranks=options.ranks,
            launches=options.launches,
            launcher=options.launcher,
            launcher_args=options.launcher_args,
            output=options.resume or options.output,
            resume=options.resume is not None,
            choices=not options.no_choices,
            quiet=options.quiet,
        )
    )


def _run(options: argparse.Namespace) -> int:
    if options.launches is not None and options.launch >= options.launches:
        raise UsageError(
            f"run: --launch: got {options.launch}, expected a number below --launches ({options.launches}); "
            "launches count from 0"
        )
    from collbench.rank import RankOptions, main

    return main(
        RankOptions(
            scenario=_scenario_of(options),
            output=options.resume or options.output,
            resume=options.resume is not None,
            variant=options.variant,
            launch=options.launch,
            launches=options.launches,
            quiet=options.quiet,
            choices=options.choices,
        )
    )


def _show(options: argparse.Namespace) -> int:
    from collbench.launcher import default_ranks
    from collbench.listing import show

    return _printed(lambda: show(options.scenario, options.ranks or default_ranks()))


def _list(options: argparse.Namespace) -> int:
    from collbench.listing import listing

    return _printed(listing)


def _doctor(options: argparse.Namespace) -> int:
    from collbench.doctor.command import DoctorOptions, doctor

    if options.wait is None and (options.peers is not None or options.port is not None):
        raise UsageError("doctor: got --peers or --port, expected them with --wait SECONDS")
    if options.port is not None and options.port > _LAST_PORT:
        raise UsageError(f"doctor: --port: got {options.port}, expected a number from 1 to {_LAST_PORT}")
    seconds = options.seconds
    if seconds is None:  # who waits is in a hurry afterwards
        seconds = 0 if options.wait is not None and not options.noise else 3
    return doctor(
        DoctorOptions(
            scenario=options.scenario,
            seconds=float(seconds),
            as_json=options.json,
            wait_s=None if options.wait is None else float(options.wait),
            peers=options.peers,
            port=options.port or 22,
        )
    )


def _ladder(options: argparse.Namespace) -> int:
    from collbench.readers.ladder import command

    return command(options.results)


def _pairs(options: argparse.Namespace) -> int:
    from collbench.readers.pair_tables import command

    return command(options.results)


def _compare(options: argparse.Namespace) -> int:
    from collbench.readers.gate_command import command, options_of

    return command(options_of(options))


def _forecast(options: argparse.Namespace) -> int:
    from collbench.planning.forecast import command

    return command(options)


def _baseline_add(options: argparse.Namespace) -> int:
    from collbench.readers.baselines import command_add

    return command_add(options.run, options.to, options.commit)


def _schema(options: argparse.Namespace) -> int:
    import json

    from collbench.record import columns_markdown
    from collbench.scenario import json_schema

    deliver(columns_markdown() if options.columns else json.dumps(json_schema(), indent=2) + "\n")
    return 0
