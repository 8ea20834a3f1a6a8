"""samples.parquet: every sample of every rank, for those who want the distribution and not its summary.

It is a folder with a file for each case, so that what is finished is whole whatever becomes of the run; pandas, polars
and pyarrow read such a folder as one table.
"""

from pathlib import Path
from typing import Any

import numpy as np

from collbench.errors import CannotRun
from collbench.timing import Sampled

FOLDER = "samples.parquet"


def check_available() -> None:
    """Raise where samples are asked for and cannot be written."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise CannotRun(
            "[measure] samples: got true, expected pyarrow to write them with; pip install 'collbench[samples]'"
        ) from None


def write(
    folder: Path,
    launch: int,
    case_id: str,
    group: str,
    ranks: tuple[int, ...],
    sampled: Sampled,
    operations_per_iteration: int = 1,
) -> None:
    """Write one case's samples: a row for each sample and rank, times in seconds of one operation, as in its row.

    `sampled` is what the group's rank 0 has: arrays of ranks x samples. Entry and exit are those of the whole sample:
    of a batch its first entry and last exit, of a round trip both ways.
    """
    import pyarrow
    from pyarrow import parquet

    count = sampled.durations_s.shape[1]
    columns: dict[str, Any] = {
        "case_id": pyarrow.array([case_id] * (count * len(ranks))).dictionary_encode(),
        "group": pyarrow.array([group] * (count * len(ranks))).dictionary_encode(),
        "launch": np.full(count * len(ranks), launch, np.int32),
        "sample": np.repeat(np.arange(count, dtype=np.int64), len(ranks)),
        "rank": np.tile(np.array(ranks, np.int32), count),
        "duration_s": sampled.durations_s.T.ravel() / operations_per_iteration,
        "enqueue_s": sampled.enqueue_s.T.ravel() / operations_per_iteration,
    }
    if sampled.device_s is not None:
        columns["device_s"] = sampled.device_s.T.ravel() / operations_per_iteration
    else:
        columns["device_s"] = pyarrow.nulls(count * len(ranks), pyarrow.float64())
    for name, times in (("entry_s", sampled.entry_s), ("exit_s", sampled.exit_s)):
        columns[name] = pyarrow.nulls(count * len(ranks), pyarrow.float64()) if times is None else times.T.ravel()
    (folder / FOLDER).mkdir(exist_ok=True)
    path = folder / FOLDER / f"{launch}-{case_id}-{group.replace('/', '_')}.parquet"
    partial = path.with_name(f".{path.name}")
    parquet.write_table(pyarrow.table(columns), partial)
    partial.replace(path)
