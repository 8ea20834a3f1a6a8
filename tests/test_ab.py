"""A/B in one job: the order of launches, when one looks, when it ends, what a resume does, and what is refused.

No process is started: what starts a launch is replaced by what writes the rows that it would leave.
"""

import json
import math
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench import ab, launch
from collbench.ab_plan import Plan, Side, looks_at, order, under_test
from collbench.cli import main
from collbench.launcher import Launcher
from collbench.readers.gate import Rules, compare
from collbench.readers.shift import launches_needed
from collbench.record import Record
from collbench.scenario import Variant
from compared_rows import ENVIRONMENT, SIZES, row, run, usual_s

Out = pytest.CaptureFixture[str]
SCENARIO = (
    'schema = 1\ntitle = "made up"\n[[sweep]]\nbackends = ["mpi"]\ncollectives = ["all_reduce"]\nsizes = ["8 B"]\n'
)
VARIANTS = "".join(f'[[variant]]\nname = "{name}"\nenv = {{ UCX_TLS = "{name}" }}\n' for name in ("tcp", "sm"))


class Fake:
    """Stands for the launches: writes down their order, and leaves the rows of made-up launches."""

    def __init__(self) -> None:
        self.order: list[tuple[str, int, str]] = []
        self.factor = {"base": 1.0, "new": 1.0}
        self.noise = 0.01
        self.columns: dict[str, dict[str, Any]] = {"base": {}, "new": {}}
        self.codes: dict[int, int] = {}
        self.interrupt_at: int | None = None
        self.starters: dict[str, launch.Starter] = {}

    def start(self, starter: launch.Starter, signals: launch.Signals, variant: Variant | None, *more: str) -> int:
        side, number = starter.folder.path.name, int(more[1])
        self.starters[side] = starter
        self.order.append((side, number, variant.name if variant else ""))
        seed = 1000 * number + len(side)
        columns = {"run_id": side, "variant": variant.name if variant else "", **self.columns[side]}
        rows = [
            replace(one, launch=number) for one in run(self.factor[side], 1, seed=seed, noise=self.noise, **columns)
        ]
        its = [replace(row, case_id=f"{row.case_id}{row.variant}") for row in rows]
        if self.interrupt_at == len(self.order):
            signals.got.append(2)
            its = its[:2]
        starter.folder.append(its)
        settings = dict(variant.env) if variant else {}
        starter.folder.write_environment(number, ENVIRONMENT | {"environment": settings})
        starter.folder.unlock()
        return self.codes.get(len(self.order), 0)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    made = Fake()
    monkeypatch.setattr(launch.Starter, "start", lambda starter, *given: made.start(starter, *given))
    monkeypatch.setattr(launch.Starter, "ask_choices", lambda *given: None)
    monkeypatch.setattr(ab, "compile_kernels", lambda *given: None)
    monkeypatch.setattr(ab, "_compile_there", lambda *given: None)
    monkeypatch.setattr(ab, "find_launcher", lambda *given: Launcher("/x/mpirun", "openmpi"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(SCENARIO)
    (tmp_path / "b.toml").write_text(SCENARIO.replace("made up", "another"))
    (tmp_path / "v.toml").write_text(SCENARIO + VARIANTS)
    return made


def ab_of(*words: str) -> int:
    return main(["launch", *words, "-n", "2"])


AB = ("--ab", "a.toml", "b.toml", "-o", "out")


def test_the_order_cancels_a_drift() -> None:
    found = order(6)
    assert "".join("AB"[side] for side, _ in found[:8]) == "ABBABAAB"
    for one in range(6):
        places = [
            [place for place, (side, _) in enumerate(found[4 * one : 4 * one + 4]) if side == at] for at in (0, 1)
        ]
        assert sum(places[0]) == sum(places[1])
    for at in (0, 1):
        assert [number for side, number in found if side == at] == list(range(12))


@pytest.mark.parametrize("level", [0.05, 0.025, 0.025 / 3, 0.05 / 8])
def test_every_look_can_decide_and_the_last_is_at_the_end(level: float) -> None:
    for most in range(1, 60):
        looks = looks_at(level, most)
        if 2 * most < launches_needed(level):
            assert looks == ()
            continue
        assert looks[-1] == most
        assert sorted(set(looks)) == list(looks)
        assert launches_needed(level / len(looks)) <= 2 * looks[0]


def test_looks_of_three_bands() -> None:
    assert looks_at(0.025 / 3, 20) == (3, 5, 8, 12, 20)
    assert looks_at(0.025 / 3, 2) == ()


@pytest.mark.parametrize(("factor", "code", "word"), [(1.0, 0, "same"), (1.3, 5, "slower"), (0.7, 0, "faster")])
def test_it_ends_when_all_is_decided(factor: float, code: int, word: str, fake: Fake, capsys: Out) -> None:
    fake.factor["new"] = factor
    assert ab_of(*AB) == code
    said = capsys.readouterr()
    assert len(fake.order) == 12
    assert [side for side, _, _ in fake.order[:8]] == ["base", "new", "new", "base", "new", "base", "base", "new"]
    assert f"overall: {word} (exit code {code})" in said.out
    assert (
        "6 launches a side in turns of A B B A and B A A B; look 1 of at most 5, each with 1/5 of the error" in said.out
    )
    assert "every decision is made" in said.out
    assert "at each of at most 5 looks" in said.out
    assert "look 1 of at most 5, 6 launches a side: latency" in said.err
    content = json.loads(Path("out/comparison.json").read_text())
    assert (content["overall"], content["looks"]) == (word, 5)
    assert content["level"] == pytest.approx(0.025 / 3 / 5)


def test_what_is_at_the_threshold_takes_all_rounds_and_stays_unclear(fake: Fake, capsys: Out) -> None:
    fake.factor["new"], fake.noise = 1.1, 0.05
    assert ab_of(*AB, "--most-rounds", "6") == 6
    assert len(fake.order) == 24
    assert "look 2 of at most 2" in (said := capsys.readouterr()).out
    assert "the most rounds are done" in said.out


def test_the_time_limit_ends_it_with_a_look(fake: Fake, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100_000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    fake.factor["new"], fake.noise = 1.1, 0.05
    assert ab_of(*AB, "--time-limit", "2 min") == 6
    assert "the time is up" in (said := capsys.readouterr()).out
    assert 4 <= len(fake.order) < 40
    assert len(fake.order) % 4 == 0
    assert "look 1 of at most" in said.out


def test_launches_that_share_cores_are_not_repeated(fake: Fake, capsys: Out) -> None:
    fake.columns = {side: {"oversubscribed": True} for side in ("base", "new")}
    assert ab_of(*AB) == 6
    assert "none can be" in capsys.readouterr().out
    assert len(fake.order) <= 12


def test_two_variants_are_what_is_tested(fake: Fake, capsys: Out) -> None:
    fake.columns["new"] = {"transport": "tcp"}
    fake.factor["new"] = 1.3
    assert ab_of("v.toml", "--ab-variants", "sm", "tcp", "-o", "out") == 5
    assert {(side, variant) for side, _, variant in fake.order} == {("base", "sm"), ("new", "tcp")}
    said = capsys.readouterr().out
    assert "note: transport differs: shm in BASE, tcp in NEW" in said
    assert "note: settings:UCX_TLS differs: sm in BASE, tcp in NEW" in said
    assert "may differ, since it is what is tested or follows from it: variant, transport, settings" in said


def test_what_is_not_tested_is_still_refused(fake: Fake, capsys: Out) -> None:
    fake.columns["new"] = {"library": "MPICH 5"}
    assert ab_of(*AB) == 2
    assert "compare: library: got MPICH 5 in NEW" in capsys.readouterr().err
    assert len(fake.order) == 4  # and at once
    assert ab_of("a.toml", "--ab-python", "/a/python", "/b/python", "-o", "two") == 0


def test_sides_have_their_python_and_their_prefix(fake: Fake) -> None:
    words = ["--ab-python", "/a/python", "/b/python", "--ab-prefix", "", "podman run 'the image'"]
    assert ab_of("a.toml", *words, "-o", "out") == 0
    base, new = fake.starters["base"], fake.starters["new"]
    assert (base.python, base.prefix) == ("/a/python", ())
    assert (new.python, new.prefix) == ("/b/python", ("podman", "run", "the image"))
    assert new.variables["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    assert new.variables["PYTHONSAFEPATH"] == "1"
    assert new.folder.path.is_absolute()


def test_a_scenario_with_variants_has_them_all_in_every_launch(fake: Fake) -> None:
    assert ab_of("v.toml", "--aa", "--most-rounds", "3", "-o", "out") == 0
    assert len(fake.order) == 24
    for at in range(0, 24, 2):
        assert {variant for _, _, variant in fake.order[at : at + 2]} == {"tcp", "sm"}


def test_an_interrupted_one_goes_on_without_the_half_launch(fake: Fake, capsys: Out) -> None:
    fake.interrupt_at = 6
    assert ab_of(*AB) == 130
    assert "interrupted after 5 launches; `collbench launch --resume out` goes on" in capsys.readouterr().err
    begun = list(fake.order)
    fake.interrupt_at, fake.order = None, []
    assert main(["launch", "--resume", "out"]) == 0
    assert begun[-1] == fake.order[0]
    assert len(begun) - 1 + len(fake.order) == 12
    counts = [len((Path("out") / side / "results.csv").read_text().splitlines()) for side in ("base", "new")]
    assert counts == [1 + 6 * 6] * 2
    assert "look 1 of at most 5" in capsys.readouterr().out


def test_a_resume_of_what_is_complete_compares_again(fake: Fake, capsys: Out) -> None:
    fake.factor["new"], fake.noise = 1.1, 0.05
    assert ab_of(*AB, "--most-rounds", "4") == 6
    capsys.readouterr()
    fake.order = []
    assert main(["launch", "--resume", "out", "--format", "json"]) == 6
    assert fake.order == []
    assert json.loads(capsys.readouterr().out)["overall"] == "unclear"


def test_a_resume_of_what_is_decided_measures_no_more(fake: Fake, capsys: Out) -> None:
    assert ab_of(*AB) == 0
    fake.order = []
    assert main(["launch", "--resume", "out"]) == 0
    assert fake.order == []
    assert capsys.readouterr().out.count("look 1 of at most 5") == 2


def test_a_resume_after_the_time_was_up_goes_on_at_the_looks_that_are_left(
    fake: Fake, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.factor["new"], fake.noise = 1.1, 0.05
    with monkeypatch.context() as patched:
        clock = iter(range(0, 100_000, 10))
        patched.setattr(time, "monotonic", lambda: float(next(clock)))
        assert ab_of(*AB, "--most-rounds", "6", "--time-limit", "1 min") == 6
    begun = len(fake.order)
    assert begun < 12
    assert "look 1 of at most 2" in capsys.readouterr().out
    assert main(["launch", "--resume", "out"]) == 6
    assert len(fake.order) == 24
    assert "look 2 of at most 2" in capsys.readouterr().out


@pytest.mark.parametrize(("at", "code"), [(2, 7), (14, 4), (14, 3)])
def test_a_launch_that_went_wrong_ends_it(at: int, code: int, fake: Fake, capsys: Out) -> None:
    fake.factor["new"], fake.noise = 1.1, 0.05
    fake.codes[at] = code
    assert ab_of(*AB) == code
    assert len(fake.order) == at
    assert f"ended with exit code {code}" in "".join(capsys.readouterr())


def test_aa_knows_the_noise_floor(fake: Fake, capsys: Out) -> None:
    fake.noise = 0.03
    assert ab_of("a.toml", "--aa", "-o", "out") == 0
    assert len(fake.order) == 20
    said = capsys.readouterr().out
    assert "note: A/A in one job: 10 launches a side in turns of A B B A and B A A B; one look" in said
    assert "note: noise floor: latency " in said
    for folder in ("out", "out/base", "out/new"):
        assert len(json.loads(Path(folder, "noise_floor.json").read_text())["times_s"]) == 20
    assert main(["launch", "--ab", "a.toml", "b.toml", "-n", "2", "-o", "two", "--noise-floor", "out"]) == 0
    assert "# noise floor: latency " in capsys.readouterr().err
    words = ["--ab", "a.toml", "b.toml", "-n", "2", "--noise-floor", "out", "--threshold", "0.1%", "--floor", "1ns"]
    assert main(["launch", *words, "-o", "three"]) == 2
    assert "--threshold: got 0.1 %, expected at least" in capsys.readouterr().err
    assert main(["launch", *words, "-o", "four", "--force", "--most-rounds", "4"]) in (0, 6)


def test_an_aa_of_too_few_launches_says_so(fake: Fake, capsys: Out) -> None:
    assert ab_of("a.toml", "--aa", "--most-rounds", "1", "-o", "out") == 6
    assert "noise floor: unknown: out: got 4 launches, expected at least 6" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.toml", "--threshold", "5%"], "got --threshold alone, expected it with --ab"),
        (["a.toml", "--time-limit", "1 min"], "got --time-limit alone"),
        (["a.toml", "--ab", "a.toml", "b.toml"], "got --ab and a.toml, expected --ab BASE NEW, or one SCENARIO"),
        (["--ab-variants", "sm", "tcp"], "got no SCENARIO"),
        (["--ab", "a.toml", "a.toml"], "got the same on both sides"),
        (["a.toml", "--aa", "--ab-python", "a", "b"], "got --aa with sides that differ"),
        (["--ab", "a.toml", "b.toml", "--launches", "3"], "got --launches 3 with an A/B, expected --most-rounds"),
        (["v.toml", "--ab-variants", "sm", "rc"], 'got "rc", expected a variant of v.toml: tcp, sm'),
        (["a.toml", "--ab-prefix", "'a", "b"], "close the quotation"),
        (["--ab", "a.toml", "b.toml", "--time-limit", "soon"], "--time-limit: got"),
        (["--ab", "a.toml", "b.toml", "--most-rounds", "2"], "--most-rounds: got 2, expected at least 3"),
        (["--ab", "a.toml", "none.toml"], "none.toml"),
    ],
)
def test_what_is_refused(words: list[str], said: str, fake: Fake, capsys: Out) -> None:
    assert ab_of(*words, "-o", "out") == 2
    assert said in capsys.readouterr().err
    assert len(fake.order) in (0, 4)
    assert Path("out").exists() == bool(fake.order)


def test_a_resume_changes_nothing(fake: Fake, capsys: Out) -> None:
    assert ab_of(*AB) == 0
    assert main(["launch", "--resume", "out", "--threshold", "20%"]) == 2
    assert "--resume: got --threshold too" in capsys.readouterr().err
    Path("out/ab.json").write_text("{}")
    assert main(["launch", "--resume", "out"]) == 2
    assert "expected what an A/B wrote" in capsys.readouterr().err


def test_an_axis_of_one_value_each_is_what_is_tested() -> None:
    plan = Plan((Side("a"), Side("b")), Rules(across=("clock",)), 3, 2)
    base, new = ([Record(launch=0, case_id="c", status="ok", backend=name, dtype="f")] for name in ("mpi", "nccl"))
    assert set(under_test(plan, base, new).across) == {"clock", "backend", "settings", "transport"}
    more = [*new, replace(new[0], backend="mpi")]
    assert "backend" not in under_test(plan, base, more).across


def test_the_error_of_all_looks_together_is_kept() -> None:
    """Where NEW is slower by exactly the threshold: any false alarm at any look."""
    draw = random.Random(3)
    looks = looks_at(0.025 / 3, 8)
    assert len(looks) > 1
    rules = Rules(threshold=0.0, floor_s=0.0, looks=len(looks))
    wrong, trials = 0, 40
    for _ in range(trials):
        sides: tuple[list[Record], list[Record]] = ([], [])
        for number in range(2 * looks[-1]):
            for side in sides:
                noise = draw.lognormvariate(0, 0.1)
                side += [row(number, size, usual_s(size) * noise * draw.lognormvariate(0, 0.02)) for size in SIZES]
        for at in looks:
            base, new = ([one for one in side if one.launch < 2 * at] for side in sides)
            if compare(base, new, rules).word == "slower":
                wrong += 1
                break
    assert wrong <= math.ceil(0.05 * trials) + 3
