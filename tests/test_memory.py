"""How much memory a host has, from trees of files as the kernel shows them, and what fits."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from collbench.backends.memory import HostMemory
from collbench.dtypes import DTYPES
from collbench.memory import Memory, available, page_bytes, problem, shared_memory_problem

MIB = 1 << 20
HEADROOM = 64 * MIB
ON_HOST = "available on the host"
BY_GROUP = "left by the control group's limit"


def tree(root: Path, available_mib: int, cgroup: str, files: Mapping[str, int | str]) -> Path:
    for name, text in {
        "proc/meminfo": f"MemTotal: 99999999 kB\nMemAvailable: {available_mib * 1024} kB\n",
        "proc/self/cgroup": cgroup,
        **{f"sys/fs/cgroup/{name}": f"{value}\n" for name, value in files.items()},
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_without_groups_the_host_sets_the_bound(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 1048576 kB\n")
    assert available(tmp_path) == Memory(1024 * MIB - HEADROOM, ON_HOST)


def test_a_group_of_version_2_sets_the_bound(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        4096,
        "0::/a/b\n",
        {
            "a/b/memory.max": 1000 * MIB,
            "a/b/memory.current": 300 * MIB,
            "a/b/memory.stat": f"inactive_file {100 * MIB}",
        },
    )
    assert available(root) == Memory(800 * MIB - HEADROOM, BY_GROUP)


def test_the_strictest_group_on_the_way_up_counts(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        4096,
        "0::/a/b\n",
        {
            "a/b/memory.max": "max",
            "a/b/memory.current": 10 * MIB,
            "a/memory.max": 500 * MIB,
            "a/memory.current": 200 * MIB,
        },
    )
    assert available(root) == Memory(300 * MIB - HEADROOM, BY_GROUP)


def test_in_a_container_the_group_is_at_the_top(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        4096,
        "0::/kubepods/pod1/c1\n",
        {"memory.max": 256 * MIB, "memory.current": 56 * MIB, "memory.stat": ""},
    )
    assert available(root) == Memory(200 * MIB - HEADROOM, BY_GROUP)


def test_a_group_of_version_1_sets_the_bound(tmp_path: Path) -> None:
    base = "memory/docker/x/memory"
    root = tree(
        tmp_path,
        4096,
        "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n",
        {
            f"{base}.limit_in_bytes": 600 * MIB,
            f"{base}.usage_in_bytes": 500 * MIB,
            f"{base}.stat": f"cache 7\ntotal_inactive_file {50 * MIB}",
        },
    )
    assert available(root) == Memory(150 * MIB - HEADROOM, BY_GROUP)


def test_a_group_that_is_wide_leaves_the_bound_to_the_host(tmp_path: Path) -> None:
    root = tree(tmp_path, 512, "0::/\n", {"memory.max": 9999 * MIB, "memory.current": 1})
    assert available(root) == Memory(512 * MIB - HEADROOM, ON_HOST)


def test_a_full_group_has_nothing_and_not_less(tmp_path: Path) -> None:
    root = tree(tmp_path, 512, "0::/\n", {"memory.max": 10 * MIB, "memory.current": 20 * MIB})
    assert available(root) == Memory(0, BY_GROUP)


def test_this_host_has_memory() -> None:
    assert 0 < available().available_bytes < 1 << 50


def test_ranks_of_a_host_count_together() -> None:
    host = Memory(100 * MIB, ON_HOST)
    assert problem([("a", 50 * MIB, host), ("a", 50 * MIB, host), ("b", 100 * MIB, host)]) is None
    told = problem([("a", 60 * MIB, host), ("b", 10 * MIB, host), ("a", 60 * MIB, host)])
    assert told == "memory on a: 2 ranks need 120 MiB of buffers, and 100 MiB is available on the host"


def test_of_a_host_the_rank_with_the_least_sets_the_bound() -> None:
    told = problem([("a", 60 * MIB, Memory(200 * MIB, ON_HOST)), ("a", 1 * MIB, Memory(50 * MIB, BY_GROUP))])
    assert told == "memory on a: 2 ranks need 61 MiB of buffers, and 50 MiB is left by the control group's limit"


def test_one_rank_is_one_rank() -> None:
    told = problem([("a", 2 * MIB, Memory(1 * MIB, ON_HOST))])
    assert told is not None
    assert "1 rank need" in told


@pytest.mark.parametrize(
    ("vendor", "ranks", "free_mib", "fits"),
    [
        ("Open MPI 5.0.11", 2, 15, False),
        ("Open MPI 5.0.11", 2, 17, True),
        ("Open MPI 5.0.11", 1, 0, True),
        ("MPICH 5.0.2", 2, 10, False),
        ("MPICH 5.0.2", 2, 18, False),
        ("MPICH 5.0.2", 2, 21, True),
        ("MPICH 5.0.2", 4, 41, False),
        ("MPICH 5.0.2", 4, 64, True),
        ("Another 1.0", 8, 0, True),
    ],
)
def test_a_small_dev_shm_is_told(
    vendor: str, ranks: int, free_mib: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = os.statvfs_result((4096, 4096, 1 << 20, 1 << 20, free_mib * 256, 1, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda folder: state)
    told = shared_memory_problem(vendor, ranks)
    assert (told is None) == fits
    if told is not None:
        assert told.startswith(f"/dev/shm: got {free_mib} MiB free, expected ")
        assert f"for {vendor} with {ranks} ranks" in told
        assert "--shm-size" in told


def test_without_dev_shm_nothing_is_told(tmp_path: Path) -> None:
    assert shared_memory_problem("MPICH 5.0.2", 4, str(tmp_path / "none")) is None


SMAPS = """\
10000000-10400000 rw-p 00000000 00:00 0
Size:               4096 kB
KernelPageSize:        4 kB
AnonHugePages:      2048 kB
20000000-20400000 rw-p 00000000 00:00 0
Size:               4096 kB
KernelPageSize:        4 kB
AnonHugePages:         0 kB
40000000-80000000 rw-s 00000000 00:0f 1 /dev/hugepages/x
KernelPageSize:  1048576 kB
AnonHugePages:         0 kB
VmFlags: rd wr
"""


def test_the_largest_page_behind_a_buffer(tmp_path: Path) -> None:
    sizes = tmp_path / "sys/kernel/mm/transparent_hugepage"
    sizes.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/smaps").write_text(SMAPS)
    small, huge = os.sysconf("SC_PAGE_SIZE"), 2 << 20
    (sizes / "hpage_pmd_size").write_text(f"{huge}\n")
    assert page_bytes(0x10001000, huge, tmp_path) == huge
    assert page_bytes(0x10001000, huge - 1, tmp_path) == small  # beside a mapping that has huge pages
    assert page_bytes(0x20001000, huge, tmp_path) == small
    assert page_bytes(0x40001000, huge, tmp_path) == 1 << 30
    assert page_bytes(0x90000000, huge, tmp_path) == small
    (tmp_path / "proc/self/smaps").unlink()
    assert page_bytes(0x10001000, huge, tmp_path) == small


def test_a_buffer_knows_its_pages() -> None:
    modes, small = Path("/sys/kernel/mm/transparent_hugepage/enabled"), os.sysconf("SC_PAGE_SIZE")
    memory = HostMemory(DTYPES["uint8"], 8 << 20, "huge")
    assert memory.page_bytes() == small  # not touched yet
    memory.array[:] = 1
    # A kernel that has the mode still gives none where memory is in pieces.
    expected = {small} if not modes.exists() or "[never]" in modes.read_text() else {small, 2 << 20, 32 << 20}
    assert memory.page_bytes() in expected
    memory.close()
