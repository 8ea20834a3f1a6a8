"""What a scenario needs and is not here; and the wait for peers."""

import json
import socket
import time
from pathlib import Path

import pytest

import launching
from collbench import scenario
from collbench.doctor import needs, peers
from collbench.errors import DeadlineExceeded, UsageError
from collbench.rdma import ports
from collbench.world import World
from sysfs_trees import changed, levels, seen, tree

TEXT = 'schema = 1\n[[sweep]]\nbackends = ["{0}"]\ncollectives = ["all_reduce"]\nsizes = ["{1}"]\n{2}'
RDMA = '[expect]\ntransport = "rdma"\n'
PORT = "sys/class/infiniband/rxe0/ports/1/state"
LIMITS = "Max locked memory {} {} bytes"


def facts(root: str, backend: str = "loopback", size: str = "8 MiB", expect: str = RDMA) -> needs.Facts:
    asked = scenario.parse(TEXT.format(backend, size, expect), name="mine")
    return needs.measure(root, world=World(), scenario=asked, environ={})


@pytest.mark.parametrize(
    ("transport", "needed"),
    [("rdma", True), ("ib", True), ("gdr", True), ("net/ib", True), ("p2p+rdma", True), ("tcp", False), ("shm", False),
     ("", False)],
)  # fmt: skip
def test_words_that_need_a_port(transport: str, needed: bool) -> None:
    assert needs.needs_rdma(transport) is needed


def test_a_machine_that_has_all() -> None:
    (one,) = needs.findings(seen(facts(tree("rxe")), facts(tree("rxe"))))
    assert (one.level, one.seen) == ("ok", "what mine needs is here: backends loopback, transport rdma")


def test_a_host_without_an_active_port(tmp_path: Path) -> None:
    down = facts(changed("rxe", tmp_path, {PORT: "1: DOWN"}))
    found = needs.findings(seen(facts(tree("rxe")), down, facts(str(tmp_path))))
    assert levels(found) == ["problem (differs)"] * 2
    assert found[0].seen == 'mine expects transport = "rdma", and of rxe0 no port is active (on b)'
    assert found[1].seen == 'mine expects transport = "rdma", and no RDMA device is here (on c)'
    assert levels(needs.findings(seen(facts(str(tmp_path), expect="")))) == ["ok"]


def test_a_pod_that_has_neither_device_nor_memory_to_lock() -> None:
    found = needs.findings(seen(facts(tree("pod"))))
    assert levels(found) == ["problem", "problem"]
    assert "no file in /dev/infiniband" in found[0].seen
    assert "8 MiB of memory may be locked" in found[1].seen


def test_how_much_must_be_locked_depends_on_the_sizes(tmp_path: Path) -> None:
    root = changed("rxe", tmp_path, {"proc/self/limits": LIMITS.format(256 << 20, 256 << 20)})
    assert levels(needs.findings(seen(facts(root, size="8 MiB")))) == ["ok"]
    assert levels(needs.findings(seen(facts(root, size="1 GiB")))) == ["problem"]


@pytest.mark.skipif(launching.cuda_devices() > 0, reason="a CUDA device is visible")
def test_backends_that_cannot_run() -> None:
    (one,) = needs.findings(seen(facts(tree("rxe"), "nccl")))
    assert one.level == "problem"
    assert one.seen.startswith("mine names backend nccl, which cannot run: ")


def test_hostfiles_of_both_kinds(tmp_path: Path) -> None:
    path = tmp_path / "hostfile"
    path.write_text("# by the operator\nw-0.w.svc slots=2\nw-1.w.svc:2\n\nw-1.w.svc slots=1 # again\nfe80::1\n")
    assert peers.hosts_in(str(path)) == ["w-0.w.svc", "w-1.w.svc", "fe80::1"]
    assert peers.peers_of(None, str(path)) == peers.hosts_in(str(path))
    assert peers.peers_of("a, b,a", str(path)) == ["a", "b"]
    with pytest.raises(UsageError, match="--peers HOST,HOST"):
        peers.peers_of(None, str(tmp_path / "none"))
    with pytest.raises(UsageError, match="got 'a,,b'"):
        peers.peers_of("a,,b")


def test_peers_that_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = peers.wait(["127.0.0.1", "localhost"], server.getsockname()[1], 20)
    assert (one.level, one.seen.startswith("all 2 peers answer on port ")) == ("ok", True)


def test_a_peer_that_answers_late_is_waited_for() -> None:
    import threading

    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))  # taken, and refusing until it listens
        timer = threading.Timer(1.0, late.listen)
        timer.start()
        began = time.monotonic()
        peers.wait(["127.0.0.1"], late.getsockname()[1], 20)
        assert time.monotonic() - began > 0.9
        timer.join()


def test_who_did_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[0] == "nowhere":
            raise socket.gaierror(-2, "Name or service not known")
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", create)
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded) as failed:
        peers.wait(["nowhere", "here"], 22, 1.5)
    assert 1.4 < time.monotonic() - began < 5
    assert "nowhere (its name does not resolve)" in str(failed.value)
    assert "here (connection refused)" in str(failed.value)
    assert failed.value.exit_code == 4


def test_the_command_waits_and_fails_with_4() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        done = launching.collbench(["doctor", "--wait", "1", "--peers", "127.0.0.1", "--port", str(port)]).expect(4)
        assert "127.0.0.1 (connection refused)" in done.err
        assert done.out == ""
        taken.listen()
        done = launching.collbench(["doctor", "--wait", "20", "--peers", "127.0.0.1", "--port", str(port)])
        assert "peers: all 1 peers answer" in done.out
        assert "largest gap" not in done.out


@pytest.mark.skipif(any(port.active for port in ports()), reason="there is an active RDMA port")
def test_a_scenario_that_cannot_run_ends_with_7(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.format("mpi", "8 B", RDMA))
    done = launching.collbench(["doctor", "--seconds", "0", "--json", path]).expect(7)
    (problem,) = [one for one in json.loads(done.out)["findings"] if one["level"] == "problem"]
    assert problem["seen"] == 'mine expects transport = "rdma", and no RDMA device is here'
    launching.collbench(["doctor", "--seconds", "0", "quickstart"]).expect(0)
    done = launching.collbench(["doctor", tmp_path / "none.toml"]).expect(2)
    assert len(done.err.splitlines()) == 1
