"""perftest's tables as its versions print them, and what is none."""

import pytest

from collbench.errors import CollbenchError
from collbench.perftest_report import parse, version_in

RULE = "-" * 87
# The form of perftest 4.5 (`MB/sec`, 6.06) and of 24.04 and later (`MiB/sec`); REPORT_FMT of perftest_parameters.h.
HEADER = " #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]"
OUTPUT = f"""{RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : rxe0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 TX depth        : 128
 CQ Moderation   : 1
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 1
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
{RULE}
 local address: LID 0000 QPN 0x0011 PSN 0x7a2a9 RKey 0x00047c VAddr 0x007f5d6c8ad000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:77:00:01
 remote address: LID 0000 QPN 0x0011 PSN 0x31ab60 RKey 0x00047c VAddr 0x007fd2df5b8000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:77:00:02
{RULE}
{{header}}
{{row}}
{RULE}
"""


def output(
    unit: str = "Gb/sec", row: str = " 65536      200              390.20             389.63 \t\t     0.743160"
) -> str:
    return OUTPUT.format(header=HEADER.format(unit), row=row)


def test_gigabits_are_decimal() -> None:
    report = parse(output(), size_bytes=65536, iterations=200)
    assert (report.size_bytes, report.iterations) == (65536, 200)
    assert report.bytes_per_s == pytest.approx(389.63e9 / 8)


@pytest.mark.parametrize("unit", ["MB/sec", "MiB/sec"])
def test_megabytes_are_binary_under_either_name(unit: str) -> None:
    row = " 65536      200              21.57              21.50  \t\t     0.000344"
    assert parse(output(unit, row), size_bytes=65536, iterations=200).bytes_per_s == pytest.approx(21.5 * 2**20)


def test_a_slow_link_is_printed_with_six_digits() -> None:
    row = " 65536    200           0.081234            0.080912            0.000154"
    found = parse(output(row=row), size_bytes=65536, iterations=200)
    assert found.bytes_per_s == pytest.approx(0.080912e9 / 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "got 0 tables, expected one"),
        (output() + output(), "got 2 tables, expected one"),
        (output("Gbit/sec"), "got BW average in Gbit/sec, expected one of MB/sec, MiB/sec, Gb/sec"),
        (output(row=RULE), "expected five numbers"),
        (output(row=" 65536      200              390.20             389.63"), "expected five numbers"),
        (output(row=" 65536      200              390.20             nan 0.1"), "expected five numbers"),
        (output(row=" 65536      100              390.20             389.63 0.7"), "got 100 iterations of 65536 bytes"),
        (output(row=" 32768      200              390.20             389.63 0.7"), "got 200 iterations of 32768 bytes"),
        (output(row=" 65536      200              0.00               0.00   0.0"), "expected one above 0"),
        (
            output().replace("BW average[Gb/sec]", "BW average[MB/sec]"),
            "got BW average in MB/sec",
        ),
    ],
)
def test_anything_else_is_no_report(text: str, said: str) -> None:
    with pytest.raises(CollbenchError, match="ib_write_bw: got ") as caught:
        parse(text, size_bytes=65536, iterations=200)
    assert said in str(caught.value)


def test_the_version() -> None:
    assert version_in("Version: 6.06\n") == "6.06"
    assert version_in("unknown option") == ""
