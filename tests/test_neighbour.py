"""The neighbour as far as it needs no device; tests/gpu/test_neighbour_gpu.py has the rest."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench import neighbour
from collbench.errors import Agreed, CannotRun, UsageError
from collbench.neighbour import decoded, encoded, start
from collbench.world import World


def descriptors() -> set[Path]:
    """What this process has open."""
    return set(Path("/proc/self/fd").iterdir())


@given(st.binary(min_size=1, max_size=128))
def test_an_identity_in_bytes_comes_back(identity: bytes) -> None:
    assert decoded(encoded(identity)) == identity


@given(st.lists(st.integers(-128, 127), min_size=1, max_size=128).map(tuple))
def test_an_identity_in_numbers_comes_back(identity: tuple[int, ...]) -> None:
    assert decoded(encoded(identity)) == identity


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="got 'sleep', expected one of compute, copy, communicate"):
        start("sleep", World(), 0)


def test_one_rank_has_nobody_to_communicate_with() -> None:
    before = descriptors()
    with pytest.raises(CannotRun, match="neighbour communicate needs 2 ranks or more: one has nobody to"):
        start("communicate", World(), 0)
    assert descriptors() == before


@pytest.mark.parametrize("kind", ["compute", "copy"])
def test_one_that_fails_says_why_and_is_gone(kind: str) -> None:
    before = descriptors()
    with pytest.raises(CannotRun) as caught:
        start(kind, World(), 99)
    said = str(caught.value)
    assert said.startswith(f"neighbour {kind}: ")
    assert "Error" in said  # No module named 'cupy', or an invalid device
    assert "\n" not in said
    assert descriptors() == before


def test_one_that_dies_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(Agreed, match="neighbour compute: it ended with exit code 1"):
        start("compute", World(), 0)


def test_one_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = descriptors()
    with pytest.raises(CannotRun, match=r"neighbour copy: .*No such file"):
        start("copy", World(), 0)
    assert descriptors() == before


def test_one_that_never_gets_busy_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stubborn = tmp_path / "python"
    stubborn.write_text("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.1; done\n")
    stubborn.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stubborn))
    monkeypatch.setattr(neighbour, "_END_LIMIT_S", 0.3)
    monkeypatch.setattr(neighbour.Neighbour.stop, "__defaults__", (0.3,))
    with pytest.raises(Agreed, match="neighbour copy: no sign of work in 0 s"):
        start("copy", World(), 0, limit_s=0.3)


def test_it_is_no_rank() -> None:
    variables = {
        "OMPI_COMM_WORLD_RANK": "1",
        "PMIX_RANK": "1",
        "PMI_RANK": "1",
        "NCCL_DEBUG_FILE": "x",
        "NCCL_DEBUG": "INFO",
    }
    kept = {"PATH": "/bin", "NCCL_MULTI_RANK_GPU_ENABLE": "1", "CUDA_VISIBLE_DEVICES": "2", "COLLBENCH_LAUNCHED": "a"}
    assert neighbour._environment(variables | kept) == kept


def test_one_whose_parent_is_gone_already_ends_at_once() -> None:
    job = '{"parent": 1, "taken": "", "kind": "compute", "reports": 1, "device": 0}'
    done = subprocess.run(
        [sys.executable, "-m", "collbench.neighbour_work", job], capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"")
