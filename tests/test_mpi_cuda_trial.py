"""What a child process tells of an MPI library and device memory; tests/gpu/test_mpi_cuda.py has the rest."""

from collections.abc import Iterator

import pytest

from collbench.backends import mpi_cuda
from collbench.backends.mpi_cuda import _cannot, _child, crash_in_reductions, probe_problem

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
        assert probe_problem(call, reduces=reducing, device=3) == expected
    assert tried == [("-m", "collbench.backends.mpi_cuda_trial", call, "3")]


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


LAUNCHERS = (
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_UNIVERSE_SIZE", "OMPI_FIRST_RANKS", "OMPI_NUM_APP_CTX",
    "OMPI_MCA_ess", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_ess_base_vpid", "OMPI_MCA_orte_hnp_uri",
    "OMPI_MCA_orte_local_daemon_uri", "OMPI_MCA_orte_ess_num_procs", "OMPI_MCA_orte_ess_node_rank", "OMPI_MCA_pmix",
    "OMPI_MCA_num_procs", "OMPI_MCA_initial_wdir", "PMIX_ID", "PMIX_RANK", "PMIX_NAMESPACE", "PMIX_SERVER_URI41",
    "PRTE_LAUNCHED", "PMI_RANK", "PMI_FD", "MPI_LOCALRANKID", "HYDI_CONTROL_FD", "SLURM_PROCID",
)  # fmt: skip
USERS = (
    "OMPI_MCA_pml", "OMPI_MCA_opal_cuda_support", "OMPI_MCA_btl", "OPAL_PREFIX", "UCX_TLS", "MPIR_CVAR_ENABLE_GPU",
    "MPICH_GPU_SUPPORT_ENABLED", "I_MPI_OFFLOAD", "PMIX_MCA_gds",
)  # fmt: skip


def test_a_child_has_the_users_settings_and_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*LAUNCHERS, *USERS):
        monkeypatch.setenv(name, "1")
    said, ending = _child("-c", "import os; print(*os.environ)")
    assert ending == ""
    assert set(said.split()) & {*LAUNCHERS, *USERS} == set(USERS)


def test_a_device_that_a_second_process_cannot_have_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = "import sys; sys.exit('CUDARuntimeError: cudaErrorDevicesUnavailable: busy or unavailable')"
    ending = _child("-c", busy)[1]
    reason = _cannot("Open MPI v5.0.11", f"a child process that tried MPI_Sendrecv {ending}")
    assert "as in compute mode exclusive process; set the mode to default" in reason
    assert "cannot take memory" not in reason
