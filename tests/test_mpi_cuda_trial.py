"""What a child process tells of an MPI library and device memory; tests/gpu/test_mpi_cuda.py has the rest."""

from collections.abc import Iterator

import pytest

from collbench.backends import mpi_cuda
from collbench.backends.mpi_cuda import _child, crash_in_reductions, probe_problem

MOVED = "Alltoall\nAllgather\nGather\nScatter\n"


@pytest.fixture(autouse=True)
def nothing_was_tried() -> Iterator[None]:
    mpi_cuda._tried.cache_clear()
    yield
    mpi_cuda._tried.cache_clear()


@pytest.mark.parametrize(
    ("said", "call", "moves", "reduces"),
    [
        (f"Sendrecv\n{MOVED}Allreduce\nReduce\nReduce_scatter_block\nScan\n", "blocking", None, None),
        (f"{MOVED}Allreduce\n", "nonblocking", None, "MPI_Ireduce"),
        (MOVED, "persistent", None, "MPI_Allreduce_init"),
        ("Alltoall\n", "nonblocking", "MPI_Iallgather", "MPI_Iallgather"),
        ("", "blocking", "MPI_Sendrecv", "MPI_Sendrecv"),
    ],
)
def test_a_form_that_moves_data_may_fail_in_reductions(
    said: str, call: str, moves: str | None, reduces: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def child(*words: str) -> tuple[str, str]:
        tried.append(words)
        return said, "died of SIGSEGV"

    monkeypatch.setattr(mpi_cuda, "_child", child)
    for reducing, function in ((False, moves), (True, reduces)):
        expected = function and f"a child process that tried {function} died of SIGSEGV"
        assert probe_problem(call, reduces=reducing) == expected
    assert tried == [("-m", "collbench.backends.mpi_cuda_trial", call)]


@pytest.mark.parametrize(
    ("program", "said", "ending"),
    [
        ("print('Alltoall')", "Alltoall", ""),
        ("print('Alltoall', flush=True); import os; os.kill(os.getpid(), 11)", "Alltoall", "died of SIGSEGV"),
        ("print('Alltoall', flush=True); import time; time.sleep(60)", "Alltoall", "did not end within 2 s"),
        ("raise SystemExit(3)", "", "got wrong data"),
        ("raise SystemExit('no such function')", "", "failed: no such function"),
    ],
)
def test_what_a_child_said_is_kept_however_it_ended(
    program: str, said: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi_cuda, "_PROBE_S", 2.0)
    got, how = _child("-c", program)
    assert (got.strip(), how) == (said, ending)


@pytest.mark.parametrize("call", ["nonblocking", "persistent"])
def test_open_mpi_adds_on_the_host(call: str) -> None:
    reason = str(crash_in_reductions("Open MPI v5.0.11", call))
    assert reason.startswith("Open MPI v5.0.11 would add up memory of the device on the host in ")
    assert "open-mpi/ompi#9845" in reason
    assert crash_in_reductions("Open MPI v5.0.11", "blocking") is None
    assert crash_in_reductions("MPICH Version: 5.0.2", call) is None
