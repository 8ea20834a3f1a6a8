"""What perftest's bandwidth programs print, read strictly.

The table and its units are those of perftest's sources (linux-rdma/perftest: perftest_parameters.h and, in the file
beside it, `print_report_bw`): `MB/sec` of older versions and `MiB/sec` of newer ones are both 2^20 bytes, `Gb/sec` is
10^9 bits.
"""

import re
from dataclasses import dataclass

from collbench.errors import CollbenchError

_UNITS = {"MB/sec": 2.0**20, "MiB/sec": 2.0**20, "Gb/sec": 1e9 / 8}
_HEADER = re.compile(
    r"\s*#bytes\s+#iterations\s+BW peak\[([^]]+)\]\s+BW average\[([^]]+)\]\s+MsgRate\[Mpps\](\s+CPU_Util\[%+\])?\s*"
)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_VERSION = re.compile(r"Version:\s*(\S+)")


@dataclass(frozen=True)
class Report:
    """What was measured, over all of its iterations."""

    size_bytes: int
    iterations: int
    bytes_per_s: float


def parse(text: str, *, size_bytes: int, iterations: int) -> Report:
    """Read the one row of the table; CollbenchError says what is not as it must be for a test of this size."""
    lines = text.splitlines()
    headers = [number for number, line in enumerate(lines) if _HEADER.fullmatch(line)]
    if len(headers) != 1:
        raise _bad(f"{len(headers)} tables", "one with the columns #bytes #iterations BW peak BW average MsgRate")
    header = _HEADER.fullmatch(lines[headers[0]])
    assert header is not None
    peak_in, average_in, more = header.groups()
    if average_in not in _UNITS or peak_in != average_in:
        raise _bad(f"BW average in {average_in}", f"one of {', '.join(_UNITS)}")
    row = next((line for line in lines[headers[0] + 1 :] if line.strip()), "")
    cells = row.split()
    if len(cells) != (6 if more else 5) or not all(map(_NUMBER.fullmatch, cells)):
        raise _bad(f"{row.strip()!r} below the table's header", "five numbers")
    report = Report(int(float(cells[0])), int(float(cells[1])), float(cells[3]) * _UNITS[average_in])
    if (report.size_bytes, report.iterations) != (size_bytes, iterations):
        got = f"{report.iterations} iterations of {report.size_bytes} bytes"
        raise _bad(got, f"{iterations} of {size_bytes}")
    if report.bytes_per_s <= 0:
        raise _bad(f"a bandwidth of {cells[3]} {average_in}", "one above 0")
    return report


def version_in(text: str) -> str:
    """The version in what a program answers to --version; empty where there is none."""
    found = _VERSION.search(text)
    return found[1] if found else ""


def _bad(got: str, expected: str) -> CollbenchError:
    return CollbenchError(f"ib_write_bw: got {got}, expected {expected}; is this perftest's?")
