"""What a row says where its transport is not the expected one."""

from dataclasses import dataclass

import pytest

from collbench.verdicts import UNEXPECTED, UNTOLD, expectation


@dataclass
class Group:
    hosts: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.hosts)


@pytest.mark.parametrize(
    ("wanted", "found", "hosts", "path", "words"),
    [
        ("rdma", "tcp:eth0", "ab", {"no_rdma": "mlx5_0 on a is down"}, "got tcp:eth0, expected rdma; mlx5_0 on a is"),
        ("rdma", "shm", "aa", {"no_rdma": "mlx5_0 on a was not used"}, "all its ranks are on a: expect this of topo"),
        ("tcp:eth0", "shm", "aa", {}, "all its ranks are on a: expect this of topologies that join hosts"),
        ("p2p", "shm", "aa", {}, "got shm, expected p2p"),
        ("p2p", "", "aa", {"unread": "NCCL_DEBUG is 'WARN'"}, "none that is known, expected p2p; NCCL_DEBUG is 'WARN'"),
        ("p2p", "shm", "aa", {"unread": "NCCL_DEBUG is 'WARN'"}, "got shm, expected p2p"),
    ],
)  # fmt: skip
def test_the_reason_says_where_to_look(wanted: str, found: str, hosts: str, path: dict[str, str], words: str) -> None:
    told = expectation(wanted, Group(tuple(hosts)), {"transport": found, "notes": "noisy"}, path)  # type: ignore[arg-type]
    assert words in told["reason"]
    assert told["notes"] == f"noisy {UNEXPECTED}"
    assert told["reason"].count("all its ranks") == (hosts == "aa" and wanted != "p2p")


def test_what_is_as_expected_says_nothing() -> None:
    assert expectation("rdma", Group(("a", "b")), {"transport": "rdma:mlx5_0"}, {}) == {}  # type: ignore[arg-type]
    assert expectation(None, Group(("a", "b")), {"transport": "tcp:eth0"}, {}) == {}  # type: ignore[arg-type]


def test_a_group_of_one_moves_nothing() -> None:
    assert expectation("rdma", Group(("a",)), {}, {}) == {"notes": UNTOLD}  # type: ignore[arg-type]


def test_what_goes_on_within_a_device_has_no_transport() -> None:
    assert expectation("p2p", Group(("a", "a")), {"notes": "noisy"}, {"local": True}) == {}  # type: ignore[arg-type]
