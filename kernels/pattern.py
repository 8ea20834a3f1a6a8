"""Fill and compare host memory with the data that collbench.pattern describes.

Values are made as 64-bit words, a block at a time, in a compiled loop or two for each operation; numpy narrows them to
the element's width. All arithmetic is on uint64, where negative numbers wrap, and conditions only choose between
values: so the loops become vector instructions.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.kernels.jit import inlined, kernel

# Positions in collbench.pattern.WORDS, in its order.
(
    OPERATION,
    WIDTH,
    MANTISSA,
    SIGN,
    ORIGIN,
    KEY,
    LEFT,
    RIGHT,
    BASE,
    RANKS,
    FIRST,
    LAST,
    WINDOW,
    STEP_MASK,
    STEP_HALF,
    BASE_MASK,
    BASE_HALF,
    LIFT,
    EXPONENT_LOW,
    EXPONENT_SPAN,
    KEEP,
    FORCE,
) = range(22)
UNTOUCHED, MOVE, SUM, PROD, MIN, MAX, AVG = range(7)  # collbench.pattern.CODES

U = np.uint64
_BLOCK = 8192  # elements; the words of three blocks lie in a level 2 cache
_0, _1, _16, _27, _30, _31, _32, _40, _48, _63, _64 = (U(n) for n in (0, 1, 16, 27, 30, 31, 32, 40, 48, 63, 64))
_LOW_HALF, _ALL = U(2**32 - 1), U(2**64 - 1)
_STEP, _MIX_1, _MIX_2 = U(0x9E3779B97F4A7C15), U(0xBF58476D1CE4E5B9), U(0x94D049BB133111EB)
_TOP = U(2**63)
_F64_MANTISSA, _F64_BIAS = U(52), U(1023)

View = npt.NDArray[Any]  # a buffer's elements, seen as unsigned integers of their width
Words = npt.NDArray[np.uint64]


@inlined
def _mix(x: U) -> U:
    x = (x ^ (x >> _30)) * _MIX_1
    x = (x ^ (x >> _27)) * _MIX_2
    return x ^ (x >> _31)


@inlined
def _draw(g: U, multiplier: U) -> U:
    x = g * multiplier
    return x ^ (x >> _32)


@inlined
def _scaled(draw: U, count: U) -> U:
    """Return a number below `count` from 32 random bits; both are masked so that one short multiplication does."""
    return ((draw & _LOW_HALF) * (count & _LOW_HALF)) >> _32


@inlined
def _random(words: Words, hashes: Words, out: Words) -> None:
    multiplier, keep, force = words[LEFT], words[KEEP], words[FORCE]
    for j in range(out.size):
        out[j] = (_draw(hashes[j], multiplier) & keep) | force


@inlined
def _extreme(words: Words, hashes: Words, out: Words) -> None:
    """Work on integers that are ordered as the type is: a float's magnitude counts down where it is negative."""
    keep, force, sign = words[KEEP], words[FORCE], words[SIGN]
    everything = _ALL >> (_64 - words[WIDTH])
    turned = everything if words[MANTISSA] else sign  # what negative values are XORed with
    reverse = everything if words[OPERATION] == MAX else _0
    for rank in range(words[FIRST], words[LAST] + _1):
        multiplier = _mix(words[KEY] + rank * _STEP) | _1
        for j in range(out.size):
            bits = (_draw(hashes[j], multiplier) & keep) | force
            bits ^= (turned if bits & sign else sign) ^ reverse
            out[j] = bits if rank == words[FIRST] or bits < out[j] else out[j]
    for j in range(out.size):
        bits = out[j] ^ reverse
        out[j] = bits ^ (sign if bits & sign else turned)


@inlined
def _path(words: Words, hashes: Words, out: Words, bases: Words) -> None:
    """Write lifts and steps to `out`, and the base to `bases` where it belongs to the ranks, else 0."""
    ranks, first, last, window, lift = words[RANKS], words[FIRST], words[LAST], words[WINDOW], words[LIFT]
    left, right, base = words[LEFT], words[RIGHT], words[BASE]
    step_mask, step_half, base_mask, base_half = words[STEP_MASK], words[STEP_HALF], words[BASE_MASK], words[BASE_HALF]
    after = (last + _1) % ranks
    for j in range(out.size):
        g = hashes[j]
        h = _scaled(g, ranks)
        a = first - h + (ranks if first < h else _0)
        b = after - h + (ranks if after < h else _0)
        up = (_draw(g, left) & step_mask) - step_half
        down = (_draw(g, right) & step_mask) - step_half
        out[j] = (up if a - _1 < window - _1 else _0) - (down if b - _1 < window - _1 else _0)
        drawn = (_draw(g, base) & base_mask) - base_half
        bases[j] = drawn if h - first <= last - first else _0
    if lift != _0:
        for j in range(out.size):
            h = _scaled(hashes[j], ranks)
            a = first - h + (ranks if first < h else _0)
            b = after - h + (ranks if after < h else _0)
            out[j] += lift * (min(b, window) - min(a, window) + (window if b <= a else _0))


@inlined
def _sum(words: Words, hashes: Words, out: Words, bases: Words) -> None:
    mantissa, sign, low, span = words[MANTISSA], words[SIGN], words[EXPONENT_LOW], words[EXPONENT_SPAN]
    _path(words, hashes, out, bases)
    if mantissa == _0:
        for j in range(out.size):
            out[j] += bases[j]
        return
    for j in range(out.size):
        k = out[j] + bases[j]
        minus = _0 - (k >> _63)
        bits = np.float64((k ^ minus) - minus).view(np.uint64)
        exponent = low + _scaled(hashes[j] >> _32, span)
        bits = (bits >> (_F64_MANTISSA - mantissa)) + ((exponent - _F64_BIAS) << mantissa)
        bits |= sign & minus
        out[j] = bits if k != _0 else _0


@inlined
def _prod(words: Words, hashes: Words, out: Words, bases: Words) -> None:
    """Signs lie in the top bits of steps and bases, where adding is XOR."""
    mantissa, sign, low = words[MANTISSA], words[SIGN], words[EXPONENT_LOW]
    _path(words, hashes, out, bases)
    for j in range(out.size):
        exponent = low + out[j]
        minus = _0 - ((exponent ^ bases[j]) >> _63)
        factor = bases[j] & ~_TOP
        floating = ((exponent << mantissa) + factor) ^ (sign & minus)
        integer = (((factor | _1) << (exponent & _63)) ^ minus) - minus
        out[j] = floating if mantissa else integer


@inlined
def _mean(words: Words, hashes: Words, out: Words, bases: Words) -> None:
    ranks, first, last, lift = words[RANKS], words[FIRST], words[LAST], words[LIFT]
    left, base, base_mask, base_half = words[LEFT], words[BASE], words[BASE_MASK], words[BASE_HALF]
    mantissa, sign, low, span = words[MANTISSA], words[SIGN], words[EXPONENT_LOW], words[EXPONENT_SPAN]
    parts = ranks if last - first + _1 == ranks else _1
    for j in range(out.size):
        g = hashes[j]
        h = _scaled(g, ranks)
        after = h + _1 if h + _1 < ranks else _0
        x0 = lift + (_draw(g, base) & base_mask) - base_half
        x1 = lift + (_draw(g, left) & base_mask) - base_half
        k = (x0 if h - first <= last - first else _0) + (x1 if after - first <= last - first and ranks > _1 else _0)
        minus = _0 - ((g >> _40) & _1 if mantissa else k >> _63 if sign else _0)
        if mantissa:
            exponent = low + _scaled(g >> _32, span)
            out[j] = _rounded(np.float64(k) / np.float64(parts), exponent, mantissa) | (sign & minus if k else _0)
        else:
            out[j] = ((((k ^ minus) - minus) // parts) ^ minus) - minus


@inlined
def _rounded(value: np.float64, exponent: U, mantissa: U) -> U:
    """Return the bits of value * 2^(exponent - bias), rounded to nearest, ties to even; `value` is not negative."""
    bits = np.float64(value).view(np.uint64)
    exponent += bits >> _F64_MANTISSA
    bits = (bits & ((_1 << _F64_MANTISSA) - _1)) | (_1 << _F64_MANTISSA)
    lost = _F64_BIAS + _1 - exponent if exponent <= _F64_BIAS else _0  # of a subnormal number
    drop = min(_F64_MANTISSA - mantissa + lost, _63)
    half, odd = (_1 << drop) >> _1, (bits >> drop) & _1
    bits = (bits + half + odd - _1) >> drop if drop else bits
    bits += (exponent + lost - _F64_BIAS - _1) << mantissa
    return bits if value != 0.0 else _0


@kernel("void(uint64[::1], uint64, uint64[::1], uint64[::1], uint64[::1])")
def _values(words: Words, index: U, hashes: Words, bases: Words, out: Words) -> None:
    x = words[ORIGIN] + index * _STEP
    for j in range(out.size):
        hashes[j] = _mix(x)
        x += _STEP
    operation = words[OPERATION]
    if operation == SUM:
        _sum(words, hashes, out, bases)
    elif operation == PROD:
        _prod(words, hashes, out, bases)
    elif operation in (MIN, MAX):
        _extreme(words, hashes, out)
    elif operation == AVG:
        _mean(words, hashes, out, bases)
    else:
        _random(words, hashes, out)


def _blocks(view: View, words: Sequence[int], index: int) -> Iterator[tuple[int, View, Words]]:
    """Give each block of the view: its start, its elements and the values that belong there."""
    if 8 * view.itemsize != words[WIDTH]:
        raise ValueError(f"pattern: view: got {8 * view.itemsize} bits an element, expected {words[WIDTH]}")
    packed = np.array(words, np.uint64)
    hashes, bases, values = np.empty((3, min(view.size, _BLOCK)), np.uint64)
    for start in range(0, view.size, _BLOCK):
        part = view[start : start + _BLOCK]
        _values(packed, U(index + start), hashes, bases, values[: part.size])
        yield start, part, values[: part.size]


def fill(view: View, words: Sequence[int], index: int, inverted: bool = False) -> None:
    """Write the values of the elements from `index` on, or their complements.

    `view` is the buffer as unsigned integers of the element's width, `words` what Pattern.words gives.
    """
    for _, part, values in _blocks(view, words, index):
        part[:] = ~values if inverted else values


def compare(view: View, words: Sequence[int], index: int, tolerance: int = 0) -> tuple[int, int]:
    """Return how many elements differ from the values from `index` on, and the first of them in the view or -1.

    `tolerance` is in units in the last place: the distance of the bits, read as unsigned integers.
    """
    count, first = 0, -1
    for start, part, values in _blocks(view, words, index):
        expected = values.astype(view.dtype)
        if tolerance:
            wrong = np.where(part > expected, part - expected, expected - part) > tolerance
        else:
            wrong = part != expected
        found = int(np.count_nonzero(wrong))
        if found and first < 0:
            first = start + int(wrong.argmax())
        count += found
    return count, first
