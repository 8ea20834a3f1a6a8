import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.units import about, format_duration, format_rate, format_size, parse_duration, parse_size, shown


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0 B", 0),
        ("8 B", 8),
        ("8B", 8),
        ("1.5 KiB", 1536),
        ("64 MiB", 67_108_864),
        ("2 GiB", 2_147_483_648),
        ("1 kB", 1000),
        ("2.5 MB", 2_500_000),
        ("2 TiB", 2**41),
        ("1 TB", 10**12),
        ("1 GB", 1_000_000_000),
        ("0.0009765625 KiB", 1),
    ],
)
def test_a_size_is_read_in_bytes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes
    assert type(parse_size(text)) is int


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            "64M",
            'got "64M", expected a size: a number and one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB; '
            'write "64 MB" or "64 MiB"',
        ),
        ("8 mib", '; write "8 MiB"'),
        ("8", '; write "8 B"'),
        ("8 bytes", '; write "8 B"'),
        ("8 parsecs", '; write e.g. "64 MiB"'),
        ("-8 B", '; write e.g. "64 MiB"'),
        ("", 'got "", expected a size'),
        (" 8 B", '; write "8 B"'),
        ("8 B\n", 'got "8 B\\n", expected'),
        ("٨ B", "expected a size"),
        ("1e3 B", "expected a size"),
        ("9" * 19 + " B", "expected a size"),
        ("0.3 KiB", 'got "0.3 KiB", expected a whole number of bytes; write e.g. "308 B"'),
        (64, 'got 64, expected a size as text with its unit; write "64 B"'),
        (True, 'got true, expected a size as text with its unit; write e.g. "64 MiB"'),
        (1.5, 'got 1.5, expected a size as text with its unit; write e.g. "64 MiB"'),
        (None, "expected a size as text"),
    ],
)
def test_a_wrong_size_is_one_sentence(wrong: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^got [^\n]+, expected [^\n]+; write [^\n]+$") as raised:
        parse_size(wrong)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (8, "8 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1100, "1100 B"),
        (1536, "1536 B"),
        (1_500_000, "1.5 MB"),
        (1_572_864, "1.5 MiB"),
        (1_310_720, "1280 KiB"),
        (67_108_864, "64 MiB"),
        (67_108_865, "67108865 B"),
        (2**50, "1024 TiB"),
        (5 * 10**12, "5 TB"),
    ],
)
def test_a_size_is_written_exactly_and_short(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@given(st.integers(0, 10**17) | st.integers(0, 2**17).map(lambda size: size * 1024))
def test_a_written_size_reads_back(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes
    assert len(format_size(size_bytes)) <= len(f"{size_bytes} B")


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (999, "999 B"),
        (1536, "1.5 KiB"),
        (1023 * 2**20, "1023 MiB"),
        (int(23.456 * 2**30), "23.5 GiB"),
        (4 * 2**40 + 2**38, "4.25 TiB"),
        (4100 * 2**40, "4100 TiB"),
    ],
)
def test_a_size_is_written_about(size_bytes: int, text: str) -> None:
    assert about(size_bytes) == text


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a size of 0 or more"):
        format_size(-1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3 s", 3.0),
        ("250 ms", 0.25),
        ("10 us", 1e-5),
        ("40 ns", 4e-8),
        ("2 min", 120.0),
        ("1 h", 3600.0),
        ("0.5 s", 0.5),
        ("0 s", 0.0),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert type(parse_duration(text)) is float


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (3, 'got 3, expected a duration as text with its unit; write "3 s"'),
        (0.5, 'got 0.5, expected a duration as text with its unit; write e.g. "3 s"'),
        ("3", 'got "3", expected a duration: a number and one of ns, us, ms, s, min, h; write "3 s"'),
        ("3 seconds", '; write "3 s"'),
        ("3 m", '; write "3 ms" or "3 min"'),
        ("3 hours", '; write "3 h"'),
        ("inf s", '; write e.g. "3 s"'),
        ("nan", '; write e.g. "3 s"'),
        ("-1 s", '; write e.g. "3 s"'),
    ],
)
def test_a_wrong_duration_is_one_sentence(wrong: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^got [^\n]+, expected [^\n]+; write [^\n]+$") as raised:
        parse_duration(wrong)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (1.234e-5, "12.3 us"),
        (1.2e-5, "12 us"),
        (9.9996e-4, "1 ms"),
        (9.994e-4, "999 us"),
        (4e-8, "40 ns"),
        (5e-10, "0.5 ns"),
        (0.1, "100 ms"),
        (1.0, "1 s"),
        (90.0, "90 s"),
        (119.4, "119 s"),
        (120.0, "2 min"),
        (3600.0, "60 min"),
        (7200.0, "2 h"),
        (86_400.0, "24 h"),
        (44_442_000.0, "12345 h"),
        (-1.234e-5, "-12.3 us"),
    ],
)
def test_a_duration_is_written_with_three_digits(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(1e-12, 1e9))
def test_a_written_duration_reads_back_within_its_digits(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.006)


@pytest.mark.parametrize(
    ("bytes_per_s", "text"),
    [
        (0.0, "0 GB/s"),
        (1.234e10, "12.3 GB/s"),
        (1e9, "1 GB/s"),
        (4.8e11, "480 GB/s"),
        (1.2345e12, "1234 GB/s"),
        (1.5e6, "0.0015 GB/s"),
        (-1e9, "-1 GB/s"),
    ],
)
def test_a_rate_is_written_in_gigabytes_a_second(bytes_per_s: float, text: str) -> None:
    assert format_rate(bytes_per_s) == text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="expected a finite duration"):
        format_duration(value)
    with pytest.raises(ValueError, match="expected a finite rate"):
        format_rate(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("mpi", '"mpi"'),
        ('a "b"', '"a \\"b\\""'),
        ("a\nb", '"a\\nb"'),
        (True, "true"),
        (0.5, "0.5"),
        ([1, "a"], '[1, "a"]'),
        ([[1]], "a list"),
        ({"a": 1}, "a table"),
        pytest.param(1 << 20_000, "a very long number", id="long"),
        ("x" * 100, '"' + "x" * 55 + " ..."),
    ],
)
def test_a_value_is_shown_as_a_file_writes_it(value: object, text: str) -> None:
    assert shown(value) == text
