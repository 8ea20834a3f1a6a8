"""The noise floor: what the gate says of its own power, and the thresholds that it refuses."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.cli import main
from collbench.errors import UsageError
from collbench.readers import noise_floor
from collbench.readers.gate import Rules, compare
from collbench.readers.noise_floor import Floor, Noise, floors, of, of_rows
from collbench.record import Record
from compared_rows import SIZES, row, run, usual_s, write

Out = pytest.CaptureFixture[str]
NO_LIMIT = Rules(threshold=0.0, floor_s=0.0)


def noise(sigma: float = 0.05, launches: int = 40, seed: int = 1) -> Noise:
    return of_rows(run(launches=launches, noise=sigma, seed=seed), "made up")


def known(floor: Floor) -> tuple[float, float]:
    assert floor.least is not None
    assert floor.caught is not None
    return floor.least, floor.caught


def test_more_launches_and_less_noise_lower_it() -> None:
    at = {count: known(floors(noise(), NO_LIMIT, (count, count))[0])[0] for count in (5, 10, 20)}
    assert at[5] > at[10] > at[20] > 0
    assert known(floors(noise(0.02), NO_LIMIT, (10, 10))[0])[0] < at[10]


def test_it_is_of_each_band_and_by_name() -> None:
    assert [one.name for one in floors(noise(), Rules(), (10, 10))] == ["latency", "middle", "bandwidth"]
    assert [one.name for one in floors(noise(), Rules(bands=("middle",)), (10, 10))] == ["middle"]
    (one,) = floors(noise(), Rules(cases=("all_reduce 8 B",)), (10, 10))
    assert one.name.startswith("all_reduce 8 B ")
    (same,) = floors(noise(), Rules(cases=("c8",)), (10, 10))
    assert same == one
    with pytest.raises(UsageError, match="made up: got nothing of what is compared"):
        floors(noise(), Rules(cases=("reduce",)), (10, 10))


def test_a_level_without_an_interval_has_none() -> None:
    found = floors(noise(), Rules(), (4, 4))
    assert {(one.least, one.caught) for one in found} == {(None, None)}
    assert "none at 4 launches a side" in noise_floor.sentence(found, noise(), Rules(), (4, 4))
    assert noise_floor.refused(found, noise(), Rules(threshold=0.0, floor_s=0.0), (4, 4)) == ""


def test_sides_of_different_counts() -> None:
    found = floors(noise(), Rules(), (20, 6))
    assert "20 launches of BASE and 6 of NEW" in noise_floor.sentence(found, noise(), Rules(), (20, 6))


def made(draw: random.Random, launches: int, factor: float = 1.0) -> list[Record]:
    """Launches of one case with a noise of 5 %."""
    return [row(number, 8, usual_s(8) * factor * draw.lognormvariate(0, 0.05)) for number in range(launches)]


@pytest.mark.parametrize("threshold", [0.0, 0.1])
def test_it_is_what_the_gate_catches(threshold: float) -> None:
    """What is caught 95 times in 100 by its own word is called slower so often by the gate, on other launches."""
    draw, rules = random.Random(5), Rules(threshold=threshold, floor_s=0.0, cases=("c8",))
    least, caught = known(floors(of_rows(made(draw, 300), "made up"), rules, (10, 10))[0])
    assert (1 + caught) == pytest.approx((1 + threshold) * (1 + least))
    trials = 300
    for share, low, high in ((caught, 0.90, 0.99), (caught - least / 2, 0.2, 0.8)):
        sides = [(made(draw, 10), made(draw, 10, 1 + share)) for _ in range(trials)]
        assert low <= sum(compare(*both, rules).word == "slower" for both in sides) / trials <= high


def test_where_nothing_changed_a_threshold_of_the_floor_is_called_same() -> None:
    draw, rules = random.Random(7), Rules(floor_s=0.0, cases=("c8",))
    least, _ = known(floors(of_rows(made(draw, 300), "made up"), rules, (10, 10))[0])
    for share, low, high in ((1.0, 0.90, 0.99), (0.5, 0.2, 0.8)):
        its = replace(rules, threshold=least * share)
        sides = [(made(draw, 10), made(draw, 10)) for _ in range(300)]
        assert low <= sum(compare(*both, its).word == "same" for both in sides) / len(sides) <= high


def test_the_floor_in_seconds_counts() -> None:
    """Of 20 us, 8 us are 40 %: what adds less is not called slower, so the launches need not tell it."""
    rules = Rules(threshold=0.001, floor_s=8e-6, bands=("latency",))
    found = floors(noise(), rules, (10, 10))
    assert known(found[0])[1] > 0.39
    assert noise_floor.refused(found, noise(), rules, (10, 10)) == ""
    assert "expected at least" in noise_floor.refused(found, noise(), replace(rules, floor_s=1e-9), (10, 10))


def test_what_says_nothing_of_noise_is_refused() -> None:
    with pytest.raises(UsageError, match="got 5 launches, expected at least 6 launches that are whole"):
        of_rows(run(launches=5), "x")
    with pytest.raises(UsageError, match="ranks that shared cores"):
        of_rows(run(launches=8, oversubscribed=True), "x")
    with pytest.raises(UsageError, match="no row with a time"):
        of_rows([], "x")
    torn = [one for one in run(launches=8) if one.launch != SIZES.index(one.requested_bytes or 0)]
    with pytest.raises(UsageError, match="no case with a time in each of 8 launches"):
        of_rows(torn, "x")


def test_a_case_that_a_launch_lacks_is_left_out() -> None:
    rows = [one for one in run(launches=8) if (one.launch, one.requested_bytes) != (3, 8)]
    assert len(of_rows(rows, "x").cases) == len(SIZES) - 1


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", run(launches=8, noise=0.05))
    first = of(folder)
    found = floors(first, Rules(), (4, 4))
    noise_floor.keep(first, found, (4, 4), [folder])
    (folder / "results.csv").write_text("\n".join((folder / "results.csv").read_text().splitlines()[:20]) + "\n")
    again = of(folder)
    assert (again.launches, again.cases) == (8, first.cases)
    assert again.times_s == pytest.approx(first.times_s, rel=1e-5)
    content = json.loads((folder / "noise_floor.json").read_text())
    wrongs: list[dict[str, object]] = [{}, content | {"times_s": [[1.0]]}, content | {"times_s": [[0.0] * 6] * 8}]
    for wrong in wrongs:
        (folder / "noise_floor.json").write_text(json.dumps(wrong))
        with pytest.raises(UsageError, match="expected what an A/A run wrote"):
            of(folder)


def test_a_run_that_went_on_is_read_anew(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", run(launches=8))
    noise_floor.keep(of(folder), (), (4, 4), [folder])
    write(tmp_path / "longer", run(launches=12))
    (tmp_path / "longer" / "results.csv").replace(folder / "results.csv")
    assert of(folder).launches == 12


def test_compare_refuses_what_it_cannot_see(tmp_path: Path, capsys: Out) -> None:
    base, new = (str(write(tmp_path / name, run(seed=seed, noise=0.05))) for name, seed in (("base", 1), ("new", 2)))
    aa = str(write(tmp_path / "aa", run(launches=20, noise=0.05, seed=3)))
    words = ["compare", base, new, "--noise-floor", aa]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("collbench: compare: --threshold: got 10 %, expected at least 1")
    assert f"the noise floor of middle at 6 launches a side ({aa}); start more launches, raise the " in said
    assert main([*words, "--force"]) in (0, 5, 6)
    assert "; forced, though --threshold: got 10 %" in capsys.readouterr().out
    assert main([*words, "--threshold", "50%"]) in (0, 6)
    assert "note: noise floor: latency 1" in capsys.readouterr().out


def test_the_floor_of_a_run_can_be_asked_for(tmp_path: Path, capsys: Out) -> None:
    folder = write(tmp_path / "run", run(launches=20, noise=0.03))
    assert main(["compare", "--noise-floor", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("noise floor: latency ")
    assert (folder / "noise_floor.json").is_file()


def test_a_baseline_brings_its_own(tmp_path: Path, capsys: Out) -> None:
    kept = str(tmp_path / "kept")
    base = write(tmp_path / "base", run(launches=20, noise=0.05))
    new = str(write(tmp_path / "new", run(seed=2, noise=0.05)))
    assert main(["compare", "--noise-floor", str(base)]) == 0
    assert main(["baseline", "add", str(base), "--to", kept, "--commit", "abc"]) == 0
    capsys.readouterr()
    assert main(["compare", "--baseline", new, "--baselines", kept, "--threshold", "2%", "--floor", "1ns"]) == 2
    assert "expected at least" in capsys.readouterr().err
