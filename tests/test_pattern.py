import itertools
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from collbench.dtypes import DTYPES, OPERATIONS, Dtype
from collbench.kernels.pattern import compare, fill
from collbench.pattern import WORDS, Pattern, mix

Array = npt.NDArray[Any]

RANKS = (1, 2, 3, 4, 5, 8, 31, 200)
REDUCTIONS = tuple(operation for operation in OPERATIONS if operation != "avg")
FLOATS = [dtype for dtype in DTYPES.values() if dtype.kind == "float"]
every_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda dtype: dtype.name)


def values(pattern: Pattern, first: int, last: int, count: int = 97, index: int = 0) -> Array:
    view = np.zeros(count, pattern.dtype.view)
    fill(view, pattern.words(first, last), index)
    return view


def named(pattern: Pattern) -> dict[str, int]:
    return dict(zip(WORDS, pattern.words(0, 0), strict=True))


# The types' own arithmetic, for those that numpy lacks by way of float64, which holds each of their values exactly.

NATIVE = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def rounded(dtype: Dtype, numbers: Array | np.float64) -> Array:
    """Round float64 to the nearest number of the type, ties to even."""
    exponent = np.maximum(np.frexp(numbers)[1], 2 - dtype.bias)
    unit = np.ldexp(1.0, exponent - dtype.precision)
    return cast(Array, np.rint(numbers / unit) * unit)


def decoded(dtype: Dtype, bits: Array) -> Array:
    """Read bits as numbers: arrays of numpy's own type, of float64, or of Python's integers."""
    if dtype.kind == "signed":
        return bits.view(f"int{8 * dtype.itemsize}").astype(object)
    if dtype.kind == "unsigned":
        return bits.astype(object)
    if dtype.name in NATIVE:
        return bits.view(NATIVE[dtype.name])
    mantissa = dtype.precision - 1
    field = (bits >> mantissa).astype(int) & ((1 << dtype.exponent_bits) - 1)
    fraction = (bits & ((1 << mantissa) - 1)).astype(int)
    significand = np.where(field > 0, fraction + (1 << mantissa), fraction)
    numbers = np.ldexp(significand.astype(float), np.maximum(field, 1) - dtype.bias - mantissa)
    return cast(Array, np.where(bits >> (8 * dtype.itemsize - 1), -numbers, numbers))


def encoded(dtype: Dtype, numbers: Array) -> Array:
    """Write numbers of the type as bits; the opposite of decoded."""
    if dtype.kind != "float":
        return cast(Array, (numbers & (2 ** (8 * dtype.itemsize) - 1)).astype(dtype.view))
    if dtype.name in NATIVE:
        return numbers.view(dtype.view)
    mantissa = dtype.precision - 1
    exponent = np.where(numbers == 0, 1 - dtype.bias, np.maximum(np.frexp(numbers)[1] - 1, 1 - dtype.bias))
    significand = np.ldexp(np.abs(numbers), mantissa - exponent).astype(np.int64)
    field = exponent + dtype.bias - (significand < (1 << mantissa))
    bits = (field << mantissa) + (significand & ((1 << mantissa) - 1))
    return cast(Array, (bits + (np.signbit(numbers).astype(int) << (8 * dtype.itemsize - 1))).astype(dtype.view))


def combined(dtype: Dtype, operation: str, a: Array, b: Array) -> Array:
    result = COMBINE[operation](a, b)
    if dtype.kind != "float":
        low = -(2**dtype.precision) if dtype.kind == "signed" else 0
        result = np.clip(result, low, 2**dtype.precision - 1)  # a saturating library
    return result if dtype.kind != "float" or dtype.name in NATIVE else rounded(dtype, result)


def reduced(dtype: Dtype, operation: str, parts: list[Array], random: Random | None) -> Array:
    """Combine in a random order and nesting, or from left to right."""
    numbers = [decoded(dtype, part) for part in parts]
    if random:
        random.shuffle(numbers)
    while len(numbers) > 1:
        i = random.randrange(len(numbers) - 1) if random else 0
        numbers[i : i + 2] = [combined(dtype, operation, numbers[i], numbers[i + 1])]
    return encoded(dtype, numbers[0])


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3", "float8_e5m2"])
def test_the_tests_own_arithmetic_reads_what_it_writes(name: str) -> None:
    dtype = DTYPES[name]
    bits = np.arange(2 ** (8 * dtype.itemsize), dtype=dtype.view)
    exponent = (bits >> (dtype.precision - 1)) & ((1 << dtype.exponent_bits) - 1)
    bits = bits[exponent < (1 << dtype.exponent_bits) - 1]
    numbers = decoded(dtype, bits)
    assert (encoded(dtype, numbers) == bits).all()
    assert (rounded(dtype, numbers) == numbers).all()
    largest = {"bfloat16": 3.3895313892515355e38, "float8_e4m3": 240.0, "float8_e5m2": 57344.0}[name]
    assert numbers.max() == largest
    assert numbers[1] == 2.0 ** (2 - dtype.bias - dtype.precision)


# One element, by the words of collbench.pattern's docstring and in exact numbers.


class Reference:
    def __init__(self, pattern: Pattern, index: int) -> None:
        self.pattern = pattern
        self.parameters = named(pattern)
        self.g = mix((self["origin"] + index * 0x9E3779B97F4A7C15) % 2**64)
        self.h = (self.g % 2**32) * pattern.ranks >> 32
        self.exponent = self["exponent_low"] + ((self.g >> 32) * self["exponent_span"] >> 32) - pattern.dtype.bias

    def __getitem__(self, word: str) -> int:
        return self.parameters[word]

    def draw(self, stream: int) -> int:
        product = self.g * (mix((self["key"] + stream * 0x9E3779B97F4A7C15) % 2**64) | 1) % 2**64
        return product ^ product >> 32

    def step(self, boundary: int) -> int:
        rank = boundary % self.pattern.ranks
        inside = 0 < (rank - self.h) % self.pattern.ranks < self["window"]
        return self.draw(rank) & self["step_mask"] if inside else 0

    def contribution(self, rank: int) -> Fraction:
        """Return a rank's own contribution to sum, prod or avg."""
        w = (rank - self.h) % self.pattern.ranks
        left, right, base = self.step(rank), self.step(rank + 1), self.draw(-1)
        lift = self["lift"] if w < self["window"] else 0
        low = base & self["base_mask"]
        power = Fraction(2) ** self.exponent if self.pattern.dtype.kind == "float" else Fraction(1)
        if self.pattern.operation == "sum":
            inside = [0 < (r - self.h) % self.pattern.ranks < self["window"] for r in (rank, rank + 1)]
            half = self["step_half"] * (inside[0] - inside[1])
            return (lift + left - right - half + (low - self["base_half"] if w == 0 else 0)) * power
        if self.pattern.operation == "avg":
            number = self["lift"] - self["base_half"] + (low if w == 0 else self.draw(-2) & self["base_mask"])
            sign = -1 if self.pattern.dtype.kind == "float" and self.g >> 40 & 1 else 1
            return number * sign * power if w < self["window"] else Fraction(0)
        exponent = lift + left % 2**63 - right % 2**63
        sign = -1 if (left ^ right ^ (low if w == 0 else 0)) >> 63 else 1
        mantissa = low % 2**63 if w == 0 else 0
        if self.pattern.dtype.kind == "float":
            factor = 1 + Fraction(mantissa, 2 ** (self.pattern.dtype.precision - 1))
        else:
            factor = Fraction(mantissa | 1)
        return factor * sign * Fraction(2) ** exponent


@every_dtype
@pytest.mark.parametrize("operation", ["sum", "prod", "avg"])
def test_contributions_are_what_the_description_says(dtype: Dtype, operation: str) -> None:
    for ranks in RANKS:
        pattern = Pattern(dtype, operation, ranks, 5)
        elements = [Reference(pattern, index) for index in range(1000, 1020)]
        for rank in {0, ranks // 2, ranks - 1}:
            got = [Fraction(number) for number in decoded(dtype, values(pattern, rank, rank, 20, 1000)).tolist()]
            assert got == [element.contribution(rank) for element in elements]


@every_dtype
@pytest.mark.parametrize("operation", REDUCTIONS)
def test_any_order_gives_the_expected_bits(dtype: Dtype, operation: str) -> None:
    for ranks in RANKS:
        pattern = Pattern(dtype, operation, ranks, 3)
        parts = [values(pattern, rank, rank) for rank in range(ranks)]
        expected = values(pattern, 0, ranks - 1)
        for order in (None, Random(1), Random(2)):
            assert (reduced(dtype, operation, parts, order) == expected).all()


@every_dtype
@pytest.mark.parametrize("operation", REDUCTIONS)
def test_any_run_of_ranks_gives_the_expected_bits(dtype: Dtype, operation: str) -> None:
    for ranks in (3, 8, 31):
        pattern = Pattern(dtype, operation, ranks, 4)
        parts = [values(pattern, rank, rank) for rank in range(ranks)]
        for first, last in {(0, 1), (0, ranks // 2), (0, ranks - 2), (1, ranks - 1), (ranks // 3, 2 * ranks // 3)}:
            result = reduced(dtype, operation, parts[first : last + 1], Random(last))
            assert (result == values(pattern, first, last)).all()


def test_a_closed_path_rises_by_no_more_than_half_its_steps() -> None:
    for steps in range(1, 9):
        for inner in itertools.product((-2, 0, 1), repeat=steps - 1):
            path = (0, *inner, 0)
            assert sum(max(b - a, 0) for a, b in itertools.pairwise(path)) <= steps // 2 * 3


@every_dtype
def test_no_choice_of_ranks_can_leave_the_type(dtype: Dtype) -> None:
    """The worst case by the bound on paths; data drawn at random would hardly ever come near it."""
    most = 2**dtype.precision - 1
    for ranks in (*range(1, 300), 5000, 2**24 - 1):
        words = named(Pattern(dtype, "sum", ranks, 1))
        window, step = words["window"], words["step_mask"]
        assert min(ranks, 7) <= window <= ranks
        assert step > 0
        assert words["lift"] == (step if dtype.kind == "unsigned" else 0)
        assert words["step_half"] <= step
        assert words["base_mask"] - words["base_half"] + window // 2 * step + words["lift"] * window <= most
        assert words["base_half"] + window // 2 * step <= most
        assert words["base_mask"] >= most // 2
        if dtype.kind == "float":
            low, span = words["exponent_low"] - dtype.bias, words["exponent_span"]
            assert 1 - dtype.bias <= low < low + span - 1 <= dtype.bias - dtype.precision
        words = named(Pattern(dtype, "prod", ranks, 1))
        window, factor = words["window"], words["base_mask"] % 2**63
        assert min(ranks, 2) <= window <= ranks
        assert words["step_mask"] % 2**63 == 1
        if dtype.kind == "float":
            assert factor == 2 ** (dtype.precision - 1) - 1
            assert window // 2 < dtype.bias - 1
        else:
            assert factor >= 7
            assert factor << (window + window // 2) <= most


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_floats_are_normal_numbers_or_positive_zeros(dtype: Dtype) -> None:
    for operation, ranks in itertools.product(("move", *OPERATIONS), (1, 3, 200)):
        pattern = Pattern(dtype, operation, ranks, 6)
        bits = values(pattern, 0, 0, 2000)
        exponent = (bits >> (dtype.precision - 1)) & ((1 << dtype.exponent_bits) - 1)
        assert (exponent < (1 << dtype.exponent_bits) - 1).all()
        assert not (bits == 1 << (8 * dtype.itemsize - 1)).any()
        assert ((exponent > 0) | (bits == 0)).all()  # no subnormal number, which a library may flush
        if operation not in ("sum", "avg"):
            assert bits.all()


@every_dtype
def test_avg_is_the_nearest_quotient_and_libraries_are_within_its_tolerance(dtype: Dtype) -> None:
    for ranks in RANKS:
        pattern = Pattern(dtype, "avg", ranks, 7)
        expected = values(pattern, 0, ranks - 1)
        numbers = [decoded(dtype, values(pattern, rank, rank)) for rank in range(ranks)]
        means = [
            sum(map(Fraction, element)) / Fraction(ranks)
            for element in zip(*(n.tolist() for n in numbers), strict=True)
        ]
        if dtype.kind != "float":
            assert [int(mean) for mean in means] == decoded(dtype, expected).tolist()
            continue
        nearest = np.array([float(mean) for mean in means])
        assert (rounded(dtype, nearest) == decoded(dtype, expected)).all()
        # What a library does: multiply by a rounded 1 / ranks, round, add, round.
        factor = float(np.float16(1 / ranks)) if dtype.itemsize == 1 else rounded(dtype, np.float64(1 / ranks))
        scaled = [rounded(dtype, number.astype(float) * factor) for number in numbers]
        result = rounded(dtype, np.sum(scaled, axis=0)).astype(NATIVE.get(dtype.name, np.float64))
        assert compare(encoded(dtype, result), pattern.words(0, ranks - 1), 0, pattern.tolerance) == (0, -1)


@pytest.mark.parametrize("ranks", [5000, 8192])
def test_avg_rounds_subnormal_quotients_to_nearest_ties_to_even(ranks: int) -> None:
    dtype = DTYPES["float8_e4m3"]
    pattern = Pattern(dtype, "avg", ranks, 15)
    elements = [Reference(pattern, index) for index in range(300)]
    totals = [element.contribution(element.h) + element.contribution((element.h + 1) % ranks) for element in elements]
    nearest = rounded(dtype, np.array([float(total / ranks) for total in totals]))
    assert np.mean(np.abs(nearest) < 2.0 ** (1 - dtype.bias)) > 0.1
    assert (decoded(dtype, values(pattern, 0, ranks - 1, 300)) == nearest).all()


def test_products_have_both_signs_where_the_type_has() -> None:
    for dtype in DTYPES.values():
        numbers = [decoded(dtype, values(Pattern(dtype, "prod", 4, 8), rank, rank)) for rank in (0, 1, 3)]
        assert all((number < 0).any() == (dtype.kind != "unsigned") for number in numbers)
        assert all((number > 0).any() for number in numbers)


@every_dtype
def test_every_rank_matters_in_a_sum(dtype: Dtype) -> None:
    count = 4000
    for ranks in (2, 8, 31):
        pattern = Pattern(dtype, "sum", ranks, 8)
        words = named(pattern)
        for rank in range(ranks):
            own = decoded(dtype, values(pattern, rank, rank, count))
            # Losing or doubling a contribution shows wherever it is not 0. Of the ranks that have a turn at an element,
            # half of those with steps of 0 and 1 contribute, and nearly all others.
            assert np.mean(own != 0) > 0.45 * words["window"] / ranks


@every_dtype
@pytest.mark.parametrize("operation", ["move", *OPERATIONS])
def test_data_from_elsewhere_are_seen(dtype: Dtype, operation: str) -> None:
    count, ranks = 4000, 4
    here = values(Pattern(dtype, operation, ranks, 9), 1, 1, count, 500)
    whole = range(ranks) if operation != "move" else range(1)
    expected = values(Pattern(dtype, operation, ranks, 9), whole[0], whole[-1], count, 500)
    others = {
        "the next element": values(Pattern(dtype, operation, ranks, 9), 1, 1, count, 501),
        "another block": values(Pattern(dtype, operation, ranks, 9), 1, 1, count, 500 + count),
        "another rank": values(Pattern(dtype, operation, ranks, 9), 2, 2, count, 500),
        "another seed": values(Pattern(dtype, operation, ranks, 10), 1, 1, count, 500),
        "data that stay": values(Pattern(dtype, "untouched", ranks, 9), 1, 1, count, 500),
        "no reduction": expected if operation != "move" else ~expected,
    }
    # avg has zeros in all but two ranks, small floats few values.
    least = {"avg": 0.2}.get(operation, 0.3 if operation == "prod" or dtype.itemsize == 1 else 0.7)
    for what, other in others.items():
        assert np.mean(here != other) > least, what


@pytest.mark.parametrize(
    ("operation", "ranks", "first", "last"),
    [("sum", 4, 2, 1), ("sum", 4, 0, 4), ("sum", 4, -1, 2), ("move", 4, 0, 1), ("avg", 4, 0, 2)],
)
def test_what_is_not_defined_is_refused(operation: str, ranks: int, first: int, last: int) -> None:
    with pytest.raises(ValueError, match="pattern"):
        Pattern(DTYPES["int8"], operation, ranks, 0).words(first, last)


def test_unknown_operations_and_rank_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="operation: got 'xor', expected one of untouched, move, sum"):
        Pattern(DTYPES["int8"], "xor", 2, 0)
    with pytest.raises(ValueError, match="ranks: got 0, expected"):
        Pattern(DTYPES["int8"], "sum", 0, 0)


# Seeds are part of a record: what a seed stands for must not change.


def test_the_hash_is_splitmix64() -> None:
    step = 0x9E3779B97F4A7C15
    assert mix(1234567 + step) == 6457827717110365317
    assert mix((1234567 + 2 * step) % 2**64) == 3203168211198807973
    assert mix((1234567 + 3 * step) % 2**64) == 9817491932198370423


@pytest.mark.parametrize(
    ("name", "operation", "ranks", "first", "last", "bits"),
    [
        ("float32", "move", 4, 1, 1, [0xB6FF0EFB, 0xB640793C]),
        ("float32", "sum", 4, 1, 1, [0x4A703B40, 0xCE3B9650]),
        ("float32", "sum", 4, 0, 3, [0x4C7AED32, 0x4FFF58FA]),
        ("int64", "sum", 3, 0, 0, [0xF03A48C622189A46, 0x1369342544D469E6]),
        ("uint8", "sum", 200, 0, 199, [0x6E, 0xD2]),
        ("float16", "prod", 4, 2, 2, [0xB800, 0xBC00]),
        ("int32", "prod", 4, 0, 3, [0x1D74D710, 0xE135A1D0]),
        ("bfloat16", "min", 5, 0, 4, [0xB6D9, 0xBBED]),
        ("int16", "max", 5, 0, 4, [0x281B, 0x79C9]),
        ("float64", "avg", 3, 0, 2, [0x4D0A0DF29C6F4A44, 0x2335DC3D37E1D22B]),
        ("float8_e4m3", "sum", 8, 3, 3, [0x0, 0xB8]),
        ("uint32", "untouched", 4, 1, 1, [0xBB16E77A, 0x4EEAB394]),
    ],
)
def test_the_data_of_a_seed_never_change(
    name: str, operation: str, ranks: int, first: int, last: int, bits: list[int]
) -> None:
    assert values(Pattern(DTYPES[name], operation, ranks, 99), first, last, 2, 1_000_000).tolist() == bits
