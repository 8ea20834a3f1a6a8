"""Inequalities as they were evaluated, in words and with so many digits that they read true."""

from collbench.units import format_duration


def durations(added_s: float, floor_s: float) -> tuple[str, str]:
    """Write what is added and the floor so that the text shows which is larger."""
    added, floor = format_duration(added_s), format_duration(floor_s)
    for digits in range(5, 12):
        if added != floor or added_s == floor_s:
            break
        added, floor = f"{added_s * 1e6:.{digits}g} us", f"{floor_s * 1e6:.{digits}g} us"
    return f"+{added}" if added_s >= 0 else added, floor


def number(value: float) -> str:
    """A ratio."""
    return f"{value:.2f}" if 0.1 <= value < 100 else f"{value:.2g}"


def percent(value: float) -> str:
    """A ratio of times in words: percentages are of time."""
    if value >= 1:
        return f"{(value - 1) * 100:.0f} % more time"
    return f"{(1 - value) * 100:.0f} % less time, {1 / value:.2f} times the speed"


def inequality(left: float, sign: str, right: float) -> str:
    """Two ratios and what holds between them."""
    shown = apart(left, right)
    return f"{shown[0]} {sign} {shown[1]}"


def apart(left: float, right: float) -> tuple[str, str]:
    """Write two numbers with so many decimals that the text shows which is larger."""
    texts = number(left), number(right)
    for decimals in range(3, 12):
        if texts[0] != texts[1]:
            break
        texts = f"{left:.{decimals}f}", f"{right:.{decimals}f}"
    return texts
