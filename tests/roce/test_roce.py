"""On two virtual machines with Soft-RoCE: Open MPI's silent TCP is seen, and real RoCE v2 is told from it.

`scripts/test_on_roce` builds the machines. One boot serves all tests: they look at what it left.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import launching
from collbench.record import Record
from collbench.results import read

ROOT = Path(__file__).parents[2]
RIG = Path(os.environ.get("RIG_HOME", ROOT / ".roce"))

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (RIG / "root.img").exists() or not (RIG / "installed").exists(),
        reason="the virtual machines are not built; scripts/test_on_roce builds them",
    ),
]

SCENARIO = """
schema = 1
title = "which path"
[measure]
least_time = "1 ms"
least_iterations = 3
most_iterations = 6
time_budget = "20 s"
warmup_time = "1 ms"
timeout = "3 min"
[[sweep]]
backends = ["mpi"]
collectives = ["all_reduce"]
sizes = ["1 MiB"]
[expect]
transport = "rdma"
"""

FREED = """
schema = 1
title = "memory that is freed and taken again"
[measure]
least_time = "1 ms"
least_iterations = 3
most_iterations = 4
time_budget = "20 s"
warmup_time = "1 ms"
timeout = "3 min"
order = "listed"
[[sweep]]
backends = ["mpi"]
collectives = ["ping_pong", "send_recv"]
sizes = ["512 KiB"]
"""

COMMANDS = """
set -u
export OPAL_PREFIX={venv} PRTE_PREFIX={venv} PYTHONPATH={tree} NUMBA_CACHE_DIR={rig}/kernels PYTHONDONTWRITEBYTECODE=1
cd {work}
common="--prefix {venv} --hostfile /etc/mpihosts --map-by node -x PYTHONPATH -x NUMBA_CACHE_DIR"
for path in tcp rdma; do
    more=
    [ $path = tcp ] || more="--mca pml ucx -x UCX_NET_DEVICES=rxe0:1 -x UCX_TLS=rc,self"
    {venv}/bin/python3 -m collbench launch {work}/roce.toml -n 2 -o {work}/$path \
        --launcher {venv}/bin/mpirun --launcher-args "$common $more" >$path.out 2>$path.err
    echo $? >$path.code
done
for path in deaf hearing; do
    more="--mca pml ucx -x UCX_NET_DEVICES=rxe0:1 -x UCX_TLS=rc,self"
    [ $path = deaf ] || more="$more --mca btl ^ofi"
    {venv}/bin/python3 -m collbench launch {work}/freed.toml -n 2 -o {work}/$path \
        --launcher {venv}/bin/mpirun --launcher-args "$common $more" >$path.out 2>$path.err
    echo $? >$path.code
done
doctor="{venv}/bin/python3 -m collbench doctor --json --seconds 1"
{venv}/bin/mpirun -np 2 $common $doctor >doctor.json 2>doctor.err
{venv}/bin/mpirun -np 2 $common $more $doctor >doctor-hearing.json 2>>doctor.err
{venv}/bin/mpirun -np 2 $common --mca pml ucx $doctor >doctor-deaf.json 2>>doctor.err
exit 0
"""


@pytest.fixture(scope="module")
def work() -> Path:
    """What the machines left behind."""
    folder = RIG / "work"
    for old in sorted(folder.rglob("*"), reverse=True):
        (old.rmdir if old.is_dir() else old.unlink)()
    folder.mkdir(exist_ok=True)
    (folder / "roce.toml").write_text(SCENARIO)
    (folder / "freed.toml").write_text(FREED)
    commands = COMMANDS.format(venv=RIG / "venv", tree=ROOT, rig=RIG, work=folder)
    (folder / "commands.sh").write_text(commands)
    rig = ROOT / "tests/roce/roce-rig.sh"
    launching.run(
        [rig, "-d", ROOT, "-t", "500", "bash", folder / "commands.sh"],
        timeout=540,
        env={"RIG_HOME": str(RIG), "RIG_DISK": str(RIG / "venv")},
    ).expect(0)
    return folder


def row(work: Path, path: str) -> Record:
    said = "\n".join((work / f"{path}.{stream}").read_text() for stream in ("out", "err"))
    assert (work / path / "results.csv").exists(), said
    (found,) = read(work / path)
    assert found.status == "ok", said
    return found


def test_silent_tcp_is_named_and_unexpected(work: Path) -> None:
    found = row(work, "tcp")
    assert found.transport == "tcp:eth0"
    assert found.rdma_bytes == 0
    assert "unexpected_transport" in str(found.notes)
    assert found.reason == (
        "transport: got tcp:eth0, expected rdma; rxe0:1 on n0 is active, "
        "but Open MPI takes TCP beside it unless told: mpirun --mca pml ucx"
    )
    assert (work / "tcp.code").read_text().strip() == "5"


def test_rdma_is_named_with_counters_that_fit(work: Path) -> None:
    found = row(work, "rdma")
    assert found.transport == "rdma:rxe0"
    assert found.reason is None
    assert (work / "rdma.code").read_text().strip() == "0"
    assert found.crossing_bytes is not None
    assert found.rdma_bytes is not None
    assert found.tcp_bytes is not None
    # Soft-RoCE counts packets, acknowledgements among them: the estimate lies above the payload, by less than half.
    assert 0.95 * found.crossing_bytes < found.rdma_bytes < 1.5 * found.crossing_bytes
    assert found.tcp_bytes < 0.2 * found.crossing_bytes


def test_stale_registrations_are_wrong_data_with_their_cause(work: Path) -> None:
    said = (work / "deaf.err").read_text()
    first, second = read(work / "deaf")
    assert (first.status, second.status) == ("ok", "wrong"), said
    assert "UCX does not hear of memory that is given back" in str(second.reason)
    assert (work / "deaf.code").read_text().strip() == "3"


def test_the_remedy_holds(work: Path) -> None:
    assert [one.status for one in read(work / "hearing")] == ["ok", "ok"], (work / "hearing.err").read_text()


def findings(work: Path, name: str) -> list[str]:
    said: dict[str, Any] = json.loads((work / name).read_text())
    return [f"{one['level']} {one['check']} {one['seen']} {one['why']} {one['remedy']}" for one in said["findings"]]


def test_the_doctor_sees_both(work: Path) -> None:
    texts = findings(work, "doctor.json")
    assert any("rxe0" in text and "ok" in text.split()[0] for text in texts), texts
    assert any("pml ucx" in text and text.startswith("warning") for text in texts), texts


def test_the_doctor_sees_who_makes_ucx_deaf(work: Path) -> None:
    texts = {name: findings(work, f"doctor-{name}.json") for name in ("deaf", "hearing")}
    problems = {name: [text for text in its if text.startswith("problem MPI path")] for name, its in texts.items()}
    assert "--mca btl ^ofi" in " ".join(problems["deaf"]), texts["deaf"]
    assert not problems["hearing"]
