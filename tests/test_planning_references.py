"""Published systems: what follows from their rows."""

import pytest

from collbench.planning import references
from collbench.planning.costs import Link
from collbench.planning.fabric import Fabric
from collbench.planning.references import Yours

REFERENCE = references.load("mlperf-v1.1-resnet50")
ONE, EIGHT = REFERENCE.row("NVIDIA DGX A100 x1"), REFERENCE.row("NVIDIA DGX A100 x8")


def test_time_to_train_splits_into_samples_epochs_and_step() -> None:
    assert REFERENCE.rate(ONE) == pytest.approx(25.6e3, rel=0.003)
    assert REFERENCE.step_s(ONE) == pytest.approx(127e-3, abs=0.5e-3)
    assert REFERENCE.rate(EIGHT) == pytest.approx(164.8e3, rel=0.001)
    assert REFERENCE.step_s(EIGHT) == pytest.approx(19.8e-3, abs=0.05e-3)
    assert (REFERENCE.step_s(ONE) or 0) / 8 == pytest.approx(15.9e-3, abs=0.05e-3)


@pytest.mark.parametrize(
    ("system", "speedup", "efficiency"),
    [
        ("NVIDIA DGX A100 x8", 6.43, 0.804),
        ("Azure ND96amsr_A100_v4 VM x8", 6.48, 0.810),
        ("Dell R750xa 4xA100-PCIe x2", 1.96, 0.981),
        ("Dell XE8545 x2", 1.87, 0.935),
    ],
)
def test_scaling(system: str, speedup: float, efficiency: float) -> None:
    row = REFERENCE.row(system)
    assert REFERENCE.speedup(row) == pytest.approx(speedup, abs=0.005)
    assert REFERENCE.efficiency(row) == pytest.approx(efficiency, abs=0.0006)


def test_all_reduce_explains_little_of_what_is_lost() -> None:
    assert REFERENCE.gradient_bytes == 51_114_064
    assert references.all_reduce_s(REFERENCE, 64) == pytest.approx(0.59e-3, abs=0.005e-3)


def test_three_sentences() -> None:
    interconnect, lost, software = references.meaning(REFERENCE)
    for words in ("28.3", "29.1", "16 IPUs", "8 GPUs", "batch 3200 and 38 epochs against 3264 and 35", "no comparison"):
        assert words in interconnect
    for words in ("19.8 ms", "15.9 ms", "3.89 ms", "592 us", "170 GB/s", "assumed", "51 images instead of 408"):
        assert words in lost
    for words in ("POD64 41% less time = 1.7x", "POD16 24% less time = 1.3x", "no gain in fabric"):
        assert words in software


def test_rows_hang_together() -> None:
    names = [row.system for row in REFERENCE.rows]
    assert len(names) == len(set(names)) == 20
    for row in REFERENCE.rows:
        assert row.minutes > 0
        assert {row.base, row.later} - {""} <= set(names)
        if row.base:
            assert REFERENCE.row(row.base).devices < row.devices


def test_the_users_fabric_stands_beside() -> None:
    fabric = Fabric("mine", 8, Link(0.0, 170e9, algorithm="ring"), None)
    table = references.table(REFERENCE, fabric, [Yours(8, 3264, 20_000.0), Yours(8, 4000, 20_000.0)])
    by_name = {row["system"]: row for row in table.rows}
    assert by_name["NVIDIA DGX A100 x1"]["all_reduce_here_s"] == pytest.approx(2 * 7 / 8 * 51_114_064 / 170e9)
    assert by_name["NVIDIA DGX A100 x8"]["all_reduce_here_s"] is None  # no links between hosts are described
    known, unknown = table.rows[-2:]
    assert known["minutes"] == pytest.approx(1_281_167 * 35 / 20_000 / 60)
    assert (unknown["minutes"], unknown["note"]) == (None, "epochs to the target are not published for this batch")
    assert references.table(REFERENCE, None).rows[0]["all_reduce_here_s"] is None
