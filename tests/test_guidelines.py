"""Guidelines, from made-up rows: each kept and each broken, and between which sizes."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import UsageError
from collbench.readers.gate import Rules
from collbench.readers.guidelines import Check, checks, command, interval
from collbench.record import Record
from compared_rows import row, usual_s

SIZES = (8, 1 << 10, 1 << 14, 1 << 18, 1 << 20)
PARTS = ("all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather", "gather", "scatter")


def rows(
    factors: Mapping[tuple[str, int], float], launches: int = 6, names: tuple[str, ...] = PARTS, **more: Any
) -> list[Record]:
    """Every collective takes the same, times its factor; launches differ by up to 5 % and by twice in one."""
    found = []
    for launch in range(launches):
        of_launch = (1 + launch / 100) * (2 if launch == 3 else 1)
        for name in names:
            for size in SIZES:
                time = usual_s(size) * factors.get((name, size), 1.0) * of_launch
                root = 0 if name in ("reduce", "broadcast", "gather", "scatter") else None
                columns = {"collective": name, "case_id": f"c{name}{size}", "root": root} | more
                found.append(
                    row(launch, size, time, time_p50_low_s=time * 0.98, time_p50_high_s=time * 1.02, **columns)
                )
    return found


def broken(records: list[Record], rules: Rules | None = None) -> list[Check]:
    return [one for one in checks(records, rules or Rules()) if one.word == "broken"]


@pytest.mark.parametrize("launches", [1, 3, 6])
def test_a_consistent_library_breaks_none(launches: int) -> None:
    found = checks(rows({}, launches), Rules())
    assert {one.word for one in found} == {"kept"}
    assert {one.guideline for one in found} == {
        "all_reduce <= reduce + broadcast",
        "all_reduce <= reduce_scatter + all_gather",
        "all_gather <= gather + broadcast",
        "scatter <= broadcast",
        "a smaller message is not slower",
    }


@pytest.mark.parametrize(
    ("name", "factor", "guidelines"),
    [
        ("all_reduce", 2.5, {"all_reduce <= reduce + broadcast", "all_reduce <= reduce_scatter + all_gather"}),
        ("all_gather", 2.5, {"all_gather <= gather + broadcast"}),
        ("scatter", 1.3, {"scatter <= broadcast"}),
        ("all_reduce", 1.9, set()),
    ],
)
def test_a_collective_that_others_beat_is_broken(name: str, factor: float, guidelines: set[str]) -> None:
    found = broken(rows({(name, 1 << 20): factor}))
    assert {one.guideline for one in found} == guidelines
    assert {one.where for one in found} == ({"at 1 MiB, not at 256 KiB"} if guidelines else set())


def test_a_run_of_sizes_is_one_finding_that_says_between_which() -> None:
    found = broken(rows({("scatter", 1 << 10): 1.3, ("scatter", 1 << 14): 1.5}))
    (one,) = [check for check in found if check.guideline == "scatter <= broadcast"]
    assert one.where == "from 1 KiB to 16 KiB, not at 8 B and 256 KiB"
    assert one.said == "1.50 [1.50, 1.50]: 1.5 > 1.1 and +11.1 us > 1 us, sign test over 6 launches at 16 KiB"


@pytest.mark.parametrize(
    ("slow", "where", "against"),
    [
        ({8: 1.5, 1 << 10: 1.6}, "broadcast from 8 B to 1 KiB, not at 16 KiB", "16 KiB at 1 KiB"),
        ({1 << 10: 1.6}, "broadcast at 1 KiB, not at 8 B and 16 KiB", "16 KiB"),
        ({1 << 14: 9.0}, "broadcast at 16 KiB, not at 1 KiB and 256 KiB", "256 KiB"),
        ({1 << 18: 9.0}, "broadcast at 256 KiB, not at 16 KiB", "1 MiB"),
    ],
)
def test_a_smaller_message_that_is_slower_points_at_the_switch(
    slow: dict[int, float], where: str, against: str
) -> None:
    """At the sizes that are slow, however many larger ones they are slower than."""
    (one,) = broken(rows({("broadcast", size): factor for size, factor in slow.items()}, names=("broadcast",)))
    assert (one.guideline, one.where) == ("a smaller message is not slower", where)
    assert one.said.endswith(f"against {against}")


def test_fewer_ranks_that_are_slower_are_broken() -> None:
    few = rows({("broadcast", 1 << 20): 1.5}, names=("broadcast",), topology="first:doubling", group="first:2", ranks=2)
    many = rows({}, names=("broadcast",), topology="first:doubling", group="first:4", ranks=4)
    (one,) = broken([*few, *many])
    assert one.where == "broadcast on 2 ranks against 4, at 1 MiB, not at 256 KiB"
    assert broken([*many, *rows({}, names=("broadcast",), topology="first:doubling", group="first:2", ranks=2)]) == []


def test_other_settings_are_not_compared() -> None:
    slow = rows({("scatter", size): 2.0 for size in SIZES}, names=("scatter",), caller="python")
    assert broken([*slow, *rows({}, names=("broadcast",), caller="compiled")]) == []
    operations = [
        *rows(dict.fromkeys([("all_reduce", size) for size in SIZES], 2.5), names=("all_reduce",), operation="max"),
        *rows({}, names=("reduce",), operation="sum"),
        *rows({}, names=("broadcast",)),
    ]
    assert broken(operations) == []


def test_a_ratio_is_taken_within_each_launch() -> None:
    """One launch in six is twice as slow as a whole: that changes no ratio."""
    (one,) = [check for check in checks(rows({("scatter", 8): 1.3}), Rules()) if check.where == "at 8 B, not at 1 KiB"]
    assert [one.low, one.high] == pytest.approx([1.3, 1.3])


@pytest.mark.parametrize(("launches", "how"), [(1, "within one launch"), (4, "within each of 4 launches")])
def test_few_launches_speak_for_themselves_alone(launches: int, how: str) -> None:
    (one,) = broken(rows({("scatter", 1 << 20): 1.3}, launches))
    assert one.said.endswith(how)
    assert one.low == pytest.approx(1.3 * 0.98 / 1.02)
    assert broken(rows({("scatter", 1 << 20): 1.12}, launches)) == []
    (unclear,) = [
        check for check in checks(rows({("scatter", 1 << 20): 1.12}, launches), Rules()) if check.word == "unclear"
    ]
    assert unclear.where == "at 1 MiB"


def test_what_adds_less_than_the_floor_is_kept() -> None:
    records = rows({("scatter", 8): 1.3})
    assert broken(records, Rules(floor_s=1e-5)) == []
    assert len(broken(records, Rules(floor_s=5e-6))) > 0


def test_oversubscribed_rows_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [*rows({}), *rows({("scatter", 8): 9.0}, caller="python", oversubscribed=True)]
    assert broken(records) == []
    assert command(tmp_path, records, Rules(), "text") == 0
    assert "note: 210 oversubscribed rows were left out" in capsys.readouterr().out


def test_the_sign_test_needs_five_launches() -> None:
    assert interval([1.0] * 4) is None
    assert interval([3.0, 1.0, 2.0, 5.0, 4.0]) == (1.0, 5.0)  # 1/32 = 0.031
    assert interval([float(value) for value in range(1, 9)]) == (2.0, 7.0)  # 9/256 = 0.035; 37/256 is too much
    assert interval([1.0, 2.0], level=0.25) == (1.0, 2.0)


def test_exit_codes_and_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, rows({}), Rules(), "text") == 0
    assert "0 broken, 0 unclear" in capsys.readouterr().out
    bad = rows({("scatter", 1 << 20): 1.3})
    assert command(tmp_path, bad, Rules(), "text") == 5
    assert capsys.readouterr().out.startswith(
        "broken: scatter <= broadcast, at 1 MiB, not at 256 KiB (mpi float32 world): 1.30"
    )
    assert command(tmp_path, bad, Rules(), "json") == 5
    content = json.loads(capsys.readouterr().out)
    assert [one["guideline"] for one in content["checks"] if one["word"] == "broken"] == ["scatter <= broadcast"]
    assert command(tmp_path, bad, Rules(), "markdown") == 5
    assert "| scatter &lt;= broadcast | broken | at 1 MiB, not at 256 KiB |" in capsys.readouterr().out
    near = [one for one in rows({}, 1, names=("scatter", "broadcast")) if one.size_bytes == 8]
    near = [row(0, 8, (one.time_p50_s or 0) * (1.12 if one.collective == "scatter" else 1), collective=one.collective,
                time_p50_low_s=1e-5, time_p50_high_s=5e-5) for one in near]  # fmt: skip
    assert command(tmp_path, near, Rules(), "text") == 6
    with pytest.raises(UsageError, match="got no rows that a guideline relates"):
        command(tmp_path, near[:1], Rules(), "text")


def test_a_launch_with_too_few_samples_for_an_interval_decides_nothing() -> None:
    records = [replace(one, time_p50_low_s=None, time_p50_high_s=None) for one in rows({("scatter", 1 << 20): 9.0}, 1)]
    assert broken(records) == []
    (one,) = [check for check in checks(records, Rules()) if check.word == "unclear"]
    assert one.said == "9.00: too few samples for an interval, within one launch"
