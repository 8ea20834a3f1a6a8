"""What the doctor makes of the launcher, of the MPI library, and of the path that it takes beside RDMA."""

import sys
from pathlib import Path

import pytest

import launching
from collbench.doctor import launcher, mpi_library, mpi_path
from collbench.doctor.finding import Seen
from collbench.world import World
from sysfs_trees import holding, levels, seen, tree

OPEN_MPI, MPICH = World(library="Open MPI v5.0.11"), World(library="MPICH Version: 5.0.2")


def test_one_process_without_a_launcher() -> None:
    (one,) = launcher.findings(seen(launcher.measure(world=World(), environ={})))
    assert (one.level, one.remedy) == ("note", "mpirun -n N collbench doctor")


def test_ranks_of_one_world_are_ok() -> None:
    facts = launcher.measure(world=World(size=2), environ={"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"})
    found = launcher.findings(seen(facts, facts))
    assert [(one.level, one.seen) for one in found] == [("ok", "2 ranks on 2 hosts")]


def test_independent_single_ranks_are_a_problem() -> None:
    (one,) = launcher.findings(seen(launcher.measure(world=World(), environ={"PMIX_RANK": "3"})))
    assert one.level == "problem"
    assert "process 3 of several" in one.seen
    (one,) = launcher.findings(seen(launcher.measure(world=World(), refused="launcher: PMI_SIZE says 2", environ={})))
    assert (one.level, one.seen) == ("problem", "PMI_SIZE says 2")


def test_ranks_that_mpi_could_not_join() -> None:
    (one,) = launcher.findings(seen(launcher.measure(world=World(), unjoined="MPI_ERR_INTERN", environ={})))
    assert (one.level, "could not bring the ranks together: MPI_ERR_INTERN" in one.seen) == ("problem", True)


def test_uneven_ranks_are_a_difference() -> None:
    facts = launcher.Facts(3, "x")
    found = launcher.findings([Seen(0, "a", facts), Seen(1, "a", facts), Seen(2, "b", facts)])
    assert levels(found) == ["warning (differs)", "ok"]
    assert "2 on a, 1 on b" in found[0].seen


def test_libraries_that_differ() -> None:
    one, two = mpi_library.Facts(library="Open MPI v5.0.11", pml="ucx"), mpi_library.Facts(library="Open MPI v4.1.4")
    assert levels(mpi_library.findings(seen(one, one))) == ["ok"]
    found = mpi_library.findings(seen(one, two))
    assert levels(found) == ["warning (differs)", "problem (differs)"]
    assert "v4.1.4 on b" in found[0].seen


def test_no_library_and_no_device_memory() -> None:
    (one,) = mpi_library.findings(seen(mpi_library.measure(world=World(alone_because="no libmpi"))))
    assert (one.level, one.seen) == ("note", "no MPI library can be used: no libmpi")
    refused = mpi_library.Facts(library="x", devices=1, cuda_refusal="died of SIGSEGV")
    assert "staged" in holding(mpi_library.findings(seen(refused)), "not CUDA-aware (died of SIGSEGV)").why
    served = mpi_library.findings(seen(mpi_library.Facts(library="x", devices=1)))
    assert holding(served, "CUDA-aware").level == "ok"


def test_the_layer_that_open_mpi_chose() -> None:
    program = (
        "from collbench.start import start_world, stop_world\n"
        "from collbench.doctor.mpi_library import library_path, selected_pml\n"
        "assert selected_pml() == ''\n"
        "world = start_world()\n"
        "print(selected_pml() or 'none', library_path().rpartition('/')[2])\n"
        "stop_world(world)\n"
    )
    chosen = launching.run([sys.executable, "-c", program], timeout=60).expect(0).out.split()
    if launching.flavour() == "openmpi":
        assert chosen[0] in ("ob1", "ucx", "cm")
    else:
        assert chosen[0] == "none"
    assert chosen[1].startswith(("libmpi", "libmpich"))


def test_nothing_is_said_of_the_path_without_an_active_port(tmp_path: Path) -> None:
    facts = mpi_path.measure(str(tmp_path), world=OPEN_MPI, environ={}, pml="ob1")
    assert mpi_path.findings(seen(facts, facts)) == []


@pytest.mark.parametrize("pml", ["ob1", ""])
def test_open_mpi_takes_tcp_silently(pml: str) -> None:
    facts = mpi_path.measure(tree("rxe"), world=OPEN_MPI, environ={}, pml=pml)
    (one,) = mpi_path.findings(seen(facts, facts))
    assert one.level == "warning"
    assert "rxe0:1 on both hosts is active" in one.seen
    assert "--mca pml ucx -x UCX_NET_DEVICES=rxe0:1" in one.remedy
    assert "TCP" in one.why


def test_open_mpi_that_does_as_it_was_told() -> None:
    asked = mpi_path.measure(tree("rxe"), world=OPEN_MPI, environ={"OMPI_MCA_pml": "ob1"}, pml="ob1")
    (one,) = mpi_path.findings(seen(asked))
    assert (one.level, "was told to use pml ob1" in one.seen) == ("note", True)
    chosen = mpi_path.measure(tree("rxe"), world=OPEN_MPI, environ={"OMPI_MCA_pml": "ucx"}, pml="ucx")
    (one,) = mpi_path.findings(seen(chosen))
    # That a port is there never says that it is used.
    assert (one.level, "may use rxe0:1" in one.seen) == ("ok", True)


def test_ucx_that_does_not_hear_of_freed_memory() -> None:
    facts = mpi_path.Facts("Open MPI v5.0.11", "ucx", (("rxe0:1", "rxe"),), deaf="libverbs-fi.so")
    (one,) = mpi_path.findings(seen(facts))
    assert one.level == "problem"
    assert "libverbs-fi.so; rxe0:1 on a" in one.seen
    assert "--mca btl ^ofi" in one.remedy


def test_a_file_that_keeps_open_mpi_from_ucx() -> None:
    """Debian's own file does, and it excludes openib in the same way."""
    environment = {"OMPI_MCA_pml": "^ucx", "OMPI_MCA_btl": "^uct,openib,ofi"}
    for pml in ("ob1", ""):
        (one,) = mpi_path.findings(seen(mpi_path.measure(tree("rxe"), world=OPEN_MPI, environ=environment, pml=pml)))
        assert one.level == "warning"
        assert one.seen.startswith("pml=^ucx (from the environment) keeps Open MPI from UCX")
    # What it chose in the end counts more than what was asked for.
    (one,) = mpi_path.findings(seen(mpi_path.measure(tree("rxe"), world=OPEN_MPI, environ=environment, pml="ucx")))
    assert one.level == "ok"


@pytest.mark.parametrize("world", [OPEN_MPI, MPICH])
@pytest.mark.parametrize(
    ("environment", "level", "words"),
    [
        ({}, "ok", "may use rxe0:1"),
        ({"UCX_TLS": "rc,self"}, "ok", "may use"),
        ({"UCX_TLS": "tcp,self"}, "warning", "UCX_TLS=tcp,self leaves RDMA out"),
        ({"UCX_NET_DEVICES": "rxe0:1"}, "ok", "may use"),
        ({"UCX_NET_DEVICES": "rxe*"}, "ok", "may use"),
        ({"UCX_NET_DEVICES": "eth0"}, "warning", "UCX_NET_DEVICES=eth0 names no active port"),
    ],
)
def test_ucx_that_is_kept_from_rdma(world: World, environment: dict[str, str], level: str, words: str) -> None:
    (one,) = mpi_path.findings(seen(mpi_path.measure(tree("rxe"), world=world, environ=environment, pml="ucx")))
    assert (one.level, words in one.seen) == (level, True)


def test_libfabric_and_other_libraries_are_not_guessed_at() -> None:
    environment = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
    (one,) = mpi_path.findings(seen(mpi_path.measure(tree("rxe"), world=MPICH, environ=environment, pml="")))
    assert (one.level, one.remedy) == ("note", "read the column transport")
    (one,) = mpi_path.findings(seen(mpi_path.measure(tree("rxe"), world=World(library="Other 1"), environ={}, pml="")))
    assert one.level == "note"
