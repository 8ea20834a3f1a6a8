"""`collbench forecast` as a command: what it prints, and what it refuses."""

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.cli import main
from collbench.record import Record
from compared_rows import row, run, write

Out = pytest.CaptureFixture[str]

SIZES = tuple(1 << bits for bits in range(3, 21))


def rows(launches: int = 3, ranks: tuple[int, ...] = (2, 4), **more: Any) -> list[Record]:
    found = []
    for count in ranks:
        factor = 2.0 * (count - 1) / count
        its: dict[str, Any] = {"ranks": count, "group": f"first:{count}", "topology": "first:doubling"} | more
        found += run(factor, launches, seed=count, sizes=SIZES, **its)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "run", rows())


def test_the_fits_are_printed_with_all_their_errors(folder: Path, capsys: Out) -> None:
    assert main(["forecast", str(folder)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "all_reduce float32 topology first by mpi Open MPI v5.0.11 over shm\n  2 ranks, 3 launches:\n"
    )
    assert "8 B to 1 MiB: alpha 2" in text
    assert text.count("error (root mean square): fit ") == 2
    assert text.count("\n         1 MiB ") == 2
    assert "  over ranks: " in text
    assert "    one number of ranks out: 2 ranks " in text


def test_the_title_says_what_numbers_are(tmp_path: Path, capsys: Out) -> None:
    its = rows(2, (2,), collective="broadcast", root=1, buffers=64, caller="compiled")
    assert main(["forecast", str(write(tmp_path / "run", its))]) == 0
    assert capsys.readouterr().out.startswith("broadcast float32 root 1 64 sets of buffers topology first by mpi")


def test_one_launch_says_that_it_has_no_interval(tmp_path: Path, capsys: Out) -> None:
    assert main(["forecast", str(write(tmp_path / "run", rows(1, (2,))))]) == 0
    text = capsys.readouterr().out
    assert "2 ranks, 1 launch, so no interval:" in text
    assert "one number of ranks: no law over ranks can be told" in text
    assert "[" not in text


def test_launches_of_several_folders_count_together(tmp_path: Path, capsys: Out) -> None:
    folders = [str(write(tmp_path / name / "run", rows(1, (2,)))) for name in "ab"]
    assert main(["forecast", *folders, folders[0]]) == 0
    assert "2 ranks, 2 launches:" in capsys.readouterr().out


def test_a_forecast_has_its_interval(folder: Path, capsys: Out) -> None:
    assert main(["forecast", str(folder), "--at", "96 KiB", "1 MiB", "--ranks", "2", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("  errors on 2 ranks: fit ")
    assert lines[3].startswith("  over ranks: ")
    assert lines[4].startswith("      96 KiB  2 ranks: ")
    assert "algbw" in lines[4]
    assert any("  3 ranks: " in line and ", by the law " in line for line in lines)
    assert lines[-1] == "Intervals are of 95 %, for the median of one more launch."


def test_from_one_launch_no_confidence_is_claimed(tmp_path: Path, capsys: Out) -> None:
    alone, several = (str(write(tmp_path / name, rows(launches, (2,)))) for name, launches in (("a", 1), ("b", 3)))
    factor = (
        "From one launch the factor of 2 is an assumption, and the interval none of confidence: two launches of one "
        "job on a virtual machine of two cores were within it in 54 to 86 % of cases. Measure several (--launches 5)."
    )
    for size in ("96 KiB", "1 MiB", "4 MiB"):
        assert main(["forecast", alone, "--at", size, "--extrapolate"]) == 0
        text = capsys.readouterr().out
        assert "95 %" not in text
        assert text.splitlines()[-1] == factor
    others = rows(1, (2,), collective="broadcast", operation="")
    both = str(write(tmp_path / "c", others))
    assert main(["forecast", both, several, "--at", "1 MiB"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "Intervals are of 95 %, for the median of one more launch, but those from one launch.",
        factor,
    ]


def test_beyond_is_refused_and_told(folder: Path, capsys: Out) -> None:
    assert main(["forecast", str(folder), "--at", "16 MiB"]) == 2
    assert capsys.readouterr().err == (
        "collbench: forecast: all_reduce: size: got 16 MiB, expected 8 B to 1 MiB as measured; measure it, or allow "
        "--extrapolate and a wider interval\n"
    )
    assert main(["forecast", str(folder), "--at", "16 MiB", "8 B"]) == 0
    assert capsys.readouterr().out.startswith("note: refused: forecast: all_reduce: size: got 16 MiB, expected")
    assert main(["forecast", str(folder), "--at", "16 MiB", "--ranks", "8", "--extrapolate"]) == 0
    text = capsys.readouterr().out
    assert "EXTRAPOLATED" in text
    assert "extrapolated: size 16 MiB beyond 8 B to 1 MiB" in text
    assert "extrapolated: ranks 8 beyond 2 or 4" in text


def test_oversubscribed_rows_are_used_and_said(tmp_path: Path, capsys: Out) -> None:
    its = [*rows(2, (2,)), *rows(2, (4,), oversubscribed=True)]
    assert main(["forecast", str(write(tmp_path / "run", its))]) == 0
    text = capsys.readouterr().out
    assert text.startswith("note: 1 of 2 curves are from launches of more ranks than cores: the scheduler is part")
    assert "  4 ranks, 2 launches, in a launch of more ranks than cores:" in text


def test_json_has_all_of_it(folder: Path, capsys: Out) -> None:
    assert main(["forecast", str(folder), "--at", "64 KiB", "--format", "json"]) == 0
    content = json.loads(capsys.readouterr().out)
    (one,) = content["families"]
    assert one["setting"]["collective"] == "all_reduce"
    curve = one["curves"][0]
    assert (curve["ranks"], curve["launches"], len(curve["time_s"])) == (2, 3, len(SIZES))
    assert len(curve["fit_error"]) == len(curve["held_out_error"]) == len(curve["forecast_error"]) == len(SIZES)
    alpha = curve["segments"][0]["alpha_s"]
    assert alpha["low"] < 20e-6 < alpha["high"]
    assert {law["law"] for law in one["laws"]} >= {"ring", "tree", "recursive doubling", "Rabenseifner"}
    assert [law["held_out"][0]["ranks"] for law in one["laws"]] == [2] * len(one["laws"])
    assert [(its["ranks"], its["size_bytes"]) for its in content["forecasts"]] == [(2, 65536), (4, 65536)]


def test_csv_is_a_table(folder: Path, capsys: Out) -> None:
    assert main(["forecast", str(folder), "--format", "csv"]) == 0
    fits = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(one["ranks"], one["from_bytes"], one["to_bytes"]) for one in fits] == [
        ("2", "8", "1048576"),
        ("4", "8", "1048576"),
    ]
    assert float(fits[0]["alpha_s_low"]) < float(fits[0]["alpha_s"]) < float(fits[0]["alpha_s_high"])
    assert main(["forecast", str(folder), "--at", "64 KiB", "--ranks", "3", "--format", "csv"]) == 0
    (one,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (one["ranks"], one["size_bytes"], one["extrapolated"]) == ("3", "65536", "0")
    assert float(one["low_s"]) < float(one["time_s"]) < float(one["high_s"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--at", "0"], "forecast: --at: got 0, expected at least 1 B"),
        (["--at", "16M"], 'forecast: --at: got "16M", expected a size'),
        (["--ranks", "4"], "forecast: got --ranks, --hosts or --extrapolate, expected them with --at"),
        (["--collective", "barrier"], "forecast: --collective: got barrier, expected one of all_reduce, as measured"),
    ],
)
def test_what_cannot_be_carried_out(folder: Path, capsys: Out, words: list[str], said: str) -> None:
    assert main(["forecast", str(folder), *words]) == 2
    assert said in capsys.readouterr().err


def test_results_without_a_time_are_refused(tmp_path: Path, capsys: Out) -> None:
    path = write(tmp_path / "run", [row(0, 8, None, status="skipped")])
    assert main(["forecast", str(path)]) == 2
    assert "got no row with a size and a time, expected results of collectives" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("collective", "why"), [("barrier", "a barrier has no size"), ("replay", "--replay holds it against a forecast")]
)
def test_times_that_are_of_no_size_are_told_by_name(collective: str, why: str, tmp_path: Path, capsys: Out) -> None:
    path = write(tmp_path / "run", [row(0, 0, 1e-6, collective=collective)])
    assert main(["forecast", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"got times of {collective} alone, expected those of a collective at several sizes; " in said
    assert why in said


def test_a_few_sizes_are_fitted_as_far_as_they_go(tmp_path: Path, capsys: Out) -> None:
    its = [row(launch, size, 1e-6 + size * 1e-9) for launch in range(2) for size in (8, 64)]
    path = str(write(tmp_path / "run", its))
    assert main(["forecast", path]) == 0
    capsys.readouterr()
    assert main(["forecast", path, "--at", "32 B", "1 MiB", "--extrapolate"]) == 0
    said = capsys.readouterr().out
    assert (said.count(" ["), said.count("too few sizes to say how far off the fit is")) == (2, 2)


def test_one_size_has_no_alpha_and_no_bandwidth(tmp_path: Path, capsys: Out) -> None:
    path = str(write(tmp_path / "run", [row(launch, 8, 1e-6) for launch in range(2)]))
    assert main(["forecast", path]) == 0
    said = capsys.readouterr().out
    assert "8 B: one size tells neither alpha nor B" in said
    assert "without bound" not in said
    assert main(["forecast", path, "--format", "csv"]) == 0
    (one,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [one[name] for name in ("alpha_s", "bandwidth_Bps", "half_bytes")] == ["", "", ""]


def test_a_size_that_the_shell_parted_is_one(folder: Path, capsys: Out) -> None:
    assert main(["forecast", str(folder), "--at", "64", "KiB", "1", "MiB"]) == 0
    said = capsys.readouterr().out
    assert "64 KiB  2 ranks" in said
    assert "1 MiB  2 ranks" in said


def test_results_behind_the_sizes_are_told_apart(folder: Path, capsys: Out) -> None:
    assert main(["forecast", "--at", "64 KiB", str(folder)]) == 2
    assert "which is a path, and no RESULTS; write RESULTS before --at" in capsys.readouterr().err


def begun(rows_: list[Record]) -> list[Record]:
    """With the times at which cases begin, as runs write them."""
    return [replace(one, started_at=f"2026-01-01T00:{one.launch:02}:{n % 60:02}") for n, one in enumerate(rows_)]


@pytest.mark.parametrize("again", ["file", "copy", "link"])
def test_the_same_launches_given_twice_are_no_more_launches(again: str, tmp_path: Path, capsys: Out) -> None:
    folder = write(tmp_path / "run", begun(rows(2, (2,))))
    second = {"file": folder / "results.csv", "copy": tmp_path / "copy", "link": tmp_path / "link"}[again]
    if again == "copy":
        shutil.copytree(folder, second)
    if again == "link":
        second.symlink_to(folder)
    assert main(["forecast", str(folder), "--at", "64 KiB"]) == 0
    alone = capsys.readouterr().out
    assert main(["forecast", str(folder), str(second), "--at", "64 KiB"]) == 0
    note, rest = capsys.readouterr().out.split("\n", 1)
    assert rest == alone
    said = "has 2 launches of" if again == "copy" else "given more than once, counted once"
    assert note.startswith(f"note: {second}: {said}")


def test_a_copy_that_went_on_adds_what_is_new(tmp_path: Path, capsys: Out) -> None:
    its = begun(rows(3, (2,)))
    cut = [one for one in its if one.launch == 0 or (one.launch == 1 and (one.size_bytes or 0) < 1024)]
    folders = [str(write(tmp_path / name, part)) for name, part in (("cut", cut), ("whole", its))]
    assert main(["forecast", *folders]) == 0
    said = capsys.readouterr().out
    assert "2 ranks, 3 launches:" in said
    assert said.startswith(f"note: {folders[1]}: has 2 launches of {folders[0]} again, counted once")
    other = begun(rows(1, (2,)))
    later = [replace(one, started_at=f"2027{(one.started_at or '')[4:]}") for one in other]
    assert main(["forecast", str(write(tmp_path / "a", other)), str(write(tmp_path / "b", later))]) == 0
    assert "2 ranks, 2 launches:" in capsys.readouterr().out


def test_what_another_place_answers_is_not_refused_beside_it(tmp_path: Path, capsys: Out) -> None:
    shared = rows(2, (4,), oversubscribed=True, topology="world")
    its = [*rows(2, (2,)), *rows(2, (3,), oversubscribed=True), *shared]
    asked = ["forecast", str(write(tmp_path / "run", its)), "--at", "64 KiB", "--ranks", "2", "3", "4"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert [said.count(f"  {ranks} ranks: ") for ranks in (2, 3, 4)] == [1, 1, 1]
    assert "refused" not in said
    assert main([*asked, "9"]) == 0
    assert capsys.readouterr().out.count("note: refused: ") == 1


def test_the_refusal_is_of_what_was_measured_nearest(tmp_path: Path, capsys: Out) -> None:
    its = [*rows(2, (2, 4), topology="first"), *rows(2, (8, 16), topology="world", hosts=2)]
    asked = ["forecast", str(write(tmp_path / "run", its)), "--at", "64 KiB", "--ranks", "32", "--hosts", "2"]
    assert main(asked) == 2
    assert "ranks: got 32, expected 8 or 16 as measured" in capsys.readouterr().err


def test_the_refusal_is_of_the_sizes_measured_nearest(tmp_path: Path, capsys: Out) -> None:
    """Up to 64 KiB over shared memory, and up to 1 MiB over TCP."""
    its = [one for one in rows(2, (2,), transport="shm") if (one.size_bytes or 0) <= 65536] + rows(
        2, (2,), transport="tcp:lo"
    )
    path = str(write(tmp_path / "run", its))
    assert main(["forecast", path, "--at", "16 MiB"]) == 2
    assert "size: got 16 MiB, expected 8 B to 1 MiB as measured" in capsys.readouterr().err


def test_where_no_law_was_tried_it_is_said_in_words(tmp_path: Path, capsys: Out) -> None:
    path = str(write(tmp_path / "run", rows(2, (2,))))
    assert main(["forecast", path, "--at", "64 KiB", "--ranks", "4", "--extrapolate"]) == 0
    said = capsys.readouterr().out
    assert ", in the middle of the laws  EXTRAPOLATED" in said
    assert "not known" not in said


def test_the_only_law_that_there_is_has_its_name(tmp_path: Path, capsys: Out) -> None:
    path = str(write(tmp_path / "run", rows(2, (2,), collective="all_to_all_v")))
    asked = ["forecast", path, "--at", "64 KiB", "--ranks", "4", "--extrapolate"]
    assert main([*asked, "--format", "csv"]) == 0
    (answer,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert answer["law"] == "pairwise"
    assert "the only law over ranks, pairwise, was not tried" in answer["marks"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert ", by the law pairwise  EXTRAPOLATED" in said
    assert "in the middle of" not in said
    assert main(["forecast", path, "--format", "csv"]) == 0
    assert {row["law"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))} == {"pairwise"}


def test_on_how_many_hosts_is_said(tmp_path: Path, capsys: Out) -> None:
    its = [*rows(2, (2,), ranks_per_host=2), *rows(2, (4,), hosts=2, ranks_per_host=2)]
    path = str(write(tmp_path / "run", its))
    assert main(["forecast", path, "--at", "64 KiB", "--ranks", "2", "4", "8", "--extrapolate"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {where}: " in said for where in ("2 ranks on 1 host", "4 ranks on 2 hosts", "8 ranks on 4 hosts"))
