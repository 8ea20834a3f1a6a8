"""What the doctor makes of a rank's surroundings: memory, cores, containers, the hypervisor."""

from dataclasses import replace
from pathlib import Path

import pytest

from collbench.doctor import containers, hypervisor, system
from collbench.doctor.finding import Seen
from sysfs_trees import changed, holding, levels, seen, tree

FINE = system.Facts(
    shm_bytes=8 << 30, shm_free_bytes=8 << 30, memlock=None, memlock_known=True, uid=0, memory_bytes=8 << 30,
    memory_bound="available on the host", cores="0-3", nodes=((0, "0-3"),),
)  # fmt: skip
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


def test_this_machine_can_be_looked_at() -> None:
    facts = system.measure()
    assert facts.cores
    assert facts.memlock_known
    assert facts.memory_bytes
    assert set(levels(system.findings(seen(facts)))) <= {"ok", "note", "warning"}


def test_an_empty_tree_raises_nothing(tmp_path: Path) -> None:
    facts = system.measure(str(tmp_path))
    assert (facts.memlock_known, facts.cores, facts.memory_bytes) == (False, "", None)
    assert holding(system.findings(seen(facts)), "/dev/shm is not there").level == "warning"


def test_a_healthy_host_is_ok() -> None:
    assert set(levels(system.findings(seen(FINE, FINE)))) == {"ok"}


def test_a_pod_as_it_was_written() -> None:
    facts = system.measure(tree("pod"))
    assert (facts.shm_bytes, facts.memlock, facts.may_lock, facts.uid) == (64 << 20, 8 << 20, False, 1000)
    assert (facts.cpu_quota, facts.cores, facts.nodes) == (4.0, "0-15", ((0, "0-7"), (1, "8-15")))
    found = system.findings(seen(facts))
    assert "64 MiB" in holding(found, "/dev/shm").seen
    assert "room for 6 of NCCL's segments" in holding(found, "/dev/shm").seen
    assert "emptyDir" in holding(found, "/dev/shm").remedy
    assert holding(found, "at most 8 MiB of memory may be locked").level == "warning"
    assert holding(found, "may run on several NUMA nodes").level == "note"


def test_shared_memory_that_is_full() -> None:
    full = replace(FINE, shm_free_bytes=3 * system.NCCL_SEGMENT_BYTES)
    ranks = [Seen(rank, "a", full) for rank in range(2)]
    assert holding(system.findings(ranks), "room for 3 of").level == "warning"
    assert set(levels(system.findings(ranks[:1]))) == {"ok"}


@pytest.mark.parametrize(
    ("change", "warned"),
    [
        ({"memlock": 8 << 20, "rdma": True}, True),
        ({"memlock": 8 << 20, "rdma": False}, False),  # nobody pins memory
        ({"memlock": 8 << 20, "rdma": True, "may_lock": True}, False),
        ({"memlock": None, "rdma": True}, False),
        ({"memlock": 64 << 30, "rdma": True}, False),
        ({"memlock_known": False, "rdma": True}, False),
    ],
)
def test_locked_memory(change: dict[str, int | None], warned: bool) -> None:
    found = system.findings(seen(replace(FINE, **change)))  # type: ignore[arg-type]
    assert ("warning" in levels(found)) == warned


def test_a_quota_below_the_number_of_ranks() -> None:
    ranks = [Seen(rank, "a", replace(FINE, cpu_quota=1.5)) for rank in range(2)]
    one = holding(system.findings(ranks), "1.5 cores' time, and 2 ranks run on 4 cores")
    assert (one.level, "spin" in one.why) == ("warning", True)
    assert holding(system.findings(ranks[:1]), "1.5 cores' time").level == "ok"


def test_the_host_that_differs_is_named() -> None:
    found = system.findings(seen(FINE, replace(FINE, memlock=8 << 20, shm_bytes=64 << 20, memory_bytes=1 << 30)))
    assert holding(found, "the limit of locked memory differs").seen.endswith("unlimited on a; 8 MiB on b")
    assert holding(found, "/dev/shm differs").differs
    assert "b has the least" in holding(found, "memory: 1 GiB").seen


def test_capabilities_of_a_user_namespace_do_not_count(tmp_path: Path) -> None:
    everything = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff"
    root = changed("", tmp_path, {"proc/self/status": everything, "proc/self/uid_map": "0 0 4294967295"})
    assert system.measure(root).may_lock
    root = changed("", tmp_path, {"proc/self/status": everything, "proc/self/uid_map": "0 1000 1"})
    assert not system.measure(root).may_lock


def test_quotas_of_version_1_and_of_groups_above(tmp_path: Path) -> None:
    files: dict[str, str | bytes | None] = {
        "proc/self/cgroup": "4:cpu,cpuacct:/job",
        "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "250000",
        "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
    }
    assert system.measure(changed("", tmp_path, files)).cpu_quota == 2.5
    files = {"proc/self/cgroup": "0::/x", "sys/fs/cgroup/x/cpu.max": "max 100000"}
    assert system.measure(changed("", tmp_path, files)).cpu_quota is None


@pytest.mark.parametrize(
    ("files", "environment", "kind"),
    [
        ({}, {}, ""),
        ({}, POD, "Kubernetes pod"),
        ({"proc/self/cgroup": "0::/kubepods.slice/x"}, {}, "Kubernetes pod"),
        ({"proc/self/cgroup": "4:memory:/docker/0123"}, {}, "Docker"),
        ({".dockerenv": ""}, {}, "Docker"),
        ({"run/.containerenv": ""}, {}, "Podman"),
        ({"proc/self/mounts": "overlay / overlay lowerdir=/var/lib/containerd 0 0"}, {}, "containerd"),
        ({}, {"container": "lxc"}, "lxc"),
    ],
)
def test_kinds_of_containers(
    tmp_path: Path, files: dict[str, str | bytes | None], environment: dict[str, str], kind: str
) -> None:
    facts = containers.measure(changed("", tmp_path, files), environment)
    assert facts.kind == kind
    assert levels(containers.findings(seen(facts))) == ["note" if kind else "ok"]


def test_a_pod_that_may_not_lock_memory(tmp_path: Path) -> None:
    one = holding(containers.findings(seen(containers.measure(tree("pod"), POD))), "run as user 1000")
    assert (one.level, one.source) == ("warning", "nvidia-container-toolkit#2037")
    root = changed("pod", tmp_path, {"proc/self/limits": "Max locked memory unlimited unlimited bytes"})
    assert levels(containers.findings(seen(containers.measure(root, POD)))) == ["note"]


def test_a_pod_beside_a_bare_host_is_a_difference(tmp_path: Path) -> None:
    found = containers.findings(seen(containers.measure(str(tmp_path), {}), containers.measure(str(tmp_path), POD)))
    assert holding(found, "where the ranks are differs").seen.endswith("no container on a; Kubernetes pod on b")


@pytest.mark.parametrize(
    ("name", "level", "words"),
    [
        ("mlx5", "ok", "no virtual machine (Dell Inc. PowerEdge XE9680)"),
        ("pvrdma", "note", "a virtual machine of VMware (VMware, Inc. VMware20,1)"),
        ("rxe", "ok", "whether this is a virtual machine is not readable here"),
    ],
)
def test_machines(name: str, level: str, words: str) -> None:
    (one,) = hypervisor.findings(seen(hypervisor.measure(tree(name))))
    assert (one.level, one.seen) == (level, words)


@pytest.mark.parametrize(("product", "virtual"), [("m5.metal", False), ("p5.48xlarge", True)])
def test_a_cloud_has_bare_machines_too(tmp_path: Path, product: str, virtual: bool) -> None:
    files: dict[str, str | bytes | None] = {
        "sys/class/dmi/id/sys_vendor": "Amazon EC2",
        "sys/class/dmi/id/product_name": product,
    }
    assert hypervisor.measure(changed("mlx5", tmp_path, files)).virtual is virtual


def test_a_virtual_machine_beside_a_bare_one_is_a_difference() -> None:
    (one,) = hypervisor.findings(seen(hypervisor.measure(tree("mlx5")), hypervisor.measure(tree("pvrdma"))))
    assert (one.level, one.differs) == ("warning", True)
