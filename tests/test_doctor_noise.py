"""The doctor's judgement of noise, on made-up ranks; and one real, short measurement."""

import json
from dataclasses import replace

import pytest

import launching
from collbench.doctor.finding import Finding
from collbench.doctor.noise import RankNoise, findings, measure, table
from collbench.world import World

QUIET = RankNoise(
    rank=0, host="a", binding="0", governor=None, stolen_share=0.001, largest_gap_s=5e-5, quantum_s=1e-4,
    clock_floor_s=3e-8, clock_step_s=1e-8,
)  # fmt: skip


def by_check(ranks: list[RankNoise]) -> dict[str, Finding]:
    return {one.check: one for one in findings(ranks)}


def test_a_quiet_machine_is_ok() -> None:
    found = findings([QUIET, replace(QUIET, rank=1, binding="1")])
    assert {one.level for one in found} == {"ok"}


def test_the_noisy_rank_is_named() -> None:
    found = by_check([QUIET, replace(QUIET, rank=1, host="b", stolen_share=0.2, largest_gap_s=0.02)])
    assert found["noise"].level == "warning"
    assert "20.0%" in found["noise"].seen
    assert "rank 1 on b" in found["noise"].seen
    assert found["noise"].remedy
    assert found["largest gap"].level == "note"
    assert "20 ms on rank 1 on b" in found["largest gap"].seen


def test_ranks_bound_to_one_core_are_a_problem() -> None:
    found = by_check([replace(QUIET, binding="0-1"), replace(QUIET, rank=1), replace(QUIET, rank=2)])
    assert found["cores"].level == "warning"  # three ranks, two cores
    found = by_check([replace(QUIET, binding="1-3"), replace(QUIET, rank=1), replace(QUIET, rank=2)])
    assert found["cores"].level == "problem"
    assert "ranks 1, 2 on a" in found["cores"].seen
    # The same number on two hosts is two cores.
    assert by_check([QUIET, replace(QUIET, rank=1, host="b")])["cores"].level == "ok"


@pytest.mark.parametrize(
    ("governor", "level"), [(None, "ok"), ("performance", "ok"), ("powersave", "warning"), ("schedutil", "warning")]
)
def test_frequency_scaling(governor: str | None, level: str) -> None:
    assert by_check([replace(QUIET, governor=governor)])["frequency"].level == level


def test_a_short_measurement() -> None:
    (one,) = measure(World(), 0.2)
    assert 0 <= one.stolen_share < 1
    assert 2e-5 < one.quantum_s < 2e-3
    assert 0 < one.clock_floor_s < 1e-5
    assert len(table([one])) == 2


def test_the_command_as_json() -> None:
    done = launching.collbench(["doctor", "--noise", "--seconds", "1", "--json"])
    said = json.loads(done.out)
    assert done.code in (0, 7)
    checks = {one["check"] for one in said["findings"]}
    assert checks >= {"noise", "largest gap", "clock", "cores", "frequency", "gpu", "launcher", "system", "RDMA"}
    order = ["problem", "warning", "note", "ok"]
    levels = [order.index(one["level"]) for one in said["findings"] if not one["differs"]]
    assert levels == sorted(levels)
    assert set(said["facts"]) >= {"launcher", "MPI library", "RDMA", "settings", "system", "PCI Express"}
    assert said["devices"]
    assert said["ranks"][0]["rank"] == 0
