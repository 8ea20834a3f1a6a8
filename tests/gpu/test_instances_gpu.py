"""Ranks whose list names an instance see one device each, and so do their neighbours; emulated, with whole devices."""

import sys
from pathlib import Path

import pytest

import launching

cupy = pytest.importorskip("cupy", reason="cupy is not installed", exc_type=ImportError)

# What the last entry names need not be there: no rank takes it.
PROGRAM = """
from pathlib import Path
from collbench.start import start_world, stop_world
from collbench.backends.cuda import device_index, device_uuid, owners, visible_devices
from collbench.neighbour import start
world = start_world()
count, index = visible_devices(), device_index(world)
with start("copy", world, index, buffer_bytes=1 << 20) as made:
    environment = Path(f"/proc/{made.pid}/environ").read_text().split("\\0")
seen = next(one for one in environment if one.startswith("CUDA_VISIBLE_DEVICES="))
own = seen.partition("GPU-")[2].replace("-", "") == device_uuid(index)
print(world.rank, count, index, own, len(owners(world)), flush=True)
stop_world(world)
"""


def test_ranks_and_neighbours_see_their_own(tmp_path: Path) -> None:
    if launching.cuda_devices() < 2:
        pytest.skip("2 CUDA devices are needed")
    from collbench.backends.cuda import device_uuid

    found = [device_uuid(index) for index in range(2)]
    named = [f"GPU-{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}" for one in found]
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = {"CUDA_VISIBLE_DEVICES": f"{named[0]},{named[1]},MIG-none"}
    done = launching.mpirun(2, [sys.executable, program], timeout=60, env=env).expect(0)
    assert sorted(done.out.splitlines()) == ["0 1 0 True 2", "1 1 0 True 2"]
