"""Fill and compare host memory with the data that collbench.pattern describes.

Values are made as 64-bit words, a block at a time, by one loop for each operation; what follows is the same for all of
them and only narrows the words to the element's width. All arithmetic is on uint64, where negative numbers wrap.
"""

from collections.abc import Sequence
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
_BLOCK = 1024  # elements; two blocks of words lie in the level 1 cache
_0, _1, _16, _27, _30, _31, _32, _40, _48, _63, _64 = (U(n) for n in (0, 1, 16, 27, 30, 31, 32, 40, 48, 63, 64))
_LOW_HALF, _ALL = U(2**32 - 1), U(2**64 - 1)
_STEP, _MIX_1, _MIX_2 = U(0x9E3779B97F4A7C15), U(0xBF58476D1CE4E5B9), U(0x94D049BB133111EB)
_F64_MANTISSA, _F64_BIAS = U(52), U(1023)

# A buffer of elements, seen as unsigned integers of their width.
View = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
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
def _turn(g: U, ranks: U) -> U:
    """Return h, the rank that has w = 0."""
    return ((g & _LOW_HALF) * ranks) >> _32


@inlined
def _place(rank: U, h: U, ranks: U) -> U:
    """Return w."""
    return rank - h + (ranks if rank < h else _0)


@inlined
def _float(k: U, exponent: U, mantissa: U, sign: U) -> U:
    """Return the bits of k * 2^(exponent - bias), where k fits the significant bits; zero is positive."""
    negative = k >> _63
    bits = np.float64((k ^ (_0 - negative)) + negative).view(np.uint64)
    bits = (bits >> (_F64_MANTISSA - mantissa)) + ((exponent - _F64_BIAS) << mantissa)
    return _0 if k == _0 else bits | (sign if negative else _0)


@inlined
def _random(words: Words, out: Words) -> None:
    multiplier, keep, force = words[LEFT], words[KEEP], words[FORCE]
    for j in range(out.size):
        out[j] = (_draw(out[j], multiplier) & keep) | force


@inlined
def _sum(words: Words, out: Words) -> None:
    ranks, first, last, window, lift = words[RANKS], words[FIRST], words[LAST], words[WINDOW], words[LIFT]
    left, right, base = words[LEFT], words[RIGHT], words[BASE]
    step_mask, step_half, base_mask, base_half = words[STEP_MASK], words[STEP_HALF], words[BASE_MASK], words[BASE_HALF]
    mantissa, sign, low, span = words[MANTISSA], words[SIGN], words[EXPONENT_LOW], words[EXPONENT_SPAN]
    after = last + _1 if last + _1 < ranks else _0
    for j in range(out.size):
        g = out[j]
        h = _turn(g, ranks)
        a = _place(first, h, ranks)
        b = _place(after, h, ranks)
        k = lift * (min(b, window) - min(a, window) + (window if b <= a else _0))
        k += (_draw(g, left) & step_mask) - step_half if a - _1 < window - _1 else _0
        k -= (_draw(g, right) & step_mask) - step_half if b - _1 < window - _1 else _0
        k += (_draw(g, base) & base_mask) - base_half if (first <= h) & (h <= last) else _0
        out[j] = _float(k, low + (((g >> _48) * span) >> _16), mantissa, sign) if mantissa else k


@inlined
def _prod(words: Words, out: Words) -> None:
    ranks, first, last, window, lift = words[RANKS], words[FIRST], words[LAST], words[WINDOW], words[LIFT]
    left, right, base, base_mask = words[LEFT], words[RIGHT], words[BASE], words[BASE_MASK]
    mantissa, sign, low = words[MANTISSA], words[SIGN], words[EXPONENT_LOW]
    after = last + _1 if last + _1 < ranks else _0
    for j in range(out.size):
        g = out[j]
        h = _turn(g, ranks)
        a = _place(first, h, ranks)
        b = _place(after, h, ranks)
        at_left = _draw(g, left) if a else _0
        at_right = _draw(g, right) if b else _0
        at_base = _draw(g, base) if (first <= h) & (h <= last) else _0
        exponent = lift * (min(b, window) - min(a, window) + (window if b <= a else _0))
        exponent += (at_left & _1) if a < window else _0
        exponent -= (at_right & _1) if b < window else _0
        negative = (at_left ^ at_right ^ at_base) >> _63
        factor = at_base & base_mask
        if mantissa:
            out[j] = (((low + exponent) << mantissa) | factor) ^ (sign if negative else _0)
        else:
            k = (factor | _1) << exponent
            out[j] = _0 - k if negative and sign else k


@inlined
def _extreme(words: Words, out: Words, best: Words) -> None:
    """Compare as integers that are ordered as the type is: a float's magnitude counts down where it is negative."""
    keep, force, sign = words[KEEP], words[FORCE], words[SIGN]
    everything = _ALL >> (_64 - words[WIDTH])
    turned = everything if words[MANTISSA] else sign  # what negative values are XORed with
    reverse = everything if words[OPERATION] == MAX else _0
    best[:] = _ALL
    for rank in range(words[FIRST], words[LAST] + _1):
        multiplier = _mix(words[KEY] + U(rank) * _STEP) | _1
        for j in range(out.size):
            bits = (_draw(out[j], multiplier) & keep) | force
            bits ^= (turned if bits & sign else sign) ^ reverse
            best[j] = min(best[j], bits)
    for j in range(out.size):
        bits = best[j] ^ reverse
        out[j] = bits ^ (sign if bits & sign or not words[MANTISSA] else everything)


@inlined
def _mean(words: Words, out: Words) -> None:
    ranks, first, last, window, lift = words[RANKS], words[FIRST], words[LAST], words[WINDOW], words[LIFT]
    left, base, base_mask, base_half = words[LEFT], words[BASE], words[BASE_MASK], words[BASE_HALF]
    mantissa, sign, low, span = words[MANTISSA], words[SIGN], words[EXPONENT_LOW], words[EXPONENT_SPAN]
    parts = ranks if last - first + _1 == ranks else _1
    for j in range(out.size):
        g = out[j]
        h = _turn(g, ranks)
        k = lift + (_draw(g, base) & base_mask) - base_half if (first <= h) & (h <= last) else _0
        h = h + _1 if h + _1 < ranks else _0
        k += lift + (_draw(g, left) & base_mask) - base_half if (first <= h) & (h <= last) & (window > _1) else _0
        negative = (g >> _40) & _1
        if mantissa:
            exponent = low + (((g >> _48) * span) >> _16)
            bits = _rounded(np.float64(k) / np.float64(parts), exponent, mantissa)
            out[j] = bits | (sign if negative and k else _0)
        elif sign:
            negative = k >> _63
            k = ((k ^ (_0 - negative)) + negative) // parts
            out[j] = (k ^ (_0 - negative)) + negative
        else:
            out[j] = k // parts


@inlined
def _rounded(value: np.float64, exponent: U, mantissa: U) -> U:
    """Return the bits of value * 2^(exponent - bias), rounded to nearest, ties to even; `value` is not negative."""
    if value == 0.0:
        return _0
    bits = np.float64(value).view(np.uint64)
    drop = _F64_MANTISSA - mantissa
    exponent += bits >> _F64_MANTISSA
    bits = (bits & ((_1 << _F64_MANTISSA) - _1)) | (_1 << _F64_MANTISSA)
    normal = exponent > _F64_BIAS
    drop += _0 if normal else _F64_BIAS + _1 - exponent
    if drop > _63:
        return _0
    bits = (bits + ((_1 << drop) >> _1) - _1 + ((bits >> drop) & _1)) >> drop if drop else bits
    return ((exponent - _F64_BIAS - _1) << mantissa) + bits if normal else bits


@inlined
def _values(words: Words, index: U, out: Words, spare: Words) -> None:
    """Write the values of the elements from `index` on."""
    x = words[ORIGIN] + index * _STEP
    for j in range(out.size):
        out[j] = _mix(x)
        x += _STEP
    operation = words[OPERATION]
    if operation == SUM:
        _sum(words, out)
    elif operation == PROD:
        _prod(words, out)
    elif operation == MIN or operation == MAX:
        _extreme(words, out, spare)
    elif operation == AVG:
        _mean(words, out)
    else:
        _random(words, out)


@inlined
def _put(values: Words, flip: U, part: Any) -> None:
    for j in range(part.size):
        part[j] = values[j] ^ flip


@inlined
def _differing(values: Words, tolerance: U, part: Any) -> int:
    """Count the elements that differ by more than `tolerance`."""
    wrong = 0
    for j in range(part.size):
        actual = U(part[j])
        expected = values[j]
        wrong += (actual - expected if actual > expected else expected - actual) > tolerance
    return wrong


@kernel("void(uint8[::1], uint64[::1], uint64, uint64)")
def _fill(memory: npt.NDArray[np.uint8], words: Words, index: U, flip: U) -> None:
    values, spare = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
    size = int(words[WIDTH] >> U(3))
    for start in range(0, memory.size // size, _BLOCK):
        part = memory[start * size : (start + _BLOCK) * size]
        block = values[: part.size // size]
        _values(words, index + U(start), block, spare)
        if size == 1:
            _put(block, flip, part)
        elif size == 2:
            _put(block, flip, part.view(np.uint16))
        elif size == 4:
            _put(block, flip, part.view(np.uint32))
        else:
            _put(block, flip, part.view(np.uint64))


@kernel("UniTuple(int64, 2)(uint8[::1], uint64[::1], uint64, uint64)")
def _compare(memory: npt.NDArray[np.uint8], words: Words, index: U, tolerance: U) -> tuple[int, int]:
    values, spare = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
    size = int(words[WIDTH] >> U(3))
    everything = _ALL >> (_64 - words[WIDTH])
    wrong, first = 0, -1
    for start in range(0, memory.size // size, _BLOCK):
        part = memory[start * size : (start + _BLOCK) * size]
        block = values[: part.size // size]
        _values(words, index + U(start), block, spare)
        for j in range(block.size):
            block[j] &= everything
        if size == 1:
            found = _differing(block, tolerance, part)
        elif size == 2:
            found = _differing(block, tolerance, part.view(np.uint16))
        elif size == 4:
            found = _differing(block, tolerance, part.view(np.uint32))
        else:
            found = _differing(block, tolerance, part.view(np.uint64))
        wrong += found
    return wrong, first


def _bytes(view: View, words: Sequence[int]) -> tuple[npt.NDArray[np.uint8], Words]:
    if 8 * view.itemsize != words[WIDTH]:
        raise ValueError(f"pattern: view: got {8 * view.itemsize} bits an element, expected {words[WIDTH]}")
    return view.view(np.uint8), np.array(words, np.uint64)


def fill(view: View, words: Sequence[int], index: int, inverted: bool = False) -> None:
    """Write the values of the elements from `index` on, or their complements."""
    memory, packed = _bytes(view, words)
    _fill(memory, packed, U(index), _ALL if inverted else _0)


def compare(view: View, words: Sequence[int], index: int, tolerance: int = 0) -> tuple[int, int]:
    """Return how many elements differ from the values from `index` on, and the first of them in the view or -1.

    `tolerance` is in units in the last place: the distance of the bits, read as unsigned integers.
    """
    memory, packed = _bytes(view, words)
    return _compare(memory, packed, U(index), U(tolerance))
