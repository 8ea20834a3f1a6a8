import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collbench
from collbench import provenance
from collbench.provenance import (
    NOT_RECORDED,
    collect_launch,
    collect_rank,
    compact,
    nccl_conf,
    redacted,
    settings,
    summarise,
    versions,
)
from collbench.results import RunFolder

SECRET = "hunter2"


def test_a_rank_tells_where_it_runs() -> None:
    rank = collect_rank()
    assert rank["pid"] == os.getpid()
    assert rank["hostname"] == platform.node()
    assert rank["kernel"] == platform.release()
    assert rank["cores"] == len(os.sched_getaffinity(0))
    assert rank["cpu_model"]
    assert json.loads(json.dumps(rank)) == rank
    again = collect_rank()
    assert again == rank


def test_the_binding_is_that_of_this_process() -> None:
    cores = os.sched_getaffinity(0)
    one = max(cores)
    os.sched_setaffinity(0, {one})
    try:
        rank = collect_rank()
    finally:
        os.sched_setaffinity(0, cores)
    assert (rank["cores"], rank["binding"]) == (1, str(one))


def test_a_rank_is_told_apart_by_container_and_not_by_name() -> None:
    rank = collect_rank()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot not in json.dumps(rank)
    environment = {**os.environ, "PYTHONPATH": str(Path(collbench.__file__).parents[1])}
    code = "from collbench.provenance import collect_rank; print(collect_rank()['container'])"
    command = ["unshare", "--mount", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    if done.returncode != 0:
        pytest.skip("no right to make a namespace")
    assert done.stdout.strip() != rank["container"]


def test_a_rank_is_described_at_once() -> None:
    collect_rank()
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        collect_rank()
        times.append(time.perf_counter() - begin)
    assert min(times) < 5e-3


CPUINFO = {
    "model name\t: first\nflags\t\t: a b\n\nmodel name\t: second\n": "first",
    "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n": "POWER9, altivec supported",
    "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n": "CPU implementer 0x41 CPU part 0xd0c",
    "": "",
}


@pytest.mark.parametrize("content", CPUINFO)
def test_the_cpu_is_named_as_far_as_the_kernel_names_it(monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setattr(provenance, "_text", lambda path, limit=0: content)
    assert provenance._cpu_model().removeprefix(platform.machine()).strip() == CPUINFO[content]


@pytest.mark.parametrize(("text", "count"), [("0", 1), ("0-3", 4), ("0-1,4,6-7", 5), ("", None), (None, None)])
def test_a_list_of_nodes_is_counted(text: str | None, count: int | None) -> None:
    assert provenance._count(text) == count


@pytest.mark.parametrize(
    ("group", "files", "limit"),
    [
        ("0::/", {}, None),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "4096", "memory.max": "8192"}, 4096),
        ("0::/../outside", {"memory.max": "1024"}, 1024),
        ("0::/", {"memory.max": "max"}, None),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("4:cpu,memory:/a\n0::/", {"memory/a/memory.limit_in_bytes": "2048"}, 2048),
    ],
)
def test_the_lowest_memory_limit_holds(tmp_path: Path, group: str, files: dict[str, str], limit: int | None) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(group + "\n")
    for name, content in files.items():
        path = tmp_path / "sys" / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    assert provenance._memory_limit_bytes(str(tmp_path)) == limit


ENVIRONMENT = {
    "NCCL_ALGO": "Ring",
    "OMPI_MCA_pml": "ob1",
    "UCX_TLS": "tcp,self",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "SLURM_JOB_ID": "17",
    "PATH": f"/{SECRET}",
    "HOME": f"/{SECRET}",
    "SLURM_JOB_USER": SECRET,
    "PMIX_SERVER_URI41": SECRET,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "OPENAI_API_KEY": SECRET,
    "HOROVOD_SECRET_KEY": SECRET,
    "NCCL_PLUGIN_TOKEN": SECRET,
    "UCX_auth_mode": SECRET,
    "FI_PROXY_URL": f"https://me:{SECRET}@proxy.example:3128/",
    "OMPI_MCA_mca_base_env_list": f"OMP_NUM_THREADS=2;DB_PASSWORD={SECRET}",
    "NCCL_HEADER": f"Authorization: Bearer {SECRET}",
    "HOROVOD_CERT": f"-----BEGIN RSA KEY-----{SECRET}",
}


def test_settings_are_an_allow_list_without_secrets() -> None:
    kept = settings(ENVIRONMENT)
    assert kept["NCCL_ALGO"] == "Ring"
    assert kept["OMPI_MCA_pml"] == "ob1"
    assert kept["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert kept["SLURM_JOB_ID"] == "17"
    assert kept["HOROVOD_SECRET_KEY"] == NOT_RECORDED
    assert {
        "PATH",
        "HOME",
        "SLURM_JOB_USER",
        "PMIX_SERVER_URI41",
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_API_KEY",
    }.isdisjoint(kept)
    assert [value for value in kept.values() if SECRET in value] == []
    assert list(kept) == sorted(kept)


def test_a_long_value_is_cut() -> None:
    assert len(settings({"NCCL_DEBUG_FILE": "x" * 5000})["NCCL_DEBUG_FILE"]) < 1100


def test_no_secret_reaches_the_run_folder(tmp_path: Path) -> None:
    (tmp_path / ".nccl.conf").write_text(
        f"# NCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME = eth0\nNCCL_X_TOKEN={SECRET}\nPASSWORD={SECRET}\n"
    )
    argv = [
        "collbench",
        "run",
        "--token",
        SECRET,
        f"--password={SECRET}",
        "-x",
        f"API_KEY={SECRET}",
        f"http://me:{SECRET}@host/x",
        "-n",
        "4",
    ]
    launch = collect_launch("Open MPI", argv=argv, environ={**ENVIRONMENT, "HOME": str(tmp_path)})
    with RunFolder.create("x", tmp_path / "run") as run:
        path = run.write_environment(1, {**launch, "ranks": summarise([collect_rank()])})
    text = path.read_text()
    assert SECRET not in text
    assert str(tmp_path) not in text
    found = json.loads(text)
    assert found["nccl_conf"]["~/.nccl.conf"] == {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_X_TOKEN": NOT_RECORDED}
    assert found["mpi_library"] == "Open MPI"
    assert found["environment"]["NCCL_ALGO"] == "Ring"


def test_nccl_reads_its_file_from_where_the_environment_says(tmp_path: Path) -> None:
    (tmp_path / "own.conf").write_text("NCCL_ALGO=Tree\n")
    assert nccl_conf({"NCCL_CONF_FILE": str(tmp_path / "own.conf")})["~/.nccl.conf"] == {"NCCL_ALGO": "Tree"}
    assert "~/.nccl.conf" not in nccl_conf({"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["run", "-n", "4", "x.toml"], ["run", "-n", "4", "x.toml"]),
        (["--token", SECRET, "x"], ["--token", NOT_RECORDED, "x"]),
        (["--token=" + SECRET, "x"], ["--token=" + NOT_RECORDED, "x"]),
        (["--no-auth", "--quiet"], ["--no-auth", "--quiet"]),
        (["-x", f"API_KEY={SECRET}"], ["-x", f"API_KEY={NOT_RECORDED}"]),
        ([f"--env=API_KEY={SECRET}"], [f"--env={NOT_RECORDED}"]),
        ([f"ssh://me:{SECRET}@host"], [NOT_RECORDED]),
        ([f"--url=ssh://me:{SECRET}@host"], [f"--url={NOT_RECORDED}"]),
        (["--url", "http://host/path"], ["--url", "http://host/path"]),
        ([], []),
    ],
)
def test_a_command_line_without_secrets(argv: list[str], expected: list[str]) -> None:
    assert redacted(argv) == expected


def test_a_launch_tells_its_versions() -> None:
    launch = collect_launch()
    assert launch["command"] == redacted(sys.argv)
    assert launch["mpi_library"] is None
    assert platform.python_version() in str(launch["python"])
    found = versions()
    assert found["collbench"] == collbench.__version__
    numpy = pytest.importorskip("numpy")
    assert found["numpy"] == numpy.__version__


def hosts_of_eight(rank: int) -> dict[str, Any]:
    return {
        **collect_rank(),
        "hostname": f"node-{rank // 8:04}.cluster.example",
        "pid": 100_000 + 7 * rank,
        "binding": f"{rank % 8}",
    }


def hosts_of_one(rank: int) -> dict[str, Any]:
    own = {"hostname": f"node-{rank:04}.cluster.example", "boot": f"{rank:012x}", "container": f"{rank:012x}"}
    return {**collect_rank(), **own, "pid": 100_000 + 7 * rank}


@pytest.mark.parametrize("rank_of", [hosts_of_eight, hosts_of_one])
def test_a_thousand_ranks_stay_small(tmp_path: Path, rank_of: Any) -> None:
    ranks = [rank_of(rank) for rank in range(1000)]
    summary = summarise(ranks)
    path = RunFolder(tmp_path).write_environment(1, {"ranks": summary})
    assert path.stat().st_size < 100_000
    assert list(summary["cpu_model"]) == ["0-999"]
    # Nothing is lost: every rank's own description can be told again.
    found = json.loads(path.read_text())["ranks"]
    for rank in (0, 7, 8, 999):
        told = {name: value_of(folded, rank) for name, folded in found.items()}
        assert told == ranks[rank]


def value_of(folded: dict[str, Any], rank: int) -> Any:
    if "each" in folded:
        return folded["each"][rank]
    return next(value for ranges, value in folded.items() if rank in numbers(ranges))


def numbers(ranges: str) -> set[int]:
    ends = [part.split("-") for part in ranges.split(",")]
    return {number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)}


def test_ranks_are_folded_by_value() -> None:
    ranks = [{"host": "a", "cores": 4}, {"host": "b", "cores": 4}, {"host": "a", "cores": 4, "odd": True}]
    assert summarise(ranks) == {"host": {"0,2": "a", "1": "b"}, "cores": {"0-2": 4}, "odd": {"0-1": None, "2": True}}
    assert summarise([{"pid": 5}, {"pid": 7}]) == {"pid": {"each": [5, 7]}}
    assert summarise([{"pid": 5}]) == {"pid": {"0": 5}}
    assert summarise([]) == {}


@pytest.mark.parametrize(
    ("given_numbers", "expected"),
    [([], ""), ([3], "3"), ([0, 1], "0-1"), ([8, 0, 1, 2, 3], "0-3,8"), ([5, 5, 7], "5,7")],
)
def test_numbers_are_written_as_ranges(given_numbers: list[int], expected: str) -> None:
    assert compact(given_numbers) == expected


@given(st.sets(st.integers(0, 300), min_size=1))
def test_ranges_lose_no_number(given_numbers: set[int]) -> None:
    assert numbers(compact(given_numbers)) == given_numbers
