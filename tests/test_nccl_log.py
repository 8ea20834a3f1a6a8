"""NCCL's log, as its versions write it: tests/data/nccl has lines made by their formats."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.nccl_log import (
    Choice,
    Log,
    Setup,
    choice_of,
    merge,
    path_of,
    read_choices,
    read_setup,
    settings,
    sizes_of,
    unread,
)  # fmt: skip

DATA = Path(__file__).parent / "data" / "nccl"
VERSIONS = sorted(path.stem for path in DATA.glob("*.log"))


def log_of(version: str) -> str:
    return (DATA / f"{version}.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("version", "transport", "channels"),
    [
        ("2.18", "p2p+shm", 2),
        ("2.21", "nvls+p2p+collnet/gdr+net/ib/gdr+net/ib", 16),
        ("2.23", "net/socket", 2),
        ("2.26", "p2p+net/ib/gdr", 4),
        ("2.27", "nvls+p2p", 24),
        ("2.28", "p2p+net/libfabric/gdr", 8),
        ("2.30", "shm", 2),
    ],
)
def test_the_set_up_of_every_version(version: str, transport: str, channels: int) -> None:
    setup = read_setup(log_of(version))
    assert setup.version.startswith(f"{version}.")
    assert setup.transport() == transport
    assert setup.channels == channels


def test_every_sample_has_a_row_above() -> None:
    assert VERSIONS == ["2.18", "2.21", "2.23", "2.26", "2.27", "2.28", "2.30"]


def test_the_words_that_distinguish_transports_are_kept() -> None:
    assert read_setup(log_of("2.18")).details == ("P2P/IPC", "SHM/direct/direct")
    assert read_setup(log_of("2.21")).details == (
        "NET/IB/GDRDMA", "NET/IB", "P2P/CUMEM/read", "COLLNET/SHARP/GDRDMA",
    )  # fmt: skip
    assert read_setup(log_of("2.26")).details == ("P2P/direct pointer", "NET/IB/GDRDMA(PCI)")
    assert read_setup(log_of("2.27")).details == ("P2P/MNNVL/read",)
    assert read_setup(log_of("2.28")).details == ("NET/Libfabric/GDRDMA", "P2P/CUMEM/CE")


def test_indirect_p2p_is_p2p_and_loses_its_numbers() -> None:
    setup = read_setup("a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 5[5] via P2P/indirect/4[4]/read")
    assert (setup.transports, setup.details) == (("p2p",), ("P2P/indirect/read",))


def test_gdr_is_on_only_where_every_connection_has_it() -> None:
    assert read_setup(log_of("2.26")).gdr is True
    assert read_setup(log_of("2.21")).gdr is False
    assert read_setup(log_of("2.23")).gdr is False
    assert read_setup(log_of("2.18")).gdr is None  # nothing went over a network


def test_interfaces_have_ports_and_no_addresses() -> None:
    assert read_setup(log_of("2.21")).interfaces == ("mlx5_0:1", "mlx5_1:1", "mlx5_2:1")
    assert read_setup(log_of("2.23")).interfaces == ("eth0", "eth1")
    assert read_setup(log_of("2.30")).interfaces == ("mlx5_0:1:2:3", "mlx5_1:1::3")
    for version in VERSIONS:
        assert "192.0.2" not in repr(read_setup(log_of(version)))


def test_networks_and_plugins() -> None:
    assert [read_setup(log_of(version)).network for version in ("2.18", "2.27", "2.28")] == [
        "Socket",
        "IB",
        "Libfabric",
    ]
    assert read_setup(log_of("2.28")).plugin == "Libfabric (v11)"
    assert read_setup(log_of("2.27")).plugin == ""
    assert read_setup(log_of("2.21")).gdr_devices == ("mlx5_0",)


def test_libfabric_over_tcp_is_not_rdma() -> None:
    text = log_of("2.28").replace("provider is efa", "provider is tcp;ofi_rxm").replace("/GDRDMA", "")
    assert read_setup(text).transport() == "p2p+net/libfabric/tcp"


@pytest.mark.parametrize(
    ("name", "transport"), [("IBext_v8", "net/ib"), ("AWS Libfabric", "net/libfabric"), ("gIB", "net/gib")]
)
def test_plugins_under_their_own_names(name: str, transport: str) -> None:
    line = f"[1,0]<stdout>:a:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/{name}/3(9)"
    assert read_setup(line).transport() == transport
    assert read_setup(f"{line}/GDRDMA/Shared comm 0x9bbf nRanks 8").transport() == f"{transport}/gdr"


def test_multicast_counts_where_it_was_set_up_and_not_where_it_could_be() -> None:
    assert read_setup(log_of("2.21")).nvls is True
    assert read_setup(log_of("2.18")).nvls is False
    text = "\n".join(line for line in log_of("2.27").splitlines() if "headRank" not in line)
    assert (read_setup(text).nvls, read_setup(text).transport()) == (True, "p2p")


def test_the_communicator_and_the_settings() -> None:
    setup = read_setup(log_of("2.27"))
    assert (setup.ranks, setup.nodes, setup.mnnvl) == (8, 2, True)
    assert (setup.channels, setup.nvls_channels, setup.p2p_channels) == (24, 24, 32)
    assert read_setup(log_of("2.18")).ranks == 4
    assert dict(read_setup(log_of("2.18")).environment) == {
        "NCCL_MAX_NCHANNELS": "2",
        "NCCL_SOCKET_IFNAME": "eno1",
    }
    assert dict(read_setup(log_of("2.21")).environment) == {"NCCL_IB_HCA": "mlx5"}


def test_a_known_choice_spares_what_the_switches_would_do() -> None:
    setup = read_setup(log_of("2.21"))
    assert setup.transport(Choice("all_reduce", 8, "Ring", "LL")) == "p2p+net/ib/gdr+net/ib"
    assert setup.transport(Choice("all_reduce", 8, "NVLSTree", "Simple")) == "nvls+p2p+net/ib/gdr+net/ib"
    assert setup.transport(Choice("all_reduce", 8, "CollNetChain", "Simple")) == "p2p+collnet/gdr+net/ib/gdr+net/ib"
    assert setup.transport(Choice("all_gather", 8, "Symmetric", "AllGather_STMC")).startswith("nvls+")
    assert setup.transport(Choice("all_gather", 8, "Symmetric", "AllGather_ST")).startswith("p2p+")


def test_a_group_uses_what_any_of_its_ranks_uses() -> None:
    one, other = read_setup(log_of("2.26")), read_setup(log_of("2.18"))
    both = merge([one, other, Setup()])
    assert both.transport() == "p2p+shm+net/ib/gdr"
    assert both.channels == 4
    assert (both.gdr, both.nvls, both.mnnvl) == (True, False, None)
    assert both.network == "IB+Socket"
    assert both.details == (*one.details, *other.details)
    assert merge([one, read_setup(log_of("2.23"))]).gdr is False
    assert merge([one, one]) == one
    assert merge([]) == Setup()


@pytest.mark.parametrize(
    ("version", "choices"),
    [
        ("2.18", []),
        (
            "2.21",
            [
                Choice("", 8, "Tree", "LL"),
                Choice("", 1048576, "Ring", "LL128"),
                Choice("", 268435456, "NVLS", "Simple"),
            ],
        ),
        ("2.23", [Choice("all_reduce", 4096, "Tree", "LL"), Choice("all_gather", 65536, "PAT", "Simple")]),
        (
            "2.26",
            [
                Choice("all_reduce", 4096, "Tree", "LL", 4),
                Choice("broadcast", 1048576, "Ring", "Simple", 2),
                Choice("all_gather", 262144, "Ring", "LL128", 1),
            ],
        ),
        (
            "2.27",
            [
                Choice("all_reduce", 8192, "Symmetric", "AllReduce_AGxLL_R", 8),
                Choice("all_reduce", 67108864, "NVLS", "Simple", 24),
            ],
        ),
        ("2.28", [Choice("all_reduce", 1 << 30, "Symmetric", "AllReduce_RSxLDMC_AGxSTMC", 16)]),
        ("2.30", [Choice("all_to_all", 1048576, "CopyEngine"), Choice("all_gather", 524288, "HierarchicalCE")]),
    ],
)
def test_the_choices_of_every_version(version: str, choices: list[Choice]) -> None:
    assert read_choices(log_of(version)) == choices


def test_a_choice_is_found_by_collective_and_size() -> None:
    choices = read_choices(log_of("2.26"))
    assert choice_of(choices, "all_reduce", 4096, 8) == Choice("all_reduce", 4096, "Tree", "LL", 4)
    assert choice_of(choices, "all_gather", 2 * 262144, 2) == Choice("all_gather", 262144, "Ring", "LL128", 1)
    assert choice_of(choices, "all_gather", 4096, 2) is None
    assert choice_of(read_choices(log_of("2.21")), "broadcast", 8, 16) == Choice("", 8, "Tree", "LL")
    assert sizes_of("reduce", 64, 4) == (64,)
    assert sizes_of("reduce_scatter", 64, 4) == (64, 16)
    again = [*choices, Choice("all_reduce", 4096, "Ring", "LL", 2)]
    assert choice_of(again, "all_reduce", 4096, 8) == again[-1]  # the last one ran


def test_the_emulators_lines_say_the_version_and_are_passed_over() -> None:
    text = (
        "vm:7:7 [0] NCCL VERSION (emulated) NCCL version 2.32.3, emulated on the CPU: no GPU, no NVLink, no network\n"
        "vm:7:7 [1] NCCL INFO (emulated) AllReduce count 4 type 7 on comm 0x1\n"
    )
    assert read_setup(text) == Setup(version="2.32.3")
    assert read_choices(text) == []


def test_versions_that_print_theirs_without_a_prefix() -> None:
    assert read_setup("NCCL version 2.19.3+cuda12.3\n").version == "2.19.3+cuda12.3"


lines = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.tuples(
            st.sampled_from([line for version in VERSIONS for line in log_of(version).splitlines()]),
            st.integers(0, 200),
            st.text(max_size=8),
        ).map(lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] :]),
    ),
    max_size=30,
).map("\n".join)


@given(lines)
def test_no_text_breaks_a_run(text: str) -> None:
    setup = read_setup(text)
    assert isinstance(merge([setup, setup]).transport(), str)
    for choice in read_choices(text):
        setup.transport(choice)


@given(st.binary(max_size=300))
def test_no_bytes_break_a_run(content: bytes) -> None:
    text = content.decode(errors="replace")
    prefix = "a:1:2 [0] NCCL INFO "
    read_setup(prefix + text)
    read_choices(f"{prefix}AllReduce: {text} Bytes -> Algo {text} proto {text} channel{{Lo..Hi}}={{{text}..{text}}}")


def test_numbers_of_any_length_are_read() -> None:
    digits = "9" * 5000
    text = f"a:1:2 [0] NCCL INFO {digits} coll channels, {digits} nvls channels, {digits} p2p channels, 1 p2p"
    assert read_setup(text).channels == 2**63 - 1


def test_the_settings_are_ours_where_the_user_has_none(tmp_path: Path) -> None:
    ours = settings(tmp_path / "100%", {})
    assert ours["NCCL_DEBUG"] == "INFO"
    assert ours["NCCL_DEBUG_SUBSYS"] == "INIT,ENV,GRAPH,NET"
    assert ours["NCCL_DEBUG_FILE"] == f"{tmp_path}/100%%/nccl-%h-%p.log"
    assert settings(tmp_path, {}, tuning=True)["NCCL_DEBUG_SUBSYS"] == "INIT,ENV,GRAPH,NET,TUNING"
    assert settings(tmp_path, {"NCCL_DEBUG": "WARN"}) == {}
    assert "NCCL_DEBUG_FILE" not in settings(tmp_path, {"NCCL_DEBUG_FILE": "/elsewhere/%p"})


def test_the_path_is_where_nccl_writes(tmp_path: Path) -> None:
    environ = settings(tmp_path / "100%", {})
    assert path_of(environ, "alpha.example.org", 17) == tmp_path / "100%" / "nccl-alpha-17.log"
    users = {"NCCL_DEBUG": "info", "NCCL_DEBUG_FILE": "/x/%h.%p.%q"}
    assert path_of(users, "a/b", 17) == Path("/x/a-b.17.%q")
    assert path_of({}, "alpha", 17) is None
    assert path_of(users | {"NCCL_DEBUG": "WARN"}, "alpha", 17) is None
    assert path_of({"NCCL_DEBUG": "INFO"}, "alpha", 17) is None


def test_a_log_is_read_from_its_mark(tmp_path: Path) -> None:
    log = Log.of_this_process(settings(tmp_path, {}), os.getpid())
    assert log.path == tmp_path / f"nccl-{socket.gethostname().partition('.')[0]}-{os.getpid()}.log"
    log.mark()
    assert log.text() == ""  # not there yet
    log.path.write_text("one\n")
    assert log.text() == "one\n"
    log.mark()
    assert log.text() == ""
    with log.path.open("a") as file:
        file.write("two\n")
    assert log.text() == "two\n"
    none = Log(None)
    none.mark()
    assert none.text() == ""


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, ""),
        (settings(Path("/logs"), {}), ""),
        ({"NCCL_DEBUG": "info", "NCCL_DEBUG_FILE": "/tmp/%p"}, ""),
        ({"NCCL_DEBUG": "VERSION"}, "NCCL_DEBUG is 'VERSION' not INFO"),
        ({"NCCL_DEBUG": "INFO"}, "NCCL_DEBUG is 'INFO' without NCCL_DEBUG_FILE"),
    ],
)
def test_what_keeps_the_log_from_being_read(environ: dict[str, str], said: str) -> None:
    assert unread(environ).partition(",")[0] == said
