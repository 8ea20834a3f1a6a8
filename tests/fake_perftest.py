"""An ib_write_bw that prints what the real one prints, and an RDMA port for it: file trees and a script on PATH."""

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

PORT = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "link_layer": "Ethernet",
    "rate": "2.5 Gb/sec (1X SDR)",
    "gids/0": "fe80:0000:0000:0000:5054:00ff:fe77:0001",
    "gid_attrs/types/0": "RoCE v2",
    "gids/1": "0000:0000:0000:0000:0000:ffff:7f00:0001",  # 127.0.0.1
    "gid_attrs/types/1": "RoCE v2",
}

# The server takes one client and ends when that has gone; the client's rate is 8 Gbit/s. FAKE_PERFTEST says what goes
# wrong: "server", "client" (each ends with words on stderr), "deaf" (the server never listens), "stuck" (the client has
# no end), "mr" (memory of a device cannot be registered).
_PROGRAM = r"""
import os, socket, sys, time
words, wrong = sys.argv[1:], os.environ.get("FAKE_PERFTEST", "")
folder = os.environ["FAKE_PERFTEST_LOG"]
with open(os.path.join(folder, f"{os.getpid()}"), "w") as log:
    log.write(" ".join(words))
if words == ["--version"]:
    print("Version: 6.06")
    raise SystemExit(1)
if words == ["--help"]:
    print("      --use_cuda=<cuda device id>" if wrong == "mr" else "  -x, --gid-index=<index>")
    raise SystemExit(1)
value = {name: words[words.index(name) + 1] for name in ("-d", "-i", "-x", "-s", "-n", "-p")}
assert "--report_gbits" in words and value["-d"] == "rxe0"
port = int(value["-p"])
is_client = words[-1] != value["-p"]
if not is_client:
    if wrong == "server":
        print(" Failed to modify QP to RTR", file=sys.stderr)
        raise SystemExit(1)
    if wrong == "deaf":
        time.sleep(600)
    with socket.create_server(("", port)) as one:
        with one.accept()[0] as peer:
            peer.recv(1)
    raise SystemExit(0)
with socket.create_connection((words[-1], port)):
    if wrong == "client":
        print(" Unable to Connect the HCA's through the link", file=sys.stderr)
        raise SystemExit(1)
    if wrong == "mr" and any(word.startswith("--use_cuda") for word in words):
        print("Couldn't allocate MR\n failed to create mr", file=sys.stderr)
        raise SystemExit(1)
    if wrong == "stuck":
        time.sleep(600)
    rule = "-" * 87
    print(rule)
    print("                    RDMA_Write BW Test")
    print(" Dual-port       : OFF\t\tDevice         : rxe0")
    print(" local address: LID 0000 QPN 0x0011 PSN 0x7a2a9 RKey 0x00047c VAddr 0x007f5d6c8ad000")
    print(rule)
    print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
    row = int(value["-s"]), int(value["-n"]), 8.5, 8, 8e9 / 8 / int(value["-s"]) / 1e6
    print(" %-7d    %-10d       %-7.2f            %-7.2f\t\t     %-7.6f" % row)
    print(rule)
"""


def write(folder: Path, wrong: str = "", port: Mapping[str, str] = PORT) -> dict[str, str | None]:
    """Make the program, the port and a folder `log` for the words of each call; return the environment."""
    binary, log = folder / "bin", folder / "log"
    binary.mkdir(parents=True)
    log.mkdir()
    program = binary / "ib_write_bw"
    program.write_text(f"#!{sys.executable}\n{_PROGRAM}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for name, text in port.items():
        file = folder / "sys/class/infiniband/rxe0/ports/1" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    # What the ranks' interpreters import first: their /sys is this one.
    (folder / "sitecustomize.py").write_text(
        "import collbench.rdma\n"
        "real = collbench.rdma.ports\n"
        f"collbench.rdma.ports = lambda root='': real({str(folder)!r})\n"
    )
    return {
        "PATH": f"{binary}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep),
        "FAKE_PERFTEST": wrong,
        "FAKE_PERFTEST_LOG": str(log),
        "NCCL_IB_HCA": None,
        "UCX_NET_DEVICES": None,
    }
