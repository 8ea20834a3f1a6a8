"""What a rank tells NCCL before it is loaded."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collbench import rank
from collbench.rank import RankOptions, set_up_nccl
from collbench.world import World

NAMES = ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_DEBUG")


def told(folder: Path, monkeypatch: pytest.MonkeyPatch, ranks_per_device: int, **own: str) -> dict[str, str]:
    """What the environment says to NCCL afterwards; `own` is the user's."""
    environ = dict(own)
    monkeypatch.setattr(rank, "os", SimpleNamespace(environ=environ))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    job: Any = SimpleNamespace(folder=folder)
    set_up_nccl(job, RankOptions("s.toml"), World(ranks_per_device=ranks_per_device))
    return {name: environ[name] for name in NAMES if name in environ and name != "NCCL_DEBUG"}


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (1, {}),
        (2, {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}),
        (3, {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4"}),
        (64, {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "1"}),
    ],
)
def test_more_than_two_ranks_of_a_device_take_few_blocks_each(
    ranks: int, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(tmp_path, monkeypatch, ranks) == expected


@pytest.mark.parametrize("name", ["NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS"])
def test_the_users_own_limit_counts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(tmp_path, monkeypatch, 4, **{name: "7"})
    assert found == {"NCCL_MULTI_RANK_GPU_ENABLE": "1", name: "7"}
