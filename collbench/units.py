"""Sizes, durations and rates as text and back; inside the program they are bytes, seconds and bytes/s.

What a user wrote wrongly is a ValueError with the text `got X, expected Y; remedy`: the caller adds where it stood.
"""

import json
import math
import re
from collections.abc import Mapping
from fractions import Fraction

SIZE_UNITS: Mapping[str, Fraction] = {
    "B": Fraction(1),
    "kB": Fraction(10**3),
    "MB": Fraction(10**6),
    "GB": Fraction(10**9),
    "TB": Fraction(10**12),
    "KiB": Fraction(2**10),
    "MiB": Fraction(2**20),
    "GiB": Fraction(2**30),
    "TiB": Fraction(2**40),
}
DURATION_UNITS: Mapping[str, Fraction] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
LINK_RATE_UNITS: Mapping[str, Fraction] = {
    "bit/s": Fraction(1, 8),
    "kbit/s": Fraction(10**3, 8),
    "Mbit/s": Fraction(10**6, 8),
    "Gbit/s": Fraction(10**9, 8),
    "Tbit/s": Fraction(10**12, 8),
}

# Eighteen digits hold every size and duration there is, and keep a mistyped number from growing without bound.
_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,18})?"
SIZE_PATTERN = rf"^({_NUMBER}) ?({'|'.join(SIZE_UNITS)})$"
DURATION_PATTERN = rf"^({_NUMBER}) ?({'|'.join(DURATION_UNITS)})$"
LINK_RATE_PATTERN = rf"^({_NUMBER}) ?({'|'.join(LINK_RATE_UNITS)})$"

# Minutes and hours begin at two of them: "90 s" reads better than "1.5 min".
_DURATION_STEPS = (("h", 3600.0, 7200.0), ("min", 60.0, 120.0), ("s", 1.0, 1.0), ("ms", 1e-3, 1e-3), ("us", 1e-6, 1e-6))


def shown(value: object, longest: int = 60) -> str:
    """Write a value as a scenario file would, on one line and cut to `longest` characters."""
    if isinstance(value, str):
        text = f'"{value}"' if value.isprintable() and not set(value) & {'"', "\\"} else json.dumps(value)
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, dict):
        return "a table"
    elif isinstance(value, list | tuple):
        if any(isinstance(item, dict | list | tuple) for item in value):
            return "a list"
        text = f"[{', '.join(shown(item) for item in value[:longest])}]"
    else:
        try:
            text = str(value)
        except ValueError:  # Python refuses to write integers of several thousand digits
            return "a very long number"
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."


def parse_size(text: object) -> int:
    """Return the bytes of a size such as "64 MiB" or "1.5 KiB"."""
    size = _parsed(text, "a size", SIZE_UNITS, SIZE_PATTERN, '"64 MiB"')
    if size.denominator != 1:
        least = f"{math.ceil(size)} B"
        raise ValueError(f'got {shown(text)}, expected a whole number of bytes; write e.g. "{least}"')
    return int(size)


def format_size(size_bytes: int) -> str:
    """Write a size exactly and as short as its units allow: 67108864 is "64 MiB", 1537 is "1537 B"."""
    if size_bytes < 0:
        raise ValueError(f"got {size_bytes} bytes, expected a size of 0 or more")
    candidates = []
    for unit, scale in SIZE_UNITS.items():
        # More than two decimals are never shorter than the next smaller unit.
        hundredths = size_bytes * 100 / scale
        if hundredths.denominator == 1:
            whole, rest = divmod(int(hundredths), 100)
            number = f"{whole}.{rest:02d}".rstrip("0") if rest else str(whole)
            candidates.append((len(number) + len(unit), "." in number, -scale, f"{number} {unit}"))
    return min(candidates)[-1]


def about(size_bytes: int) -> str:
    """Write a size in bytes with three digits, "23.5 GiB": for messages, where `format_size` would show them all."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes >= SIZE_UNITS[unit]:
            return f"{_squeezed(float(size_bytes / SIZE_UNITS[unit]))} {unit}"
    return f"{size_bytes} B"


def parse_duration(text: object) -> float:
    """Return the seconds of a duration such as "3 s", "250 ms" or "2 min"."""
    return float(_parsed(text, "a duration", DURATION_UNITS, DURATION_PATTERN, '"3 s"'))


def parse_link_rate(text: object) -> float:
    """Return the bytes per second of a link's rate such as "25 Gbit/s": bits, as links are named by."""
    return float(_parsed(text, "a link's rate", LINK_RATE_UNITS, LINK_RATE_PATTERN, '"25 Gbit/s"'))


def format_duration(seconds: float) -> str:
    """Write a duration with three significant digits in the unit that suits it: 1.234e-5 is "12.3 us"."""
    if not math.isfinite(seconds):
        raise ValueError(f"got {seconds} seconds, expected a finite duration")
    if seconds == 0:
        return "0 s"
    length = abs(seconds)
    if length < 100:  # rounded first: 999.96 us is 1 ms, not 1000 us
        length = float(f"{length:.2e}")
    unit, scale = next(((unit, scale) for unit, scale, least in _DURATION_STEPS if length >= least), ("ns", 1e-9))
    return f"{'-' if seconds < 0 else ''}{_squeezed(length / scale)} {unit}"


def format_rate(bytes_per_s: float) -> str:
    """Write a rate in GB/s (10^9 bytes a second) with three significant digits: 1.234e10 is "12.3 GB/s"."""
    if not math.isfinite(bytes_per_s):
        raise ValueError(f"got {bytes_per_s} bytes/s, expected a finite rate")
    return f"{'-' if bytes_per_s < 0 else ''}{_squeezed(abs(bytes_per_s) / 1e9)} GB/s"


def _parsed(text: object, what: str, units: Mapping[str, Fraction], pattern: str, example: str) -> Fraction:
    """Return number times unit, or raise a ValueError that proposes what was probably meant."""
    base = _base(units)
    if not isinstance(text, str):
        plain = isinstance(text, int) and not isinstance(text, bool) and 0 <= text < 10**18
        remedy = f'"{text} {base}"' if plain else f"e.g. {example}"
        raise ValueError(f"got {shown(text)}, expected {what} as text with its unit; write {remedy}")
    if parts := re.fullmatch(pattern, text):
        return Fraction(parts[1]) * units[parts[2]]
    expected = f"{what}: a number and one of {', '.join(units)}"
    raise ValueError(f"got {shown(text)}, expected {expected}; write {_meant(text, units) or f'e.g. {example}'}")


def _base(units: Mapping[str, Fraction]) -> str:
    return next((name for name, scale in units.items() if scale == 1), "Gbit/s")


def _meant(text: str, units: Mapping[str, Fraction]) -> str:
    """Return what the user probably meant, such as "64 MB" or "64 MiB" for 64M; empty where nothing is near."""
    parts = re.fullmatch(rf"\s*({_NUMBER})\s*([A-Za-z]*)\s*", text)
    if parts is None:
        return ""
    number, unit = parts[1], parts[2].casefold()
    if unit in ("", "byte", "bytes"):
        near = [_base(units)]
    else:
        near = [name for name in units if name.casefold() == unit]
        near = near or [name for name in units if name.casefold().startswith(unit)]
        near = near or [name for name in units if unit.startswith(name.casefold())][:1]
    return " or ".join(f'"{number} {name}"' for name in near)


def _squeezed(value: float) -> str:
    """Write a number of 0 or more with three significant digits, whole digits never rounded away, no trailing zeros."""
    if value == 0:
        return "0"
    if value < 1e-9:
        return f"{value:.3g}"
    decimals = max(0, 2 - math.floor(math.log10(value)))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text
