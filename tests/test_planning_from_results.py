"""Plans that stand on results: which rows answer, which are refused, and what is asked at once."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from collbench.cli import main
from collbench.errors import UsageError
from collbench.planning.fabric import Layout
from collbench.planning.from_results import fabric_of
from collbench.record import HEADER, Record, to_row

SIZES = tuple(1024 << step for step in range(0, 17, 2))


def row(collective: str, size: int, seconds: float, ranks: int, launch: int, **more: object) -> Record:
    values: dict[str, Any] = {
        "launch": launch, "case_id": f"{collective}{size}{more}", "status": "ok", "backend": "mpi", "library": "L",
        "mode": "latency", "caller": "compiled", "call": "blocking", "collective": collective, "dtype": "float32",
        "operation": "sum", "buffer": "plain", "sync": "library", "placement": "in_place", "topology": "world",
        "group": "world", "hosts": 1, "ranks": ranks, "ranks_per_host": ranks, "requested_bytes": size,
        "size_bytes": size, "time_p50_s": seconds,
    }  # fmt: skip
    return Record(**(values | more))


def series(collective: str, bandwidth: float, ranks: int = 2, **more: object) -> list[Record]:
    """10 us and so many bytes/s, in three launches."""
    return [
        row(collective, size, (10e-6 + size / bandwidth) * (1 + 0.01 * launch), ranks, launch, **more)
        for launch in range(3)
        for size in SIZES
    ]


def written(folder: Path, rows: list[Record]) -> Path:
    folder.mkdir(exist_ok=True)
    with (folder / "results.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *map(to_row, rows)])
    return folder


def test_the_setting_of_a_training_step_answers(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    rows = series("all_reduce", 1e9) + series("all_reduce", 4e9, placement="out_of_place")
    rows += series("all_reduce", 2e9, dtype="float16")
    run = written(tmp_path / "run", rows)
    megabyte = 1 << 20
    found = fabric_of([run]).cost("all_reduce", megabyte, Layout(2, 1)).total.middle
    assert found == pytest.approx(1.01 * (10e-6 + megabyte / 1e9), rel=0.02)
    half = fabric_of([run], "float16").cost("all_reduce", megabyte, Layout(2, 1)).total.middle
    assert half == pytest.approx(1.01 * (10e-6 + megabyte / 2e9), rel=0.02)


@pytest.mark.parametrize("other", [{"backend": "mpi"}, {"placement": "out_of_place"}, {"dtype": "float16"}])
def test_a_size_that_the_nearest_setting_lacks_is_not_taken_from_another(tmp_path: Path, other: dict[str, Any]) -> None:
    pytest.importorskip("scipy")
    near: dict[str, Any] = {"backend": "nccl", "placement": "in_place", "dtype": "float32"}
    rows = [one for one in series("all_reduce", 4e9, **near) if (one.size_bytes or 0) <= 1 << 20]
    run = written(tmp_path / "run", rows + series("all_reduce", 1e9, **(near | other)))
    with pytest.raises(UsageError, match="size: got 64 MiB"):
        fabric_of([run]).cost("all_reduce", 64 << 20, Layout(2, 1))
    further = fabric_of([run], extrapolate=True).cost("all_reduce", 64 << 20, Layout(2, 1)).total.middle
    assert further == pytest.approx((64 << 20) / 4e9, rel=0.05)


def test_nccl_out_of_place_goes_before_mpi_in_place(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    rows = series("all_reduce", 1e9) + series("all_reduce", 4e9, backend="nccl", placement="out_of_place")
    found = fabric_of([written(tmp_path / "run", rows)]).cost("all_reduce", 1 << 20, Layout(2, 1)).total.middle
    assert found == pytest.approx(1.01 * (10e-6 + (1 << 20) / 4e9), rel=0.02)


def test_another_setting_answers_for_ranks_that_the_nearest_has_not(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    rows = series("all_reduce", 4e9, backend="nccl") + series("all_reduce", 1e9, ranks=4)
    found = fabric_of([written(tmp_path / "run", rows)]).cost("all_reduce", 1 << 20, Layout(4, 1)).total.middle
    assert found == pytest.approx(1.01 * (10e-6 + (1 << 20) / 1e9), rel=0.02)


def test_of_groups_at_once_the_slowest_counts(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    rows = [
        one
        for name, rate in (("a", 4e9), ("b", 1e9))
        for one in series("reduce_scatter", rate, topology="host", group=name)
    ]
    rows += series("all_gather", 4e9, topology="host", group="a")
    for rail in "01":
        rows += series("all_reduce", 1e8, topology="rail", group=rail, hosts=2, ranks_per_host=1)
    run = written(tmp_path / "run", rows)
    megabyte = 1 << 20
    split = fabric_of([run]).cost("all_reduce", megabyte, Layout(4, 2))
    inside = 2 * 1.01 * 10e-6 + 1.01 * megabyte / 1e9 + 1.01 * megabyte / 4e9
    assert split.vm.middle == pytest.approx(inside, rel=0.02)
    assert split.across.middle == pytest.approx(1.01 * (10e-6 + megabyte / 2 / 1e8), rel=0.02)


def test_what_was_not_measured_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    run = written(tmp_path / "run", series("all_reduce", 1e9))
    with pytest.raises(
        UsageError, match=r"on the topology world got times of all_reduce alone, expected those of all_gather"
    ):
        fabric_of([run]).cost("all_gather", 1024, Layout(2, 1))
    with pytest.raises(UsageError, match="size: got 1 GiB, expected 1 KiB to 64 MiB as measured"):
        fabric_of([run]).cost("all_reduce", 1 << 30, Layout(2, 1))
    fabric = fabric_of([run], extrapolate=True)
    assert fabric.cost("all_reduce", 1 << 30, Layout(2, 1)).total.extrapolated


@pytest.mark.parametrize(
    ("name", "values", "more"),
    [
        ("library", ("Open MPI 5", "MPICH 5"), {}),
        ("pages", ("huge", "small"), {}),
        ("transport", ("rdma:mlx5_0", "tcp:eth0"), {}),
        ("transport", ("rdma:mlx5_0", "tcp:eth0"), {"topology": "host", "group": "a"}),
    ],
)
def test_times_of_several_settings_are_not_mixed(
    name: str, values: tuple[str, str], more: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("scipy")
    rows = [row for value in values for row in series("all_reduce", 1e9, **({name: value} | more))]
    fabric = fabric_of([written(tmp_path / "run", rows)])
    first, second = sorted(values)
    said = f"forecast: all_reduce: {name}: got times of {first} and of {second}, expected those of one alone"
    with pytest.raises(UsageError, match=said):
        fabric.cost("all_reduce", 1 << 20, Layout(2, 1))


def test_groups_at_once_may_have_ports_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    more: dict[str, Any] = {"topology": "rail", "hosts": 2, "ranks_per_host": 1}
    ports = {"0": ("rdma:mlx5_0", 2e9), "1": ("rdma:mlx5_1", 1e9)}
    rows = [
        one
        for group, (port, rate) in ports.items()
        for one in series("all_reduce", rate, group=group, transport=port, **more)
    ]
    for name in ("reduce_scatter", "all_gather"):
        rows += series(name, 4e9, topology="host", group="a")
    fabric = fabric_of([written(tmp_path / "run", rows)])
    across = fabric.cost("all_reduce", 2 << 20, Layout(4, 2)).across.middle
    assert across == pytest.approx(1.01 * (10e-6 + (1 << 20) / 1e9), rel=0.02)


def test_a_step_on_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    run = written(tmp_path / "run", series("all_reduce", 1e9))
    words = ["forecast", str(run), "--workload", "resnet18", "--devices", "1,2", "--compute", "32=80ms"]
    assert main([*words, "--overlap", "none"]) == 0
    said = capsys.readouterr().out
    # 46,758,048 B in three messages: 30 us and 46.8 ms, and 1 % for the mean of three launches
    assert "127 ms" in said
    assert "fabric measured:" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workload", "resnet18", "--at", "1 MiB"], "got --workload and --at, expected one question"),
        (["--at", "1 MiB"], "got no RESULTS, expected a run to fit"),
        (["RUN", "--fabric", "f.toml", "--large"], "got RESULTS and --fabric, expected one of them"),
        (["RUN", "--at", "1 MiB", "--hosts", "1,2"], "--hosts: got 2 numbers with --at, expected one"),
        ([], "got nothing to answer"),
    ],
)
def test_questions_that_cannot_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    run = written(tmp_path / "run", series("all_reduce", 1e9))
    assert main(["forecast", *(str(run) if word == "RUN" else word for word in words)]) == 2
    assert message in capsys.readouterr().err


def test_devices_and_hosts_that_were_never_measured_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    rows = [one for ranks in (2, 4) for one in series("all_reduce", 1e9, ranks)]
    rows += series("all_reduce", 1e8, 2, hosts=2, ranks_per_host=1)
    run = written(tmp_path / "run", rows)
    words = ["forecast", str(run), "--workload", "resnet18", "--devices", "4", "--hosts", "2", "--compute", "32=80ms"]
    assert main(words) == 2
    assert "ranks per host: got 2 on 2 hosts, expected 1 as measured" in capsys.readouterr().err
    assert main([*words, "--extrapolate"]) == 0
    said = " ".join(capsys.readouterr().out.replace("#", "").split())
    assert "EXTRAPOLATED" in said


def test_the_same_results_given_twice_count_once_and_it_is_said(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    run = written(tmp_path / "run", series("all_reduce", 1e9))
    alone, twice = fabric_of([run]), fabric_of([run, run / "results.csv"])
    assert twice.cost("all_reduce", 1 << 20, Layout(2, 1)) == alone.cost("all_reduce", 1 << 20, Layout(2, 1))
    assert f"{run / 'results.csv'}: given more than once, counted once" in twice.assumptions


def laid_out(tmp_path: Path) -> Path:
    """The natural layout: 2 and 8 ranks of one host, and all of 2, 3 and 4 hosts, on 4 hosts 4 and 8 of each."""
    rows = [
        one for ranks in (2, 8) for one in series("all_reduce", 1e10, ranks, topology="first:doubling", transport="shm")
    ]
    for ranks, hosts in ((8, 2), (16, 4), (24, 3), (32, 4)):
        rows += series(
            "all_reduce", 1e9 / hosts, ranks, hosts=hosts, ranks_per_host=ranks // hosts, transport="tcp:eth0"
        )
    return written(tmp_path / "run", rows)


def test_devices_are_on_the_hosts_that_ranks_are_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    run = str(laid_out(tmp_path))

    def told(*words: str) -> set[tuple[int, int]]:
        assert main(["forecast", run, *words, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        rows = found["forecasts"] if "forecasts" in found else found["tables"][0]["rows"]
        return {(row.get("ranks") or row["devices"], row["hosts"]) for row in rows}

    fewest = {(2, 1), (8, 1), (16, 4), (24, 3), (32, 4)}
    assert told("--at", "1 MiB", "--ranks", "2", "8", "16", "24", "32") == fewest | {(8, 2)}
    counts = ["--devices", "2,8,16,24,32"]
    assert told("--workload", "resnet18", *counts) == told("--large", "--size", "1 MiB", *counts) == fewest
    memory = ["--memory", "--device", "A40-48C", "--zero", "0", "--workload", "resnet18", "--devices", "16"]
    assert main(["forecast", run, *memory]) == 0
    assert "a time is unknown" not in capsys.readouterr().out


def test_reasons_that_differ_in_their_counts_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    run = str(laid_out(tmp_path))
    said = "ranks: got 64, 128, 256, {}expected 8, 16, 24 or 32 as measured"
    for words, more, why in (
        (["--large", "--size", "1 MiB", "--devices", "8,64,128,256"], "", "left out: 64, 128, 256 devices: "),
        (
            ["--workload", "resnet18", "--devices", "8,64,128,256"],
            "",
            "left out: 64 devices on 8 hosts, 128 devices on 16 hosts, 256 devices on 32 hosts: ",
        ),
        (
            ["--reference", "mlperf-v1.1-resnet50"],
            "1024, 4320, ",
            "all_reduce here is unknown for 64, 128, 256, 1024, 4320 devices: ",
        ),
    ):
        assert main(["forecast", run, *words, "--format", "json"]) == 0
        notes = json.loads(capsys.readouterr().out)["tables"][0]["notes"]
        (note,) = [note for note in notes if "expected 8, 16, 24 or 32" in note]
        assert note.startswith(f"{why}forecast: all_reduce: {said.format(more)}")


def test_a_refusal_between_hosts_says_that_rails_were_asked(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    rows = [one for name in ("reduce_scatter", "all_gather") for one in series(name, 4e9, topology="host", group="a")]
    rows += series("all_reduce", 2e9, 3, topology="rail", group="0", hosts=3, ranks_per_host=1)
    rows += series("all_reduce", 1e9, 3, topology="rail", group="1", hosts=3, ranks_per_host=1)
    fabric = fabric_of([written(tmp_path / "run", rows)])
    for collective, said in (
        ("all_reduce", r"rails \(a rank of each host\): all_reduce: ranks: got 4, expected 3 as measured"),
        ("reduce_scatter", "on the topology rail got times of all_reduce alone, expected those of reduce_scatter too"),
    ):
        with pytest.raises(UsageError, match=said):
            fabric.cost(collective, 2 << 20, Layout(8, 4))


def test_what_holds_for_all_sizes_is_said_once(tmp_path: Path) -> None:
    """On 3 ranks of 2 nothing tells the laws apart, whose order is another at each size, and caches matter beyond."""
    pytest.importorskip("scipy")
    rows = series("all_reduce", 1e9, send_bytes=1 << 20, recv_bytes=1 << 20)
    fabric = fabric_of([written(tmp_path / "run", rows)], extrapolate=True)
    for size in (1 << 10, 1 << 16, 1 << 22, 90 << 20, 128 << 20, 512 << 20):
        fabric.cost("all_reduce", size, Layout(3, 1))
    for said in ("it is in the middle of", "which a cache may hold"):
        assert len([note for note in fabric.assumptions if said in note]) == 1


BEYOND = [
    ("large", ["--large", "--size", "1 MiB", "--devices", "4,8"], "all_reduce of 1 MiB by fits of "),
    (
        "mlperf-v1.1-resnet50",
        ["--reference", "mlperf-v1.1-resnet50", "--workload", "resnet50", "--devices", "4,8", "--compute", "32=80ms"],
        "closed division; beside it all_reduce by fits of ",
    ),
    (
        "traffic",
        ["--memory", "--workload", "resnet18", "--device", "A40-24C", "--zero", "0", "--devices", "4,8"],
        "what travels in a step where it fits; times by fits of ",
    ),
]


@pytest.mark.parametrize(("name", "words", "title"), BEYOND)
def test_what_lies_beyond_the_measured_is_marked_in_every_answer(
    name: str, words: list[str], title: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 ranks of one host and 4 of two were measured: 8 were not, and published systems have 4, 8 and more."""
    pytest.importorskip("scipy")
    rows = series("all_reduce", 1e9) + series("all_reduce", 1e8, 4, hosts=2, ranks_per_host=2)
    asked = ["forecast", str(written(tmp_path / "run", rows)), *words, "--extrapolate", "--format"]

    def printed(form: str) -> str:
        assert main([*asked, form]) == 0
        return capsys.readouterr().out

    text = printed("text")
    its = text[text.index(title) :].partition("\n\n")[0]
    assert "fabric measured:" in its
    assert any(line.endswith("EXTRAPOLATED") for line in its.splitlines())
    (table,) = (one for one in json.loads(printed("json"))["tables"] if one["name"] == name)
    assert {(row["devices"], row["extrapolated"]) for row in table["rows"]} >= {(4, False), (8, True)}
    assert not {(row["devices"], row["extrapolated"]) for row in table["rows"]} & {(4, True), (8, False)}
    (lines,) = (part.splitlines() for part in printed("csv").split("\n\n") if f"\n{name}," in part)
    cells = [row["extrapolated"] for row in csv.DictReader(lines)]
    assert cells == [str(int(row["extrapolated"])) for row in table["rows"]]


def test_what_is_described_is_not_extrapolated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text('schema = 1\ntitle = "two"\ndevices_per_host = 8\n[vm]\nlatency = "2 us"\nbandwidth = "200 GB/s"\n')
    assert main(["forecast", "--fabric", str(path), "--large", "--size", "1 MiB", "--devices", "4"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# all_reduce of 1 MiB by closed forms for two\n")
    assert "EXTRAPOLATED" not in said


def test_an_end_that_rests_on_what_was_not_measured_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    rows = series("all_reduce", 1e9) + series("all_reduce", 1e8, 4, hosts=2, ranks_per_host=2)
    run = written(tmp_path / "run", rows)
    words = ["forecast", str(run), "--workload", "resnet18", "--compute", "32=80ms", "--extrapolate", "--devices"]
    for counts, beyond in (("2,4", False), ("2,8", True), ("8,16", True)):
        assert main([*words, counts]) == 0
        said = " ".join(capsys.readouterr().out.replace("#", "").split())
        assert ("(EXTRAPOLATED: by rows beyond what was measured)" in said) == beyond
        assert ("batch 32), which is EXTRAPOLATED, beyond what was measured" in said) == (counts == "8,16")
