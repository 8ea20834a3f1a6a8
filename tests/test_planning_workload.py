"""Workloads by their published numbers, and how frameworks cut them into messages."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.errors import UsageError
from collbench.planning import buckets, workload
from collbench.planning.workload import Bucketing
from collbench.planning.workload_text import described

MIB = 2**20

PUBLISHED = [
    ("resnet18", 62, 11_689_512),
    ("resnet50", 161, 25_557_032),
    ("bert-large", 5 + 24 * 16 + 2, 335_141_888),
    ("gpt2-xl", 2 + 48 * 12 + 2, 1_557_611_200),
    ("llama-7b", 1 + 32 * 9 + 2, 6_738_415_616),
]

FILE = """
schema = 1
title = "two layers"
source = "here"
dtype = "float32"
[[compute]]
batch = 32
time = "80 ms"
[[group]]
name = "layer.{}"
repeat = 2
[group.tensors]
"weight" = [4, 8]
"bias" = [4]
"""


def cut(name: str, **changed: object) -> list[tuple[int, int]]:
    chosen = replace(workload.load(name), **changed)  # type: ignore[arg-type]
    return [(bucket.tensors, bucket.size_bytes) for bucket in chosen.buckets()]


@pytest.mark.parametrize(("name", "tensors", "parameters"), PUBLISHED)
def test_published_shapes(name: str, tensors: int, parameters: int) -> None:
    found = workload.load(name)
    assert len(found.tensors) == tensors
    assert found.parameters == parameters
    assert len({tensor.name for tensor in found.tensors}) == tensors
    assert found.source


def test_every_shipped_workload_is_tested() -> None:
    assert workload.shipped() == sorted(name for name, *_ in PUBLISHED)


def test_buckets_of_resnet18_are_those_that_nccl_saw() -> None:
    # The sizes of the all_reduces in a published NCCL log, with DDP's caps of 25 and 35 MiB.
    assert [size for _, size in cut("resnet18")] == [2052000, 28852224, 15853824]
    wider = Bucketing(cap_bytes=35 * MIB)
    assert [size for _, size in cut("resnet18", bucketing=wider)] == [2052000, 38297600, 6408448]


def test_buckets_of_resnet50() -> None:
    assert cut("resnet50") == [(2, 8196000), (15, 31502336), (12, 26255360), (51, 26550272), (81, 9724160)]
    assert cut("resnet50", dtype="float16") == [(2, 4098000), (27, 28878848), (132, 18137216)]


def test_small_tensors_of_resnet50() -> None:
    sizes = workload.load("resnet50").sizes()
    small = [size for size in sizes if size <= 16 * 1024]
    assert sum(sizes) == 102_228_128
    assert (len(small), sum(small)) == (108, 232_864)


def test_latency_of_unfused_and_fused_messages() -> None:
    alpha = 83e-6
    unfused = cut("resnet50", bucketing=Bucketing("none"))
    assert len(unfused) * alpha == pytest.approx(13.4e-3, abs=0.05e-3)
    assert len(cut("resnet50")) * alpha == pytest.approx(0.415e-3)


def test_ddp_closes_when_the_cap_is_reached_and_not_before() -> None:
    found = buckets.ddp([5, 6, 4, 3, 2], first=2, cap=8)
    assert [(one.tensors, one.size_bytes) for one in found] == [(1, 2), (3, 13), (1, 5)]
    assert [one.ready for one in found] == [0.1, 0.75, 1.0]


def test_horovod_stays_below_its_threshold_but_for_a_single_tensor() -> None:
    found = buckets.horovod([5, 6, 4, 30, 3, 2], threshold=10)
    assert [(one.tensors, one.size_bytes) for one in found] == [(2, 5), (1, 30), (2, 10), (1, 5)]
    assert [size for _, size in cut("resnet50", bucketing=Bucketing("horovod"))] == [102_228_128]
    assert Bucketing("horovod").threshold_bytes == 134_217_728


def test_horovod_takes_what_is_ready_at_each_cycle() -> None:
    found = buckets.horovod_cycles([4, 4, 4, 2], [0.0, 0.5e-3, 1.2e-3, 2.0e-3], threshold=100, cycle_s=1e-3)
    assert [(one.size_bytes, at) for one, at in found] == [(4, 0.0), (4, 1e-3), (6, 2e-3)]
    limited = buckets.horovod_cycles([4, 4, 4], [0.1e-3, 0.2e-3, 0.3e-3], threshold=8, cycle_s=1e-3)
    assert [(one.size_bytes, at) for one, at in limited] == [(8, 1e-3), (4, 1e-3)]
    # Rounding is no lateness, and no reason to look for ever.
    late = buckets.horovod_cycles([4, 4], [1e-13, 10 + 1e-13], threshold=8, cycle_s=1e-3)
    assert [(one.size_bytes, at) for one, at in late] == [(4, 0.0), (4, 10.0)]


def test_layers_are_buckets_of_their_own() -> None:
    found = cut("llama-7b")
    layer = 2 * (4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096)
    assert found == [(2, 2 * 4096 * 32001), *[(9, layer)] * 32, (1, 2 * 4096 * 32000)]


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    found = workload.load(str(path))
    assert [(one.name, one.elements, one.unit) for one in found.tensors] == [
        ("layer.0.weight", 32, 0), ("layer.0.bias", 4, 0), ("layer.1.weight", 32, 1), ("layer.1.bias", 4, 1),
    ]  # fmt: skip
    assert found.compute_at(32) == 0.08
    more = workload.with_compute(found, ("16=50ms",))
    assert (more.compute_at(16), more.compute_at(32)) == (0.05, 0.08)


def test_tensor_parallelism_leaves_each_device_a_part(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE + '[[exchange]]\nparallel = "tensor"\nranks = 4\ntimes = 8\nsize_per_sample = "1 KiB"\n')
    assert workload.load(str(path)).sizes() == [32, 4, 32, 4]


def test_no_time_is_made_up_for_another_batch(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    with pytest.raises(UsageError, match=r"batch of 16 .*expected one whose time is known \(32\).*--compute 16=TIME"):
        workload.load(str(path)).compute_at(16)


WRONG = [
    ("schema = 1", "schema = 2", "schema: got 2, expected a whole number from 1 to 1"),
    ('dtype = "float32"', 'dtype = "float31"', "dtype: got .*expected one of float32, float16, bfloat16; did you mean"),
    ('dtype = "float32"', 'dtyp = "float32"', "dtyp: got an unknown key, expected one of .*did you mean dtype"),
    ('time = "80 ms"', "time = 80", 'compute.0..time: got 80, expected a duration .*write "80 s"'),
    ('"weight" = [4, 8]', '"weight" = [4, 0]', "group.0..tensors.weight.1.: got 0, expected a whole number from 1"),
    ('name = "layer.{}"', 'name = "layer"', r"group.0..name: got \"layer\", expected a name with \{\} in it"),
    ("[[compute]]", "[published]\ntensors = 4\nparameters = 71\n[[compute]]", "published.parameters: got 71, .*the 72"),
    ("[[compute]]", '[bucketing]\nkind = "horovod"\ncap = "1 MiB"\n[[compute]]', "bucketing.cap: got .*remove cap"),
    ("[[compute]]", '[[compute]]\nbatch = 32\ntime = "1 s"\n[[compute]]', "compute.1..batch: got 32, expected each"),
    ("[[group]]", "[[grup]]", "grup: got an unknown key, expected one of .*did you mean group"),
    ("[[group]]", "[group", "not TOML"),
]


@pytest.mark.parametrize(("old", "new", "said"), WRONG)
def test_wrong_files_get_one_sentence_each(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert old in FILE
    path.write_text(FILE.replace(old, new))
    with pytest.raises(UsageError, match=said) as caught:
        workload.load(str(path))
    assert all(line.startswith(f"{path}: ") and "; " in line for line in str(caught.value).splitlines())


@pytest.mark.parametrize("given", ["32", "32=", "=80ms", "0=80ms", "32=80", "32=0 s", "-1=1s"])
def test_wrong_times(given: str) -> None:
    with pytest.raises(UsageError, match=r"--compute: got .*BATCH=TIME"):
        workload.with_compute(workload.load("resnet18"), (given,))


def test_an_unknown_name() -> None:
    with pytest.raises(UsageError, match=r"resnet51.*shipped ones .*resnet50"):
        workload.load("resnet51")


EXPERTS = """
schema = 1
title = "experts"
source = "here"
dtype = "float32"
[bucketing]
kind = "none"
[[exchange]]
parallel = "expert"
ranks = 4
times = 2
size_per_sample = "1 KiB"
[[group]]
name = "layer.{}"
repeat = 2
experts = ["up"]
[group.tensors]
"gate" = [8, 2]
"up" = [8, 4]
"""


def test_experts_are_divided_and_travel_apart(tmp_path: Path) -> None:
    path = tmp_path / "experts.toml"
    path.write_text(EXPERTS)
    found = workload.load(str(path))
    assert (found.parameters, found.expert_parameters, found.expert_ranks) == (96, 64, 4)
    assert found.sizes() == [64, 32, 64, 32]
    last = [(one.size_bytes, one.expert, one.ready * 192) for one in found.buckets()]
    assert last == [(32, True, 32), (64, False, 96), (32, True, 128), (64, False, 192)]
    for kind in ("ddp", "horovod"):
        fused = replace(found, bucketing=Bucketing(kind))
        assert [(one.size_bytes, one.expert) for one in fused.buckets()] == [(64, True), (128, False)]
    layers = replace(found, bucketing=Bucketing("layers"))
    assert [(one.tensors, one.expert) for one in layers.buckets()] == [(1, True), (1, False)] * 2
    assert any("64 of the parameters are divided among 4 devices" in line for line in described(found))


def test_experts_that_nobody_names_are_owned_up_to(tmp_path: Path) -> None:
    path = tmp_path / "experts.toml"
    path.write_text(EXPERTS.replace('experts = ["up"]\n', ""))
    found = workload.load(str(path))
    assert (found.expert_ranks, found.sizes()) == (1, [64, 128, 64, 128])
    assert any("THE EXPERTS ARE NOT DIVIDED" in line for line in described(found))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["up"]', '["down"]', r"group.0..experts.0.: got .down., expected one of the group's tensors gate, up"),
        (
            'parallel = "expert"',
            'parallel = "tensor"',
            r"group.0..experts: got experts without an exchange, expected an",
        ),
        (
            "[[group]]",
            '[[exchange]]\nparallel = "expert"\nranks = 2\ntimes = 2\nsize_per_sample = "1 KiB"\n[[group]]',
            r"group.0..experts: got exchanges of different ranks, expected .*; give them the same ranks",
        ),
        (
            "repeat = 2",
            "repeat = 1000000",
            r"group.0..repeat: got 1000000, expected .*at most 100,000 tensors; .*2,000,000",
        ),
    ],
)
def test_wrong_experts_and_absurd_repeats(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "experts.toml"
    assert old in EXPERTS
    path.write_text(EXPERTS.replace(old, new))
    with pytest.raises(UsageError, match=said):
        workload.load(str(path))


def test_more_parameters_than_any_model_has_are_a_slip(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    path.write_text(FILE.partition("[[")[0] + '[[group]]\n[group.tensors]\n"a" = [10000000000, 10000000000]\n')
    said = r"group: got more, expected tensors of at most 1,000,000,000,000,000 parameters .* come to 1e\+20 parameters"
    with pytest.raises(UsageError, match=said):
        workload.load(str(path))


def test_many_tensors_are_cut_in_one_pass() -> None:
    class Counted(list[int]):
        """Sizes that count how often they are looked at."""

        looked = 0

        def __iter__(self) -> Iterator[int]:
            for size in super().__iter__():
                Counted.looked += 1
                yield size

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(buckets, "sum", lambda sizes: sum(Counted(sizes)), raising=False)
        assert len(buckets.ddp([1] * 2000, first=10, cap=10**6)) == 2
    assert Counted.looked <= 4 * 2000
