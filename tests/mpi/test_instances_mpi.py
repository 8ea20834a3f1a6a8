"""Each rank has its own instance (MIG) before MPI starts, and where only MPI says which rank it is."""

import sys

import pytest

import launching

PROGRAM = """
import os, sys
import collbench.start as start
before = start._initialise
def initialise(MPI):
    seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
    before(MPI)
seen = []
start._initialise = initialise
if sys.argv[1] == "untold":
    start._LOCAL_RANKS = ()
world = start.start_world()
seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
sys.stdout.write(f"{world.rank} {' '.join(seen)}\\n")  # at once: two ranks write to one place
start.stop_world(world)
"""


@pytest.mark.parametrize("told", ["told", "untold"])
def test_each_rank_has_its_own_instance(told: str) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "MIG-a,MIG-b"}
    done = launching.mpirun(2, [sys.executable, "-c", PROGRAM, told], timeout=60, env=env).expect(0)
    first = ("MIG-a", "MIG-b") if told == "told" else ("MIG-a,MIG-b",) * 2
    assert sorted(done.out.splitlines()) == [f"0 {first[0]} MIG-a", f"1 {first[1]} MIG-b"]
