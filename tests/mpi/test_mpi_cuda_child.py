"""The child that tries an MPI library for `mpi_cuda`, started by a rank."""

import json
import sys
from pathlib import Path

import launching

PROGRAM = """
import json
from collbench.backends.mpi_cuda import _child
from collbench.start import start_world, stop_world
child = "import os; from mpi4py import MPI; print(MPI.COMM_WORLD.size, *sorted(os.environ))"
world = start_world()
told = world.gather(_child("-c", child))
if world.rank == 0:
    print(json.dumps([world.size, told]))
stop_world(world)
"""


def test_it_is_no_rank_and_has_the_users_settings(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    settings = {"OMPI_MCA_pml": "ob1", "UCX_TLS": "self,sm", "MPIR_CVAR_ENABLE_GPU": "0", "PMIX_MCA_gds": "hash"}
    done = launching.mpirun(2, [sys.executable, program], timeout=60, env=settings).expect(0)
    size, told = json.loads(done.out.splitlines()[-1])
    assert (size, len(told)) == (2, 2)
    for said, ending in told:
        assert ending == ""
        alone, *names = said.split()
        assert alone == "1"
        assert settings.keys() <= set(names)
