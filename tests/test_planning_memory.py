"""Memory of each device, and what the sharding costs: by hand."""

import re

import pytest

from collbench.errors import UsageError
from collbench.planning import memory
from collbench.planning.memory import Model, Recipe

GIB = 2**30

PER_PARAMETER = [
    # precision, optimizer, weights + gradients + optimizer state
    ("mixed", "adam", (2, 2, 12)),
    ("mixed", "adamw", (2, 2, 12)),
    ("mixed", "momentum", (2, 2, 8)),
    ("mixed", "sgd", (2, 2, 4)),
    ("fp32", "momentum", (4, 4, 4)),
    ("fp32", "sgd", (4, 4, 0)),
    ("fp32", "adam", (4, 4, 8)),
    ("bf16", "adam", (2, 2, 4)),
]


@pytest.mark.parametrize(("precision", "optimizer", "parts"), PER_PARAMETER)
def test_bytes_a_parameter(precision: str, optimizer: str, parts: tuple[int, int, int]) -> None:
    assert Recipe(optimizer, precision).per_parameter() == parts


def test_the_sums_that_everybody_quotes() -> None:
    assert memory.need(Model(1), Recipe("adam", "mixed"), 1).total == 16
    assert memory.need(Model(1), Recipe("momentum", "fp32"), 1).total == 12


@pytest.mark.parametrize(
    ("zero", "total"),
    # 7.5 billion parameters on 64 devices: 120, 31.4, 16.6 and 1.9 GB (ZeRO, SC 2020, figure 1)
    [(0, 120e9), (1, 30e9 + 90e9 / 64), (2, 15e9 + 105e9 / 64), (3, 120e9 / 64)],
)
def test_zero_stages(zero: int, total: float) -> None:
    held = memory.need(Model(7_500_000_000), Recipe("adam", "mixed", zero), 64)
    assert held.total == pytest.approx(total)
    assert held.total / 1e9 == pytest.approx({0: 120, 1: 31.4, 2: 16.6, 3: 1.9}[zero], abs=0.05)


def test_what_is_divided_is_rounded_up() -> None:
    held = memory.need(Model(10), Recipe("adam", "mixed", 3), 3)
    assert (held.weights, held.gradients, held.optimizer) == (7, 7, 40)


def test_the_smallest_number_is_the_smallest() -> None:
    for zero in (1, 2, 3):
        recipe = Recipe("adamw", "mixed", zero, activations_bytes=4 * GIB)
        found = memory.smallest(Model(6_738_415_616), recipe, 40 * GIB)
        assert found is not None
        assert memory.need(Model(6_738_415_616), recipe, found).total <= 40 * GIB
        assert memory.need(Model(6_738_415_616), recipe, found - 1).total > 40 * GIB


def test_what_is_not_divided_does_not_fit_by_number() -> None:
    assert memory.smallest(Model(1000), Recipe("adam", "mixed", 0), 15_999) is None
    assert memory.smallest(Model(1000), Recipe("adam", "mixed", 0), 16_000) == 1
    assert (
        memory.smallest(Model(1000), Recipe("adam", "mixed", 1), 4_000) is None
    )  # weights and gradients alone are as much
    assert memory.smallest(Model(1000), Recipe("adam", "mixed", 3, activations_bytes=5_000), 4_999) is None


def sent(zero: int) -> list[tuple[str, int, int]]:
    found = memory.traffic(Model(1000), Recipe("adam", "mixed", zero), 4)
    return [(one.collective, one.size_bytes, one.sent_bytes) for one in found]


def test_what_travels_by_stage() -> None:
    scatter, gather = ("reduce_scatter", 2000, 1500), ("all_gather", 2000, 1500)
    assert sent(0) == [("all_reduce", 2000, 3000)]
    assert sent(1) == sent(2) == [scatter, gather]
    assert sent(3) == [gather, gather, scatter]
    assert memory.traffic(Model(1000), Recipe("adam", "mixed", 3), 1) == []


def test_stage_3_sends_half_more() -> None:
    totals = [sum(bytes_sent for *_, bytes_sent in sent(zero)) for zero in range(4)]
    assert totals == [3000, 3000, 3000, 4500]


def test_stage_3_holds_two_units_in_whole_and_the_gradients_of_one() -> None:
    # Neighbours of 300 and 400: 700 of weights, 400 of gradients, 2 bytes each; the 500 stands alone beside 100.
    model = Model(1300, units=((500, False), (100, False), (300, False), (400, False)))
    recipe = Recipe("adam", "mixed", 3, activations_bytes=10)
    assert memory.need(model, recipe, 2).gathered == 2 * 1100
    assert memory.need(model, recipe, 2).total == 8 * 1300 + 2 * 1100 + 10
    assert memory.need(model, recipe, 1).gathered == 0
    assert memory.need(model, Recipe("adam", "mixed", 2), 2).gathered == 0
    assert memory.need(Model(500, units=((500, False),)), recipe, 4).gathered == 2 * 1000
    assert memory.smallest(model, recipe, 8 * 1300 + 2 * 1100 + 10) == 2
    assert memory.smallest(model, recipe, 8 * 1300 + 10) == 3
    assert memory.smallest(model, recipe, 16 * 1300 + 10) == 1
    assert memory.smallest(model, recipe, 2 * 1100) is None


def test_experts_are_divided_and_sharded_among_those_that_hold_the_same() -> None:
    # 1000 parameters everywhere, 800 of experts on each of 4; on 8 devices two hold the same experts.
    model = Model(1000, 800, 4, units=((600, True), (100, False), (100, False)))
    assert memory.need(model, Recipe("adam", "mixed", 0), 4).total == 16 * 1800
    assert memory.need(model, Recipe("adam", "mixed", 1), 8).optimizer == 12 * (125 + 400)
    assert memory.need(model, Recipe("adam", "mixed", 3), 8).weights == 2 * (125 + 400)
    assert memory.need(model, Recipe("adam", "mixed", 3), 8).gathered == 2 * (700 + 600)
    assert memory.need(model, Recipe("adam", "mixed", 3), 4).gathered == 2 * (200 + 100)  # the experts are there
    assert memory.smallest(model, Recipe("adam", "mixed", 0), 16 * 1800) == 4
    assert memory.smallest(model, Recipe("adam", "mixed", 2), 2 * 1800 + 14 * 526) == 8
    sizes = [(one.collective, one.size_bytes, one.sent_bytes, one.expert) for one in memory.traffic(model, Recipe(), 8)]
    assert sizes == [("all_reduce", 2000, 3500, False), ("all_reduce", 1600, 1600, True)]
    assert [one.expert for one in memory.traffic(model, Recipe(), 4)] == [False]


DEVICES = [
    ("A100-80GB", 81920), ("H100-80GB", 81920), ("H200", 144384), ("A40-24C", 24576), ("A100D-80C", 81920),
    ("A100X-3-20C", 20480), ("L40S-48C", 49152), ("T4-16C", 16384), ("H100XM-80C", 81920), ("H200X-70C", 71680),
    ("GRID A100D-10C", 10240), ("grid_a100d-80c", 81920), ("NVIDIA A40-48C", 49152),
]  # fmt: skip


@pytest.mark.parametrize(("name", "mib"), DEVICES)
def test_devices_by_name(name: str, mib: int) -> None:
    found = memory.device(name)
    assert found.memory_bytes == mib * 2**20
    assert found.source.startswith("NVIDIA AI Enterprise")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("A100-80GB", ""),
        ("A100DX-80C", ""),
        ("A40-48C", ""),
        ("A40-24C", "shares the GPU's processors"),
        ("A100X-3-20C", "has a part of the GPU's processors"),
        ("A100X-7-40C", "no peer-to-peer"),
    ],
)
def test_what_profiles_cost_besides_memory(name: str, words: str) -> None:
    said = memory.caution(memory.device(name))
    assert words in said
    assert bool(said) == bool(words)


def test_every_profile_holds_about_what_its_name_says() -> None:
    names = [name for name in memory.devices() if name.endswith("C")]
    assert len(names) > 200
    for name in names:
        said = int(re.split("-", name.removesuffix("C"))[-1])
        assert memory.devices()[name].memory_bytes == pytest.approx(said * GIB, rel=0.03), name


def test_an_unknown_device() -> None:
    with pytest.raises(UsageError, match=r"A100D-81C.*did you mean A100D-80C or A100D-40C or"):
        memory.device("A100D-81C")
    with pytest.raises(UsageError, match=r"did you mean A100-80GB or A100-40GB or A100-40C\?"):
        memory.device("A100")
    with pytest.raises(UsageError, match=r"did you mean A40-48C or A40-24C or A40-16C\?"):
        memory.device("A40-99C")
    with pytest.raises(UsageError, match=r"did you mean A40-8C or A40-6C or"):
        memory.device("A40-7C")
    with pytest.raises(UsageError, match="--device-memory SIZE"):
        memory.device("my board")
