"""An A/B in one job: launches of two sides, turn by turn, until every decision is made or the time is up.

<folder>/ab.json            what was asked for, and how far it is
<folder>/base/ new/         a run folder of each side
<folder>/comparison.json    the last comparison
<folder>/noise_floor.json   of an A/A: what the launches of one and the same thing differ by
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collbench.ab_plan import NAMES_OF_SIDES, ROUND, Plan, Side, looks_at, order, under_test
from collbench.books import shown_path
from collbench.durable import sentences, write_atomically
from collbench.errors import CannotRun, Interrupted, UsageError
from collbench.launch import Signals, Starter, compile_kernels, shuffled, worst
from collbench.launcher import command_of, crosses_hosts, find_launcher
from collbench.output import complain, deliver
from collbench.readers import noise_floor
from collbench.readers.gate import ONE_CASE, Comparison
from collbench.readers.gate_command import hold_floor, judged
from collbench.readers.gate_text import written
from collbench.results import RunFolder
from collbench.runs import begin_run, open_run
from collbench.samples import check_available
from collbench.scenario import Scenario, Variant, load

_GOES_ON = (0, 5)
"""Exit codes of a launch after which the next one has its turn: what is wrong or cannot run needs no more of it."""
_DECIDED = "every decision is made, or none can be"
_COMPILE_S = 120
_SAFE_PATH = "PYTHONSAFEPATH"
"""Keeps a `collbench` in the working folder from being taken for the one that a Python has installed."""


@dataclass(frozen=True)
class AbOptions:
    """What the command line says beside the plan; `plan` is None where the one in `output` goes on."""

    plan: Plan | None
    output: Path | None = None
    time_limit_s: float | None = None
    form: str = "text"
    noise_floor: Path | None = None
    force: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class _Running:
    """A side, ready to start its launches."""

    scenario: Scenario
    variants: tuple[Variant | None, ...]
    starter: Starter

    def start(self, number: int, signals: Signals) -> int:
        """Start one launch, of each of its variants; the exit code of the worst."""
        codes: list[int] = []
        for variant in shuffled(self.variants, self.scenario, number):
            if not signals.got and not (codes and codes[-1] not in _GOES_ON):
                codes.append(self.starter.start(signals, variant, "--launch", str(number)))
        return worst(codes)


def run(options: AbOptions) -> int:
    """Run an A/B, or go on with one, and print the comparison; its exit code, or that of a launch that went wrong."""
    if options.plan is None:
        assert options.output is not None
        folder, plan = options.output, Plan.load(options.output)
        sources = [str(folder / name / "scenario.toml") for name in NAMES_OF_SIDES]
    else:
        plan, sources = options.plan, [side.scenario for side in options.plan.sides]
    scenarios = [load(source) for source in sources]
    prepared = [_prepared(plan, side, scenario) for side, scenario in zip(plan.sides, scenarios, strict=True)]
    if options.plan is not None:
        folder = RunFolder.create(f"{scenarios[0].name}-{'aa' if plan.is_aa else 'ab'}", options.output).path
    if any(side.prefix for side in plan.sides):  # a container may be in another working folder
        folder = folder.resolve()
    sides = []
    for at, name in enumerate(NAMES_OF_SIDES):
        if options.plan is None:
            run_folder = open_run(folder / name, scenarios[at], plan.ranks)
            _drop_unfinished(run_folder, plan, at)
        else:
            run_folder = begin_run(folder / name, scenarios[at], sources[at], plan.ranks, 2 * plan.rounds)
        run_folder.unlock()  # rank 0 holds it while a launch runs
        sides.append(prepared[at](run_folder))
    plan.keep(folder)
    with Signals() as signals:
        if plan.choices and not plan.finished:
            for side in sides:
                side.starter.ask_choices(side.scenario, side.variants, signals)
        job = _Job(options, folder, sides, signals)
        plan, found, codes, why = job.rounds(plan)
    if signals.got:
        complain(f"collbench: interrupted after {plan.finished} launches; {_resume(folder)} goes on")
        return Interrupted.exit_code
    if found is None:
        complain(f"collbench: {why} after {plan.finished} launches, before there was anything to compare")
        return worst(codes)
    job.deliver(plan, found, why)
    bad = [code for code in codes if code]
    return worst(bad) if bad else found.exit_code


@dataclass(frozen=True)
class _Job:
    options: AbOptions
    folder: Path
    sides: Sequence[_Running]
    signals: Signals

    def rounds(self, plan: Plan) -> tuple[Plan, Comparison | None, list[int], str]:
        """Start launches until there is no need for more: the comparison, their exit codes, and why no more."""
        codes: list[int] = []
        found: Comparison | None = None
        began = round_began = time.monotonic()
        longest = 0.0
        if plan.looked and plan.looked_at == plan.done:  # a resume: not another look, since it sees nothing new
            found = self._look(plan)
            if not _open(found):
                return plan, found, codes, _DECIDED
        for at, number in plan.left():
            if plan.finished % ROUND == 0:
                round_began = time.monotonic()
                limit_s = self.options.time_limit_s
                if limit_s is not None and longest and round_began + longest > began + limit_s:
                    break
            codes.append(self.sides[at].start(number, self.signals))
            if self.signals.got:
                return plan, None, codes, ""
            if codes[-1] not in _GOES_ON:
                found = self._look(plan) if plan.done and plan.looks else None
                return plan, found, codes, f"a launch of {NAMES_OF_SIDES[at]} ended with exit code {codes[-1]}"
            plan = replace(plan, finished=plan.finished + 1)
            plan.keep(self.folder)
            if plan.finished % ROUND:
                continue
            longest = max(longest, time.monotonic() - round_began)
            plan = self._with_looks(plan)
            self._say(f"round {plan.done} of at most {plan.rounds}: {time.monotonic() - round_began:.1f} s")
            if plan.looked < len(plan.looks) and plan.done >= plan.looks[plan.looked]:
                plan, found = self._counted_look(plan)
                if not _open(found):
                    return plan, found, codes, _DECIDED
        if plan.done >= plan.rounds:
            found = found or (self._look(plan) if plan.looks else None)  # a resume of what was complete
            return plan, found, codes, "the most rounds are done"
        # Looked at before it was due, by the clock and not by what was seen: it has the next look's share of the error.
        if plan.looked_at != plan.done and plan.looked < len(plan.looks):
            plan, found = self._counted_look(plan)
        return plan, found, codes, "the time is up"

    def deliver(self, plan: Plan, found: Comparison, why: str) -> None:
        """Print the comparison, and keep it."""
        path = self.folder / "comparison.json"
        found = replace(found, notes=(*self._notes(plan, why, found.rules.across), *found.notes))
        if plan.is_aa:
            found = replace(found, notes=(*found.notes, self._floor(plan, found)))
        with sentences(path, "write it"):
            write_atomically(path, written(found, "json"), False)
        deliver(written(found, self.options.form))

    def _floor(self, plan: Plan, found: Comparison) -> str:
        """Keep the noise floor of an A/A, and say it."""
        launches = 2 * plan.done, 2 * plan.done
        try:
            noise = noise_floor.of_sides(self.folder)
            floors = noise_floor.floors(noise, found.rules, launches)
        except UsageError as error:
            return f"noise floor: unknown: {error}"
        noise_floor.keep(noise, floors, launches, [self.folder, *(self.folder / one for one in NAMES_OF_SIDES)])
        return noise_floor.sentence(floors, noise, found.rules, launches)

    def _with_looks(self, plan: Plan) -> Plan:
        """Say when one looks, once the first round has shown what there is to decide; refuse what cannot be decided."""
        if plan.looks:
            return plan
        found = self._look(plan)
        level = found.level
        looks = (plan.rounds,) if plan.is_aa else looks_at(level, plan.rounds)
        if not looks:
            decisions = len([one for one in found.decisions if one.name != ONE_CASE])
            least = next(most for most in range(plan.rounds, 1000) if looks_at(level, most))
            raise UsageError(
                f"--most-rounds: got {plan.rounds}, expected at least {least}: of {2 * plan.rounds} launches a side "
                f"there is no interval for each of {decisions} decisions; start anew with more"
            )
        plan = replace(plan, looks=looks, rules=replace(plan.rules, looks=len(looks)))
        if self.options.noise_floor is not None:
            launches = 2 * plan.rounds, 2 * plan.rounds
            noise = noise_floor.of(self.options.noise_floor)
            self._say(hold_floor(noise, plan.rules, launches, self.options.force))
        plan.keep(self.folder)
        return plan

    def _counted_look(self, plan: Plan) -> tuple[Plan, Comparison]:
        found = self._look(plan)
        plan = replace(plan, looked=plan.looked + 1, looked_at=plan.done)
        plan.keep(self.folder)
        words = ", ".join(f"{one.name} {one.word}" for one in found.decisions)
        self._say(f"look {plan.looked} of at most {len(plan.looks)}, {2 * plan.done} launches a side: {words}")
        return plan, found

    def _look(self, plan: Plan) -> Comparison:
        """Compare what is complete of both sides."""
        paths = self.folder / NAMES_OF_SIDES[0], self.folder / NAMES_OF_SIDES[1]
        base, new = ([row for row in RunFolder.open(path).read() if row.launch < 2 * plan.done] for path in paths)
        return judged(paths, (base, new), under_test(plan, base, new))

    def _notes(self, plan: Plan, why: str, across: Sequence[str]) -> list[str]:
        looks = f"look {plan.looked} of at most {len(plan.looks)}, each with 1/{len(plan.looks)} of the error"
        return [
            f"{'A/A' if plan.is_aa else 'A/B'} in one job: {2 * plan.done} launches a side in turns of A B B A and "
            f"B A A B; {looks if len(plan.looks) > 1 else 'one look'}; {why}",
            f"may differ, since it is what is tested or follows from it: {', '.join(across) or 'nothing'}",
            f"results: {shown_path(self.folder.absolute())}",
        ]

    def _say(self, text: str) -> None:
        if not self.options.quiet:
            complain(f"# {text}")


def _open(found: Comparison) -> bool:
    """Whether more launches could still decide something: not where ranks share cores, or a case has no times."""
    return any(one.word == "unclear" and one.level is not None and any(one.launches) for one in found.decisions)


def _prepared(plan: Plan, side: Side, scenario: Scenario) -> Callable[[RunFolder], _Running]:
    """Find a side's launcher and compile its kernels: what is missing is said before a folder is made."""
    if scenario.measure.samples:
        check_available()
    variants = tuple(one for one in scenario.variants if side.variant in ("", one.name)) or (None,)
    if side.variant and variants == (None,):
        known = ", ".join(one.name for one in scenario.variants) or "none"
        raise UsageError(f'--ab-variants: got "{side.variant}", expected a variant of {scenario.source}: {known}')
    launcher = find_launcher(plan.launcher, side.python, side.prefix)
    words, variables = command_of(launcher, plan.ranks, plan.launcher_args)
    if side.prefix and launcher.kind == "openmpi":  # in a container one is root, mostly
        variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if side.python:
        variables[_SAFE_PATH] = "1"
    if side.python or side.prefix:
        _compile_there(side)
    else:
        compile_kernels(scenario)
    exported = crosses_hosts(launcher, plan.launcher_args)

    def begun(folder: RunFolder) -> _Running:
        starter = Starter(
            folder, plan.ranks, 2 * plan.rounds, words, variables, exported, True, side.python, side.prefix
        )
        return _Running(scenario, variants, starter)

    return begun


def _drop_unfinished(folder: RunFolder, plan: Plan, at: int) -> None:
    """Take out the rows of launches that had no end: half of a launch is not completed by another."""
    finished = {number for side, number in order(plan.rounds)[: plan.finished] if side == at}
    folder.repair()
    folder.remove_halves()
    folder.clear_pending()
    folder.drop(lambda row: row.launch not in finished)


def _compile_there(side: Side) -> None:
    """Compile the kernels where the ranks will run, and see that collbench can be imported there."""
    python = side.python or sys.executable
    program = "import collbench.kernels.call_loop, collbench.kernels.pattern"
    try:
        found = subprocess.run(
            [*side.prefix, python, "-c", program],
            env=os.environ | ({_SAFE_PATH: "1"} if side.python else {}),
            capture_output=True, text=True, timeout=_COMPILE_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said, code = (found.stderr.strip().splitlines() or ["nothing"])[-1], found.returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        said, code = str(error), 1
    if code:
        where = " ".join([*side.prefix, python])
        raise CannotRun(f"{where}: got {said!r}, expected a Python that has collbench; install it there")


def _resume(folder: Path) -> str:
    return f"`collbench launch --resume {folder}`"
