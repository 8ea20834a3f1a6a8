"""samples.parquet: what each case leaves, and that what writes it is missed before a run begins."""

import sys
from pathlib import Path

import numpy as np
import pytest

from collbench import launch, launcher, samples
from collbench.errors import CannotRun
from collbench.timing import Sampled

TIMES = ["duration_s", "enqueue_s", "device_s", "entry_s", "exit_s"]
SAMPLED = Sampled(
    durations_s=np.array([[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]),
    enqueue_s=np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    device_s=None,
    warmup_iterations=1,
    batch=1,
    stopped_by="budget",
    entry_s=np.array([[0.0, 20.0, 40.0], [0.5, 20.5, 40.5]]),
)


@pytest.mark.parametrize("operations", [1, 2])
def test_a_row_for_each_sample_and_rank(operations: int, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    samples.write(tmp_path, 0, "cabc", "world", (0, 3), SAMPLED, operations)
    samples.write(tmp_path, 1, "cabc", "pair/0-1", (0, 1), SAMPLED, operations)
    whole = pandas.read_parquet(tmp_path / samples.FOLDER)
    assert list(whole) == ["case_id", "group", "launch", "sample", "rank", *TIMES]
    first = whole[whole.launch == 0]
    assert set(first.case_id) == {"cabc"}
    assert list(first["sample"]) == [0, 0, 1, 1, 2, 2]
    assert list(first["rank"]) == [0, 3, 0, 3, 0, 3]
    assert list(first.duration_s * operations) == [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]
    assert list(first.enqueue_s * operations) == [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]
    assert first.device_s.isna().all()
    assert list(first.entry_s) == [0.0, 0.5, 20.0, 20.5, 40.0, 40.5]
    assert list(first.exit_s) == [2.0, 8.5, 24.0, 30.5, 46.0, 52.5]  # of the whole sample, whatever is in it
    assert set(whole.group) == {"world", "pair/0-1"}


def test_what_writes_them_is_missed_before_a_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(launch, "find_launcher", lambda name: launcher.Launcher("mpirun", "other"))
    scenario = tmp_path / "s.toml"
    scenario.write_text(
        'schema = 1\n[measure]\nsamples = true\n[[sweep]]\ncollectives = ["barrier"]\n', encoding="utf-8"
    )
    with pytest.raises(CannotRun, match=r"samples: got true, expected pyarrow .*; pip install 'collbench\[samples\]'"):
        launch.launch(launch.LaunchOptions(str(scenario), 2, output=tmp_path / "run"))
    assert not (tmp_path / "run").exists()
