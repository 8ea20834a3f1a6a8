"""A run goes on with the devices that it began with, and with no others."""

import os
from pathlib import Path

import pytest

import launching
from collbench.results import RunFolder

MEASURE = """
schema = 1
[measure]
time_budget = "10 ms"
least_time = "1 ms"
warmup_time = "5 ms"
[[sweep]]
sizes = ["4 KiB", "8 KiB"]
"""
COLLECTIVE = MEASURE + 'backends = ["staged"]\ncollectives = ["all_reduce"]\n'
BETWEEN_DEVICES = MEASURE + 'kind = "kernel"\nkernels = ["peer_copy"]\nways = ["engine all"]\n'


@pytest.mark.parametrize(
    ("scenario", "ranks", "devices"), [(COLLECTIVE, 2, 4), (BETWEEN_DEVICES, 1, 3)], ids=["ranks", "one process"]
)
def test_other_devices_are_refused_and_the_same_complete_it(
    scenario: str, ranks: int, devices: int, tmp_path: Path
) -> None:
    if launching.cuda_devices() < devices:
        pytest.skip(f"{devices} CUDA devices are needed")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(devices)))).split(",")[:devices]
    first, others = ({"CUDA_VISIBLE_DEVICES": ",".join(some)} for some in (visible, visible[2:]))
    if ranks == 1:  # fewer of the same
        others = {"CUDA_VISIBLE_DEVICES": ",".join(visible[:2])}
    path, run = tmp_path / "s.toml", tmp_path / "run"
    path.write_text(scenario)
    more = ["--launches", "2", "--no-choices", "-q"]
    launching.collbench(["launch", path, "-n", str(ranks), "-o", run, *more], env=first).expect(0)
    folder = RunFolder.open(run)
    folder.results_path.write_text("".join(folder.results_path.read_text().splitlines(keepends=True)[:2]))
    (kept,) = folder.read()
    done = launching.collbench(["launch", "--resume", run, "--no-choices"], env=others).expect(2)
    began = folder.read_info().devices[""][0]
    (refused,) = (line for line in done.err.splitlines() if "expected device" in line)  # once, for all launches
    assert f"{run}: rank 0 on " in refused
    assert f"expected device{'s' * (ranks == 1)} {', '.join(began)} as the run began with; show it those" in refused
    assert len(began) == (devices if ranks == 1 else 1)
    assert folder.read() == [kept]
    launching.collbench(["launch", "--resume", run, "--no-choices", "-q"], env=first).expect(0)
    rows = folder.read()
    assert rows[0] == kept
    assert [(row.launch, row.status) for row in rows] == [(0, "ok"), (0, "ok"), (1, "ok"), (1, "ok")]
