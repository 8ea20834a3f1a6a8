"""The gate's verdicts, from rows that were made up for each of them."""

import dataclasses
import random
import re
from typing import Any

import pytest

from collbench.errors import UsageError
from collbench.readers.gate import Comparison, Rules, Verdict, compare
from collbench.record import Record
from compared_rows import SIZES, row, run, usual_s

LAST = SIZES[-1]


def decision(found: Comparison, name: str) -> Verdict:
    return next(one for one in found.decisions if one.name == name)


def case(found: Comparison, size: int) -> Verdict:
    return next(one for one in found.cases if one.case_id == f"c{size}")


@pytest.mark.parametrize(
    ("factor", "word", "code"),
    [(1.0, "same", 0), (1.05, "same", 0), (1.3, "slower", 5), (0.7, "faster", 0), (1.1, "unclear", 6)],
)
def test_a_whole_run_is_judged_by_its_bands(factor: float, word: str, code: int) -> None:
    found = compare(run(), run(factor, seed=2))
    assert (found.word, found.exit_code) == (word, code)
    bands = [one for one in found.decisions if one.band]
    assert [one.name for one in bands] == ["latency", "middle", "bandwidth"]
    assert {one.word for one in bands} == {word}
    assert found.level == pytest.approx(0.025 / 3)


def test_one_band_that_is_slower_is_enough() -> None:
    found = compare(run(), run({LAST: 1.3}, seed=2))
    assert [one.word for one in found.decisions] == ["same", "same", "slower", "slower"]
    assert found.exit_code == 5


def test_one_case_that_its_band_hides_is_found() -> None:
    sizes = [8 << step for step in range(12)]
    slow = 64
    found = compare(run(sizes=sizes, noise=0.1), run({slow: 1.5}, seed=2, sizes=sizes, noise=0.1))
    assert decision(found, "latency").word != "slower"
    one = decision(found, "any one case")
    assert (one.word, one.case_id, found.exit_code) == ("slower", f"c{slow}", 5)
    assert "64 B: chance" in one.said


def test_a_case_that_only_stays_while_others_get_faster_is_not_slower() -> None:
    sizes = [8 << step for step in range(12)]
    factors = {8: 1.05} | dict.fromkeys(sizes[1:], 0.5)
    found = compare(run(sizes=sizes), run(factors, seed=2, sizes=sizes), Rules(floor_s=0.0))
    one = decision(found, "any one case")
    assert one.word == "same"
    assert "would stand out so, but 1.05 <= 1.10" in one.said


@pytest.mark.parametrize("seed", range(4))
def test_a_case_that_stays_in_noise_while_others_get_faster_is_not_slower(seed: int) -> None:
    """Beside its band it stands out for sure; that it is slower by itself the noise of the launches cannot say."""
    sizes = [1 << shift for shift in range(20, 28)]
    factors = dict.fromkeys(sizes[:-1], 0.6)
    new = run(factors, 10, seed=seed + 50, sizes=sizes, noise=0.4)
    found = compare(run(launches=10, seed=seed, sizes=sizes, noise=0.4), new, Rules(bands=("bandwidth",)))
    one = decision(found, "any one case")
    assert one.word == ("unclear" if "from its band, but" in one.said else "same")
    assert f"{LAST * 16 >> 20} MiB: chance" in one.said
    assert found.exit_code in (0, 6)


def test_what_is_said_is_the_inequality_that_was_evaluated() -> None:
    found = compare(run(), run(1.3, seed=2))
    one = decision(found, "bandwidth")
    assert one.low is not None
    assert one.added_s is not None
    assert f"[{one.low:.2f}, " in one.said
    assert f": {one.low:.2f} > 1.10 and +" in one.said
    assert " at 8 MiB > 1 us (" in one.said
    assert re.search(r"\((29|30|31) % more time\)$", one.said)


def test_numbers_that_round_to_the_threshold_are_written_out() -> None:
    base = [row(launch, 8, 1.0) for launch in range(6)]
    new = [row(launch, 8, 1.10004) for launch in range(6)]
    assert ": 1.10004 > 1.10000 and +" in decision(compare(base, new), "latency").said


def test_percentages_are_of_time() -> None:
    base = [row(launch, 8, 1.0) for launch in range(6)]
    new = [row(launch, 8, 0.76) for launch in range(6)]
    said = decision(compare(base, new), "latency").said
    assert said.endswith("(24 % less time, 1.32 times the speed)")


def test_a_slowdown_below_the_floor_is_none() -> None:
    base = [row(launch, 8, 1e-6) for launch in range(6)]
    new = [row(launch, 8, 1.5e-6) for launch in range(6)]
    found = compare(base, new)
    assert (found.word, found.exit_code) == ("same", 0)
    assert decision(found, "latency").said == "1.50 [1.50, 1.50]: 1.50 > 1.10 but +500 ns at 8 B <= 1 us"
    assert compare(base, new, Rules(floor_s=4e-7)).word == "slower"


def test_an_estimate_below_the_floor_whose_upper_bound_is_above_it_is_unclear() -> None:
    """Some launches of NEW are twenty times as slow: the middle one is not, and the interval has them."""
    base = [row(launch, 8, 1e-6) for launch in range(8)]
    new = [row(launch, 8, 20e-6 if launch < 3 else 1.5e-6) for launch in range(8)]
    found = compare(base, new)
    assert (found.word, found.exit_code) == ("unclear", 6)
    assert decision(found, "latency").said.endswith("1.50 > 1.10 but +500 ns at 8 B <= 1 us < +19 us, its upper bound")


def test_a_band_passes_the_floor_by_a_case_that_got_slower() -> None:
    """Not by what its ratio would be at the longest, which stayed."""
    factors = dict.fromkeys([8, 64, 512, 1024], 1.6)
    sizes = [*factors, 32 << 10]
    base = [row(launch, size, 0.4e-6 if size in factors else 30e-6) for launch in range(6) for size in sizes]
    new = [
        dataclasses.replace(one, time_p50_s=(one.time_p50_s or 0) * factors.get(one.size_bytes or 0, 1)) for one in base
    ]
    found = compare(base, new)
    assert (found.word, found.exit_code) == ("same", 0)
    assert "but +240 ns at 8 B <= 1 us" in decision(found, "latency").said
    assert compare(base, new, Rules(floor_s=2e-7)).exit_code == 5


def test_what_can_at_most_be_below_the_floor_is_the_same_and_not_unclear() -> None:
    times = [1.0e-6, 1.1e-6, 1.2e-6, 1.3e-6, 1.4e-6, 1.5e-6]
    rows = [row(launch, 8, time) for launch, time in enumerate(times)]
    assert decision(compare(rows, rows), "latency").word == "same"
    assert decision(compare(rows, rows, Rules(floor_s=0.0)), "latency").word == "unclear"


@pytest.mark.parametrize("launches", [1, 2, 3, 4])
def test_too_few_launches_decide_nothing_however_slow(launches: int) -> None:
    found = compare(run(launches=launches), run(9.0, launches=launches, seed=2))
    latency = decision(found, "latency")
    assert latency.word == "unclear"
    assert "5 launches a side would do" in latency.said
    assert (latency.low, latency.high) == (None, None)


def test_one_new_launch_is_told_apart_from_the_spread_of_the_base() -> None:
    found = compare(run(launches=5), run(2.0, launches=1))
    assert (found.word, found.exit_code) == ("unclear", 6)
    assert "beyond all launches of BASE (" in decision(found, "latency").said
    within = compare(run(launches=5), run(1.0, launches=1, seed=3))
    assert "BASE's own launches differ by 1.0" in decision(within, "latency").said


def test_one_new_launch_is_slower_beyond_enough_launches_of_the_base() -> None:
    found = compare(run(launches=40), run(2.0, launches=1), Rules(bands=("bandwidth",)))
    assert decision(found, "bandwidth").word == "slower"
    assert compare(run(launches=38), run(2.0, launches=1), Rules(bands=("bandwidth",))).word == "unclear"


def test_launches_of_different_runs_are_different_launches() -> None:
    base = [*run(launches=3), *run(launches=3, seed=5, run_id="another")]
    found = compare(base, run(1.3, seed=2))
    assert decision(found, "latency").launches == (6, 6)


def test_a_case_that_only_one_side_has_is_missing_or_new() -> None:
    base, new = run(), run(seed=2)
    fewer = [one for one in new if one.size_bytes != 8]
    found = compare(base, fewer)
    assert (case(found, 8).word, found.word, found.exit_code) == ("missing", "missing", 5)
    more = compare([one for one in base if one.size_bytes != 8], new)
    assert (case(more, 8).word, more.word, more.exit_code) == ("new", "same", 0)


@pytest.mark.parametrize("status", ["wrong", "failed", "timeout"])
def test_a_case_that_fails_in_one_launch_is_missing(status: str) -> None:
    new = [
        dataclasses.replace(one, status=status, reason="so it is", time_p50_s=None)
        if (one.launch, one.size_bytes) == (2, 8)
        else one
        for one in run(seed=2)
    ]
    found = compare(run(), new)
    assert found.exit_code == 5
    assert case(found, 8).said == f"NEW has not all of its times: launch 2: {status}: so it is"


def test_a_case_without_a_row_in_one_launch_of_new_is_missing() -> None:
    """A run that was cut short leaves out what it had not come to: that is no reason to be green."""
    new = [one for one in run({1024: 3.0}, seed=2) if (one.launch, one.size_bytes) != (5, 1024)]
    found = compare(run(), new)
    assert (found.word, found.exit_code) == ("missing", 5)
    assert case(found, 1024).said == "NEW has not all of its times: launch 5: no row of it"
    assert compare(run(), [*new, *run(seed=3, sizes=[8], run_id="another")]).exit_code == 5


@pytest.mark.parametrize("lost", [True, False])
def test_a_band_is_not_the_same_without_a_case_that_base_has_not_in_every_launch(lost: bool) -> None:
    base = [
        dataclasses.replace(one, status="failed", reason="it was", time_p50_s=None)
        if (one.launch, one.size_bytes) == (2, 1024)
        else one
        for one in run()
        if not lost or (one.launch, one.size_bytes) != (2, 1024)
    ]
    found = compare(base, run({1024: 2.0}, seed=2))
    assert (found.word, found.exit_code) == ("unclear", 6)
    why = "launch 2: no row of it" if lost else "launch 2: failed: it was"
    assert (
        f"but without all_reduce 1 KiB, of which BASE has not all times ({why}); finish"
        in decision(found, "latency").said
    )
    assert compare(base, run(seed=2), Rules(cases=("c8",))).exit_code == 0


def test_a_case_that_new_skips_in_one_launch_is_missing() -> None:
    new = [
        row(one.launch, 1024, None, status="skipped", reason="no memory")
        if (one.launch, one.size_bytes) == (2, 1024)
        else one
        for one in run({1024: 2.0}, seed=2)
    ]
    found = compare(run(), new)
    assert (case(found, 1024).word, found.exit_code) == ("missing", 5)
    assert case(found, 1024).said.endswith("launch 2: skipped: no memory")


@pytest.mark.parametrize("time_s", [0.0, None])
def test_a_row_without_a_time_says_so(time_s: float | None) -> None:
    new = [row(2, 8, time_s) if (one.launch, one.size_bytes) == (2, 8) else one for one in run(seed=2)]
    assert case(compare(run(), new), 8).said.endswith(f"launch 2: time_p50_s is {time_s}")


def test_one_launch_has_one_row_of_a_case() -> None:
    with pytest.raises(UsageError, match="NEW: got two rows of c8 world in launch 0 of run, expected one"):
        compare(run(), [*run(), row(0, 8, 5.0)])
    assert compare(run(), [*run(), run()[0]]).exit_code == 0


@pytest.mark.parametrize(
    ("added_s", "said"), [(1.004e-6, "+1.004 us at 8 B > 1 us"), (0.9996e-6, "+0.9996 us at 8 B <= 1 us")]
)
def test_durations_that_round_to_the_floor_are_written_out(added_s: float, said: str) -> None:
    base = [row(launch, 8, 2e-6) for launch in range(6)]
    new = [row(launch, 8, 2e-6 + added_s) for launch in range(6)]
    assert said in decision(compare(base, new), "latency").said


@pytest.mark.parametrize("time_s", [5e-324, 1e300])
def test_times_that_nothing_takes_are_refused(time_s: float) -> None:
    with pytest.raises(UsageError, match=r"c8: launch 0: time_p50_s: got .*, expected 1e-12 to 1e\+09 seconds"):
        compare(run(), [row(0, 8, time_s)])


def test_a_case_that_was_skipped_on_both_sides_is_no_case() -> None:
    skipped = row(0, 16, None, status="skipped", reason="not here")
    assert len(compare([*run(), skipped], [*run(seed=2), skipped]).cases) == len(SIZES)


def test_an_oversubscribed_case_beside_others_is_told_as_such() -> None:
    new = [dataclasses.replace(one, oversubscribed=one.size_bytes == 8) for one in run(seed=2)]
    said = decision(compare(run(), new), "latency").said
    assert "oversubscribed in NEW: ranks shared cores" in said
    assert said.endswith("give each rank a core, or name --case")


@pytest.mark.parametrize("how", [{"oversubscribed": True}, {"notes": "noisy oversubscribed"}])
@pytest.mark.parametrize("factor", [1.0, 9.0])
def test_nothing_is_decided_by_oversubscribed_rows(how: dict[str, Any], factor: float) -> None:
    found = compare(run(), run(factor, seed=2, **how))
    assert (found.word, found.exit_code) == ("unclear", 6)
    assert {one.word for one in (*found.decisions, *found.cases)} == {"unclear"}
    assert all(one.said.startswith("oversubscribed in NEW") for one in (*found.decisions, *found.cases))


def test_notes_of_noise_are_told() -> None:
    assert case(compare(run(), run(seed=2, notes="noisy throttled pages")), 8).notes == "noisy throttled"


@pytest.mark.parametrize("slow", [1, 2, 3])
def test_launches_that_fall_into_a_slow_mode_are_no_slowdown(slow: int) -> None:
    modes = [2.0] * slow + [1.0] * (6 - slow)
    base = [row(launch, size, usual_s(size)) for launch in range(6) for size in SIZES]
    new = [row(launch, size, usual_s(size) * mode) for launch, mode in enumerate(modes) for size in SIZES]
    assert compare(base, new).word == "unclear"


def test_the_named_cases_are_what_is_decided_by() -> None:
    found = compare(run(), run({8: 1.5}, seed=2), Rules(cases=("all_reduce 1 KiB", "c4096")))
    assert [one.case_id for one in found.decisions] == ["c1024", "c4096"]
    assert (found.by, found.level, found.exit_code) == ("cases", 0.025, 0)
    assert compare(run(), run({8: 1.5}, seed=2), Rules(cases=("all_reduce 8 B",))).exit_code == 5


def test_a_named_case_that_is_missing_fails() -> None:
    fewer = [one for one in run(seed=2) if one.size_bytes != 8]
    assert compare(run(), fewer, Rules(cases=("c8",))).exit_code == 5
    assert compare(run(), fewer, Rules(cases=("c1024",))).exit_code == 0


def test_a_pattern_that_names_no_case_is_an_error() -> None:
    with pytest.raises(UsageError, match='--case: got "broadcast", expected'):
        compare(run(), run(), Rules(cases=("broadcast",)))


def test_only_the_bands_that_are_asked_for_are_judged() -> None:
    found = compare(run(), run({LAST: 2.0}, seed=2), Rules(bands=("latency", "middle")))
    assert [one.name for one in found.decisions] == ["latency", "middle", "any one case"]
    assert found.exit_code == 0


def test_a_case_that_new_skips_is_missing_with_its_reason() -> None:
    new = [row(one.launch, 8, None, status="skipped", reason="no such library") if one.size_bytes == 8 else one
           for one in run(seed=2)]  # fmt: skip
    assert case(compare(run(), new), 8).said == "NEW skipped it: no such library"


def test_nothing_to_compare_with_is_an_error() -> None:
    with pytest.raises(UsageError, match="BASE: got no time"):
        compare([], run())


def test_the_answer_is_the_same_twice() -> None:
    assert compare(run(launches=12), run(1.1, launches=12)) == compare(run(launches=12), run(1.1, launches=12))


def test_false_alarms_are_rare_where_launches_are_bimodal() -> None:
    """A short form of scripts/gate_levels: in 100 pairs of runs of one program at most 5 are expected to be slower."""
    draw = random.Random(11)

    def launches() -> list[Record]:
        found = []
        for launch in range(5):
            mode = 2.0 if draw.random() < 0.22 else 1.0
            found += [row(launch, size, usual_s(size) * mode * draw.lognormvariate(0, 0.05)) for size in SIZES]
        return found

    codes = [compare(launches(), launches(), Rules(threshold=0.0, floor_s=0.0)).exit_code for _ in range(100)]
    assert codes.count(5) <= 9  # 5 are expected at most, 2.2 is a standard deviation
    assert codes.count(6) > 50
