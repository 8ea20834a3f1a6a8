"""`collbench forecast` from a described fabric: what is asked, what is printed, what is refused."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.cli import main
from collbench.errors import UsageError
from collbench.planning import tables
from collbench.planning.command import PlanOptions, answers, command
from collbench.planning.costs import Range
from collbench.planning.tables import Column, Table

FABRIC = """
schema = 1
title = "two VMs"
devices_per_host = 8
[vm]
latency = "2 us"
bandwidth = "200 GB/s"
uncertainty = 0.1
[nic]
latency = "10 us"
bandwidth = "25 GB/s"
"""
MEMORY = PlanOptions(workload="llama-7b", memory=True, device="A100X-40C")


@pytest.fixture
def described(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.toml"
    path.write_text(FABRIC)
    return path


def test_text(described: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--workload", "resnet50", "--compute", "64=80ms", "--devices", "1,8,16"]
    assert main(["forecast", "--fabric", str(described), *options]) == 0
    title, head, *lines = capsys.readouterr().out.splitlines()
    assert title == "# ResNet-50 on two VMs: a training step"
    assert head.split()[:3] == ["devices", "hosts", "batch"]
    assert [line.split()[:3] for line in lines[:3]] == [["1", "1", "64"], ["8", "1", "64"], ["16", "2", "64"]]
    assert all(line.startswith("# ") for line in lines[3:])


def test_notes_of_a_csv_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    one = tables.Table("t", "title", [tables.Column("a", "a")], [{"a": 1}], ["first", "both"])
    two = tables.Table("u", "title", [tables.Column("a", "a")], [{"a": 1}], ["both"])
    tables.tell([one, two], "csv")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("table,a\nt,1\n\ntable,a\nu,1\n", "note: first\nnote: both\n")
    tables.tell([one], "json")
    assert capsys.readouterr().err == ""


def test_a_count_that_is_given_twice_is_answered_once(described: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["forecast", "--fabric", str(described), "--workload", "resnet18", "--format", "csv"]
    assert main([*words, "--devices", "8,16,8", "--hosts", "2,2"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["devices"], row["hosts"]) for row in rows] == [("8", "2"), ("16", "2")]


def test_csv_and_json(described: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = PlanOptions("resnet50", described, devices=(1, 8), compute=("64=80ms",), form="csv")
    assert command(options) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["table"] for row in rows] == ["steps", "steps"]
    assert float(rows[0]["step_s"]) == 0.08
    assert float(rows[1]["step_low_s"]) <= float(rows[1]["step_s"]) <= float(rows[1]["step_high_s"])
    assert command(replace(options, form="json")) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert table["rows"][0]["samples_per_s"] == pytest.approx(800)
    assert table["notes"]


def test_memory(described: Path) -> None:
    (held, travels), steps = answers(replace(MEMORY, fabric=described))
    assert [row["smallest_devices"] for row in held.rows] == ["none", 6, 4, 3]
    assert [row["fits"] for row in held.rows] == ["does not fit", "fits", "fits", "fits"]
    said = "\n".join(held.notes)
    assert "2 + 2 + 12 = 16 bytes for each" in said
    assert "ACTIVATIONS AND WORKSPACE ARE NOT IN IT" in said
    assert "--driver-keeps" in said
    assert [(row["zero"], row["devices"], row["collective"]) for row in travels.rows] == [
        (1, 6, "reduce_scatter"), (1, 6, "all_gather"),
        (2, 4, "reduce_scatter"), (2, 4, "all_gather"),
        (3, 3, "all_gather"), (3, 3, "all_gather"), (3, 3, "reduce_scatter"),
    ]  # fmt: skip
    gather = travels.rows[-3]
    size = 2 * 6_738_415_616
    assert gather["time_s"] == pytest.approx(2 * 2e-6 + 2 / 3 * size / 200e9)
    assert steps == []


def test_memory_with_what_is_measured() -> None:
    (held, _), _ = answers(replace(MEMORY, activations="4 GiB", driver_keeps="1 GiB", zero=3, devices=(2, 8)))
    assert [(row["devices"], row["fits"]) for row in held.rows] == [(2, "does not fit"), (8, "fits")]
    layer = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
    assert held.rows[1]["gathered_bytes"] == 2 * 3 * layer
    assert held.rows[1]["total_bytes"] == 16 * 6_738_415_616 // 8 + 2 * 3 * layer + 4 * 2**30
    assert held.rows[1]["left_bytes"] == 39 * 2**30 - held.rows[1]["total_bytes"]
    (tight, _), _ = answers(replace(MEMORY, activations="4 GiB", driver_keeps="25 GiB", zero=3, devices=(8,)))
    assert [row["fits"] for row in tight.rows] == ["does not fit"]
    assert not any("ACTIVATIONS" in note or "--driver-keeps" in note for note in held.notes)
    assert any(note.startswith("WORKSPACE") and "ONLY AS FAR AS --activations HAS IT" in note for note in held.notes)


def test_stage_3_does_not_fit_where_its_layers_in_whole_do_not() -> None:
    asked = replace(MEMORY, device="", device_memory="40 GiB", activations="5 GiB", driver_keeps="1 GiB", zero=3)
    (held, _), _ = answers(asked)
    assert held.rows[0]["smallest_devices"] == 4  # by its shards alone 3 had 543 MiB left
    (three, _), _ = answers(replace(asked, devices=(3,)))
    assert three.rows[0]["fits"] == "does not fit"
    assert any(note.startswith("gathered: of the 34 messages of layers ZeRO 3 has") for note in three.notes)


def test_large_and_reference_together(described: Path) -> None:
    options = PlanOptions(
        "resnet50", described, large=True, reference="mlperf-v1.1-resnet50", compute=("51=13ms",), dtype="float16"
    )
    (steps, forms, published), known = answers(options)
    assert (steps.name, forms.name, published.name) == ("steps", "large", "mlperf-v1.1-resnet50")
    assert [step.devices for step in known][-1] == 4096
    assert forms.title == "all_reduce of 48.7 MiB by closed forms for two VMs"
    mine = [row for row in published.rows if row["system"] == "yours, forecast"]
    assert [row["batch"] for row in mine][:4] == [51 * 8, 51 * 16, 51 * 32, 51 * 64]
    assert [row["minutes"] is None for row in mine][:4] == [True, True, False, False]  # 1632 and 3264 have 35 epochs


WRONG = [
    (PlanOptions(), "got nothing to answer"),
    (
        PlanOptions("resnet50"),
        "--workload: got resnet50 and no fabric, expected RESULTS or --fabric FILE.toml, .*--memory",
    ),
    (PlanOptions(memory=True, device="A40-24C"), "--workload: got none, expected a file or one of bert-large"),
    (replace(MEMORY, device=""), "got neither of --device and --device-memory"),
    (replace(MEMORY, device_memory="80 GB"), "got both of --device and --device-memory"),
    (replace(MEMORY, activations="4 G"), "--activations: got .4 G., expected a size"),
    (PlanOptions(large=True), "--large: got no fabric"),
    (replace(MEMORY, device="", device_memory="0 B"), "--device-memory: got .0 B., expected at least 1 B"),
    (PlanOptions(reference="mlperf"), "--reference: got .mlperf., expected .*mlperf-v1.1-resnet50"),
    (PlanOptions("resnet50", Path("none.toml")), "none.toml: got no text .*expected a fabric file"),
    (PlanOptions("resnet50", plot=Path("picture")), "--plot: got picture, expected a name that ends in .png"),
    (PlanOptions("resnet50", plot=Path("none/a.png")), "--plot: got none/a.png, expected a folder that exists"),
    (PlanOptions("resnet50", batch=1, global_batch=8), "got --batch and --global-batch, expected one of them"),
]


@pytest.mark.parametrize(("options", "said"), WRONG)
def test_wrong_command_lines(options: PlanOptions, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        command(options)


def test_pictures(described: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    options = PlanOptions("resnet50", described, devices=(1, 8, 16), compute=("64=80ms",))
    for name in ("a.png", "a.svg"):
        assert command(replace(options, plot=tmp_path / name)) == 0
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(UsageError, match=r"no step time to draw.*--compute BATCH=TIME"):
        command(replace(options, plot=tmp_path / "b.png", compute=()))


def test_tables_write_what_is_unknown_as_nothing() -> None:
    columns = [Column("a", "a"), Column("b_s", "b", tables.duration), Column("c", "c")]
    table = Table("t", "title", columns, [{"a": 1, "b_s": None}, {"a": 22, "b_s": 0.5, "c": None}], ["note"])
    assert tables.written([table], "text") == "# title\n a       b\n 1       -\n22  500 ms\n# - note\n"
    assert tables.written([table], "csv") == "table,a,b_s,c\nt,1,,\nt,22,0.5,\n"
    assert json.loads(tables.written([table], "json"))["tables"][0]["rows"][0] == {"a": 1, "b_s": None, "c": None}


def test_an_estimate_is_one_column_to_read() -> None:
    columns = tables.ranged("step", "s", "step", tables.duration)
    table = Table("t", "title", columns, [tables.spread("step", "s", Range(0.9, 1.0, 1.1))])
    assert tables.written([table], "text") == "# title\n                 step\n1 s (900 ms to 1.1 s)\n"
    sure = Table("t", "title", columns, [tables.spread("step", "s", Range(1.0, 1.0, 1.0))])
    assert tables.written([sure], "text") == "# title\nstep\n 1 s\n"
    assert tables.written([table], "csv") == "table,step_s,step_low_s,step_high_s\nt,1.0,0.9,1.1\n"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--memory", "--workload", "resnet50", "--device", "A100-80GB", "--batch", "32"], "--batch"),
        (["--large", "--size", "1 MB", "--hosts", "2"], "--hosts"),
        (["--large", "--size", "1 MB", "--driver-keeps", "1 GB"], "--driver-keeps"),
        (["--workload", "resnet50", "--optimizer", "sgd"], "--optimizer"),
        (["--workload", "resnet50", "--size", "1 MB"], "--size"),
    ],
)
def test_an_option_that_changes_nothing_is_refused(
    words: list[str], option: str, described: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on = [] if "--memory" in words else ["--fabric", str(described)]
    assert main(["forecast", *words, *on]) == 2
    assert f"got {option}, which changes nothing here" in capsys.readouterr().err


def test_another_model_is_not_set_beside_a_published_one(described: Path) -> None:
    asked = PlanOptions(
        workload="bert-large", fabric=described, devices=(8,), compute=("4=80ms",), reference="mlperf-v1.1-resnet50"
    )
    tables_found, _ = answers(asked)
    assert all(row["system"] != "yours, forecast" for row in tables_found[-1].rows)
    assert any("is not beside them: the published model has 25,557,032" in note for note in tables_found[-1].notes)
    same, _ = answers(replace(asked, workload="resnet50"))
    assert same[-1].rows[-1]["system"] == "yours, forecast"


def test_what_the_driver_keeps_is_less_than_there_is() -> None:
    with pytest.raises(UsageError, match=r"--driver-keeps: got 80 GiB, expected less than the 40 GiB of the device"):
        answers(replace(MEMORY, driver_keeps="80 GiB"))


def test_one_count_that_cannot_be_leaves_the_others(described: Path) -> None:
    (found,), _ = answers(PlanOptions(large=True, fabric=described, devices=(8, 12, 16)))
    assert [row["devices"] for row in found.rows] == [8, 16]
    assert found.notes[0].startswith("left out: 12 devices: --devices: got 12, expected a multiple of the 8")
    with pytest.raises(UsageError, match="got 12"):
        answers(PlanOptions(large=True, fabric=described, devices=(12,)))


def test_two_times_of_one_batch_are_refused(described: Path) -> None:
    with pytest.raises(UsageError, match="--compute: got two times of a batch of 32"):
        answers(PlanOptions(workload="resnet50", fabric=described, compute=("32=80ms", "32=90ms")))


EXPERTS = """
schema = 1
title = "experts"
source = "none"
dtype = "float16"
[[exchange]]
parallel = "expert"
ranks = 4
times = 2
size_per_sample = "1 KiB"
[[group]]
experts = ["up"]
[group.tensors]
gate = [8, 8]
up = [16, 8]
"""
TENSOR = EXPERTS.replace('experts = ["up"]\n', "").replace('"expert"', '"tensor"')


def test_memory_says_that_experts_are_not_divided_where_nobody_names_them(tmp_path: Path) -> None:
    path = tmp_path / "experts.toml"
    path.write_text(EXPERTS.replace('experts = ["up"]\n', ""))
    (held, _), _ = answers(replace(MEMORY, workload=str(path), zero=0))
    assert held.rows[0]["total_bytes"] == 16 * (64 + 128)
    assert any(note.startswith("THE EXPERTS ARE NOT DIVIDED") for note in held.notes)


def test_memory_and_steps_divide_the_experts_alike(tmp_path: Path, described: Path) -> None:
    path = tmp_path / "experts.toml"
    path.write_text(EXPERTS)
    asked = replace(MEMORY, workload=str(path), zero=0, fabric=described, devices=(4, 16))
    (held, travels, steps), _ = answers(replace(asked, batch=1))
    assert [(row["devices"], row["total_bytes"]) for row in held.rows] == [(4, 16 * (64 + 32)), (16, 16 * (64 + 32))]
    assert not any("NOT DIVIDED" in note for note in held.notes)
    assert any("128 of the parameters are divided among 4 devices" in note for note in held.notes)
    last = [(row["devices"], row["when"], row["size_bytes"]) for row in travels.rows]
    assert last == [
        (4, "gradients, in backward", 128),
        (16, "gradients, in backward", 128),
        (16, "gradients of experts, in backward", 64),
    ]
    exchange = 2 * (3 * 2e-6 + 3 / 4 * 1024 / 200e9)
    sent = sum(row["time_s"] for row in travels.rows if row["devices"] == 16)
    (step,) = (row for row in steps.rows if row["devices"] == 16)
    assert step["communication_vm_s"] + step["communication_across_s"] == pytest.approx(sent + exchange)


@pytest.mark.parametrize("experts", ['experts = ["up"]\n', ""])
def test_memory_is_for_whole_groups(experts: str, tmp_path: Path) -> None:
    path = tmp_path / "experts.toml"
    path.write_text(EXPERTS.replace('experts = ["up"]\n', experts))
    asked = replace(MEMORY, workload=str(path), devices=(3, 6, 8))
    (held, _), _ = answers(asked)
    assert [row["devices"] for row in held.rows] == [8] * 4
    assert list(held.notes[:2]) == [
        f"left out: --devices: got {count}, expected a multiple of 4 (expert parallelism of 4 does not fit {count} "
        f"devices); give {instead}"
        for count, instead in ((3, "4"), (6, "4 or 8"))
    ]
    with pytest.raises(UsageError, match=r"forecast: --devices: got 6, expected a multiple of 4 .*; give 4 or 8$"):
        answers(replace(asked, devices=(6,)))
    smallest, _ = answers(replace(asked, devices=(), device="", device_memory="1 KiB", zero=3))
    assert smallest[0].rows[0]["smallest_devices"] % 4 == 0
    none, _ = answers(replace(asked, devices=(), device="", device_memory="1 B", zero=0))
    assert (none[0].rows[0]["devices"], none[0].rows[0]["smallest_devices"]) == (4, "none")


def test_memory_of_tensor_parallel_parts_is_for_whole_models(tmp_path: Path) -> None:
    path = tmp_path / "tensor.toml"
    path.write_text(TENSOR.replace("ranks = 4", "ranks = 8"))
    with pytest.raises(UsageError, match=r"got 4, expected a multiple of 8 \(tensor parallelism of 8 .*\); give 8$"):
        answers(replace(MEMORY, workload=str(path), devices=(4, 12)))
    (held, _), _ = answers(replace(MEMORY, workload=str(path), zero=0, devices=(12, 16)))
    assert [row["devices"] for row in held.rows] == [16]


def test_a_workload_that_does_not_fit_its_devices_says_by_which_group(tmp_path: Path, described: Path) -> None:
    path = tmp_path / "tensor.toml"
    path.write_text(TENSOR.replace("ranks = 4", "ranks = 16"))
    with pytest.raises(UsageError, match="24 devices on 3 hosts: tensor parallelism of 16 does not fit 24 devices"):
        answers(PlanOptions(str(path), described, devices=(24,), batch=1))
