"""Counters from file trees: what is read, what a refusal or a reset means, and what moved."""

from pathlib import Path

import pytest

from collbench.counters import Counts, Reading, difference, read
from collbench.rdma import Port

DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:  100    2    0    0    0     0          0         0     100    2    0    0    0     0       0          0
  eth0: 5000   50    0    3    0     0          0         0    7000   70    0    4    0     0       0          0
"""
SNMP = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm RetransSegs\nTcp: 1 12\n"
NETSTAT = "TcpExt: SyncookiesSent TCPOFOQueue\nTcpExt: 0 34\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {"dev": DEV, "snmp": SNMP, "netstat": NETSTAT}
    for name, text in files.items():
        path = tmp_path / "proc/self/net" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def port(folder: Path, **files: str) -> Port:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return Port("mlx5_0", 1, "ACTIVE", "LinkUp", None, "Ethernet", "eth0", "mlx5_core", (), str(folder))


def test_interfaces_and_tcp(root: Path) -> None:
    found = read((), root=str(root))
    assert found.interfaces == {"lo": Counts(100, 2, {"drops": 0}), "eth0": Counts(7000, 70, {"drops": 7})}
    assert found.tcp == {"retransmissions": 12, "out_of_sequence": 34}
    assert set(read((), ["eth0", "eth9"], str(root)).interfaces) == {"eth0"}


def test_a_word_is_four_bytes(tmp_path: Path) -> None:
    hardware = port(
        tmp_path / "1",
        counters__port_xmit_data="1000",
        counters__port_xmit_packets="9",
        hw_counters__packet_seq_err="2",
        hw_counters__local_ack_timeout_err="3",
        hw_counters__out_of_sequence="4",
        hw_counters__np_cnp_sent="5",
        hw_counters__rp_cnp_handled="6",
        hw_counters__np_ecn_marked_roce_packets="7",
    )
    found = read([hardware], root=str(tmp_path)).ports["mlx5_0:1"]
    assert (found.bytes, found.packets) == (4000, 9)
    assert found.events == {"retransmissions": 5, "out_of_sequence": 4, "cnps": 11, "ecn_marked": 7}


def test_soft_roce_counts_packets_alone(tmp_path: Path) -> None:
    soft = port(
        tmp_path / "1", hw_counters__sent_pkts="17", hw_counters__lifespan="1", hw_counters__out_of_seq_request="1"
    )
    found = read([soft], root=str(tmp_path)).ports["mlx5_0:1"]
    assert (found.bytes, found.packets) == (None, 17)
    assert found.events == {"out_of_sequence": 1}


def test_what_a_driver_lacks_is_not_zero(tmp_path: Path) -> None:
    bare = port(tmp_path / "1", hw_counters__sent_pkts="N/A (no PMA)")
    found = read([bare], root=str(tmp_path)).ports["mlx5_0:1"]
    assert found == Counts(None, None, {})


def test_the_difference() -> None:
    before = Reading(10.0, {"eth0": Counts(100, 1, {"drops": 1})}, {"p:1": Counts(50, None)}, {"retransmissions": 3})
    after = Reading(
        12.5, {"eth0": Counts(400, 5, {"drops": 4, "pauses": 2})}, {"p:1": Counts(70, 2)}, {"retransmissions": 4}
    )
    found = difference(before, after)
    assert found.at_s == 2.5
    assert found.interfaces == {"eth0": Counts(300, 4, {"drops": 3})}
    assert found.ports == {"p:1": Counts(20, None, {})}
    assert found.tcp == {"retransmissions": 1}


def test_a_counter_that_was_set_back_says_nothing() -> None:
    before, after = Reading(0, {}, {"p:1": Counts(50, 5)}), Reading(1, {}, {"p:1": Counts(40, 6)})
    assert difference(before, after).ports == {"p:1": Counts(None, 1, {})}


def test_this_machine_can_be_read() -> None:
    first = read(())
    assert "lo" in first.interfaces
    assert difference(first, read(())).interfaces["lo"].bytes is not None
