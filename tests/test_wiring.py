"""How a host is wired, from file trees and from this machine."""

from pathlib import Path

from collbench.wiring import look


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_interfaces_with_addresses_and_what_they_lie_on(tmp_path: Path) -> None:
    route = "Iface\tDestination\tGateway\nbond0\t00000000\t0100000A\nbond0\t0000000A\t00000000\n"
    write(tmp_path, proc__self__net__route=route, proc__self__net__if_inet6="0001 02 40 20 80 ib0\n")
    write(tmp_path, sys__class__net__bond0__mtu="9000\n", sys__class__net__bond0__speed="25000\n")
    write(tmp_path, sys__class__net__bond0__lower_eth0="", sys__class__net__ib0__mtu="2044\n")
    write(tmp_path, sys__class__net__ib0__speed="-1\n")
    found = look(str(tmp_path)).interfaces
    assert set(found) == {"bond0", "ib0", "lo"}
    assert found["bond0"].mtu == 9000
    assert found["bond0"].bytes_per_s == 25e9 / 8
    assert found["bond0"].below == ("eth0",)
    assert found["ib0"].bytes_per_s is None
    assert found["lo"].mtu is None


def test_nodes_that_open_rdma_devices(tmp_path: Path) -> None:
    assert look(str(tmp_path)).uverbs is False
    write(tmp_path, dev__infiniband__uverbs0="")
    assert look(str(tmp_path)).uverbs is True


def test_this_machine() -> None:
    found = look()
    assert "lo" in found.interfaces
    assert found.interfaces["lo"].shaped is None
