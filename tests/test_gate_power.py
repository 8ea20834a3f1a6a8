"""What the gate catches of planted slowdowns, by the pool of launches that was measured: nothing is timed here."""

import importlib.util
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "gate_power"
COUNT, TRIALS = 8, 30


@pytest.fixture(scope="module")
def script() -> Any:
    loader = SourceFileLoader("gate_power", str(SCRIPT))
    spec = importlib.util.spec_from_loader("gate_power", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before, path, sys.dont_write_bytecode = sys.dont_write_bytecode, list(sys.path), True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode, sys.path[:] = before, path
    return module


@pytest.fixture(scope="module")
def pool(script: Any) -> Any:
    if not script.POOL.exists():
        pytest.skip("there is no pool of launches; `scripts/gate_power pool` measures one in an hour")
    return script.load_pool(script.POOL)


@pytest.fixture(scope="module")
def found(script: Any, pool: Any) -> dict[float, list[Counter[str]]]:
    return {share: script.counted(pool, share, COUNT, 0.0, TRIALS) for share in script.SHARES}


def test_where_nothing_was_planted_the_gate_is_quiet_and_two_means_are_a_coin(found: Any) -> None:
    gate, means = found[0.0]
    assert gate["trials"] == TRIALS
    assert gate["any"] <= 4  # 5 % of 30 are 1.5; five come once in seventy times
    assert means["any"] > TRIALS / 3


def test_larger_slowdowns_are_caught_more_often(script: Any, found: Any) -> None:
    caught = [sum(found[share][0][band] for band in script.BANDS) for share in script.SHARES]
    assert caught == sorted(caught)
    assert caught[-1] > caught[0] + TRIALS / 2


def test_no_launch_is_on_both_sides(script: Any) -> None:
    pool = {share: np.arange(200.0)[:, np.newaxis] for share in script.SHARES}
    for at in script.windows(200, 2 * COUNT, TRIALS):
        base, new = script.sides(pool, 0.2, at, COUNT)
        assert sorted([*base.ravel(), *new.ravel()]) == list(range(at, at + 2 * COUNT))
        assert abs(base.mean() - new.mean()) < 1e-9  # a drift cancels


@pytest.mark.parametrize("count", [5, 8, 10])
def test_sides_have_as_many_launches_as_asked_for(script: Any, count: int) -> None:
    pool = {share: np.arange(200.0)[:, np.newaxis] for share in script.SHARES}
    assert [len(side) for side in script.sides(pool, 0.0, 0, count)] == [count, count]


def test_windows_lie_within_the_pool(script: Any) -> None:
    assert script.windows(100, 20, 100) == list(range(81))
    assert script.windows(100, 20, 3) == [0, 40, 80]
    assert script.windows(10, 20, 3) == []


def test_each_size_is_in_its_band(script: Any) -> None:
    assert [script._of(band) for band in script.BANDS] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.usefixtures("pool")
def test_the_pool_s_file_is_what_the_script_writes(script: Any) -> None:
    header = script.POOL.read_text().splitlines()[0]
    assert header.split(",") == ["launch", *script.COLUMNS]
    assert script.POOL.stat().st_size < 200_000
