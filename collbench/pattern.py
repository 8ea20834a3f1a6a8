"""The data of a collective, as pure functions of seed, rank and element index.

Inputs and expected results are one notion: the reduction by an operation over the contributions of the ranks
first..last. One rank alone is that rank's input, all ranks are the result of an all-reduce, 0..r that of a scan. Every
rank can therefore compute any part of any result alone, at the same cost as its own input, and compare raw bits.

Everything follows from g(i) = mix(origin + i * STEP), i the element's index, and from draws fold(g * m) with odd
multipliers m = mix(key + stream * STEP) | 1, fold(x) = x ^ (x >> 32). Ranks are numbered anew for each element:
w = (rank - h) mod ranks, h hashed from g. Between two ranks lies a boundary, numbered as the rank after it, with a
value u: drawn where that rank has 0 < w < c, else 0.

sum     Contributions are integers times a power of two that is common to the element, so that each is exact. Rank
        w < c contributes lift + u(its left boundary) - u(its right boundary); w = 0 adds a base, drawn too. Neighbours
        cancel, so the sum over any run of ranks knows at most the u at its two ends. A closed path of c steps rises by
        no more than c // 2 times the width of u's range: that bounds the sum over any subset of ranks, in any order,
        to the type's significant bits. No rounding, no overflow, and nothing for a saturating library to saturate.
        `lift` keeps unsigned contributions from becoming negative.
prod    The same path, in the exponent: rank w < c contributes 2^(lift + u - u), and a sign that telescopes likewise;
        w = 0 a random mantissa (floats) or an odd factor (integers) too.
min,max Random values, as for `move`. The only ones that cost a step per rank.
avg     Two ranks contribute x0 and x1, of one sign for floats, the others 0. Expected is x0 + x1 divided by the ranks:
        for integers rounded toward zero, for floats to the nearest value. Libraries multiply by a rounded 1 / ranks
        before they add, so floats may differ by 2 units in the last place.
move    Random bits. The two top exponent bits of floats are 01: no NaN, infinity, subnormal number or zero.
untouched
        Random bits that nobody sends: what must still be there afterwards.

Exact sums of integers with a common exponent, split over the ranks, are how nccl-tests verifies too (`verifiable`); the
telescoping path makes partial results as cheap as whole ones.
"""

from dataclasses import dataclass

from collbench.dtypes import Dtype

CODES = {"untouched": 0, "move": 1, "sum": 2, "prod": 3, "min": 4, "max": 5, "avg": 6}

# The words of a pattern in their order; kernels/pattern.py and kernels/pattern.cu read them by position.
WORDS = (
    "operation",  # one of CODES
    "width",  # bits of an element
    "mantissa",  # bits of a float's stored mantissa; 0 for integers
    "sign",  # the sign bit; 0 for unsigned
    "origin",  # where the hashes of the elements start: seed and operation
    "key",  # where the hashes of the multipliers start
    "left",  # multiplier of the boundary before `first`; of x1 for avg
    "right",  # multiplier of the boundary after `last`
    "base",  # multiplier of the base; of x0 for avg
    "ranks",
    "first",
    "last",
    "window",  # c above
    "step_mask",  # u = (draw & step_mask) - step_half
    "step_half",
    "base_mask",  # base = (draw & base_mask) - base_half
    "base_half",
    "lift",
    "exponent_low",  # biased exponents of floats: low + a draw below span
    "exponent_span",
    "keep",  # random bits = (draw & keep) | force
    "force",
)

_WORD = 2**64
_STEP = 0x9E3779B97F4A7C15  # splitmix64's own
_BASE, _SECOND = -1, -2  # streams beside those of the ranks
_MAX_RANKS = 2**24  # avg divides in float64 and rounds once more; with fewer ranks no quotient is so near to a tie


def mix(word: int) -> int:
    """Hash 64 bits: the finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), Stafford's constants "mix 13"."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % _WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % _WORD
    return word ^ (word >> 31)


def _multiplier(key: int, stream: int) -> int:
    return mix((key + stream * _STEP) % _WORD) | 1


@dataclass(frozen=True)
class Pattern:
    """The data of one operation over `ranks` ranks; patterns of two seeds have nothing in common."""

    dtype: Dtype
    operation: str
    ranks: int
    seed: int

    def __post_init__(self) -> None:
        if self.operation not in CODES:
            raise ValueError(f"pattern: operation: got {self.operation!r}, expected one of {', '.join(CODES)}")
        if not 0 < self.ranks < _MAX_RANKS:
            raise ValueError(f"pattern: ranks: got {self.ranks}, expected 1 to {_MAX_RANKS - 1}")

    @property
    def tolerance(self) -> int:
        """By how many units in the last place a correct result may differ."""
        return 2 if self.operation == "avg" and self.dtype.kind == "float" else 0

    def words(self, first: int, last: int) -> tuple[int, ...]:
        """Describe the reduction over ranks first..last, or first's own contribution where they are the same.

        64-bit words in the order of WORDS, negative ones in two's complement. `avg` over some of the ranks is not
        defined, neither are `move` and `untouched` over more than one.
        """
        if not 0 <= first <= last < self.ranks:
            raise ValueError(f"pattern: ranks {first}..{last}: expected to lie within 0..{self.ranks - 1}")
        whole = first == 0 and last == self.ranks - 1
        if first != last and (self.operation in ("untouched", "move") or (self.operation == "avg" and not whole)):
            raise ValueError(f"pattern: {self.operation} over ranks {first}..{last} of {self.ranks}: is not defined")
        dtype = self.dtype
        width = 8 * dtype.itemsize
        sign = 0 if dtype.kind == "unsigned" else 1 << (width - 1)
        origin = mix((mix(self.seed % _WORD) + CODES[self.operation]) % _WORD)
        key = mix(origin)
        left = _SECOND if self.operation == "avg" else first
        multipliers = (_multiplier(key, stream) for stream in (left, (last + 1) % self.ranks, _BASE))
        numbers = {"sum": _sum, "prod": _prod, "avg": _avg}.get(self.operation, _none)(dtype, self.ranks)
        return (
            CODES[self.operation],
            width,
            dtype.precision - 1 if dtype.kind == "float" else 0,
            sign,
            origin,
            key,
            *multipliers,
            self.ranks,
            first,
            last,
            *(number % _WORD for number in numbers),
            *_random_bits(dtype, self.operation),
        )


def _random_bits(dtype: Dtype, operation: str) -> tuple[int, int]:
    """Return keep, force."""
    width = 8 * dtype.itemsize
    everything = 2**width - 1
    if dtype.kind != "float" or operation == "untouched":
        return everything, 0
    return everything - (0b11 << (width - 3)), 0b01 << (width - 3)


# Each returns window, step_mask, step_half, base_mask, base_half, lift, exponent_low, exponent_span.
_Numbers = tuple[int, int, int, int, int, int, int, int]


def _none(dtype: Dtype, ranks: int) -> _Numbers:
    return 0, 0, 0, 0, 0, 0, 0, 0


def _sum(dtype: Dtype, ranks: int) -> _Numbers:
    """Give half of the range -M..M (or 0..M) to the base and the rest to the path; M = 2^precision - 1.

    Signed: window // 2 * step <= M - 2^(precision - 1). Unsigned: (window + window // 2) * step <= 2^(precision - 1),
    where lift = step is in each contribution.
    """
    half = 1 << (dtype.precision - 1)
    if dtype.kind == "unsigned":
        window = min(ranks, 2 * half // 3)
        step = _all_ones(half // (window + window // 2))
        return window, step, (step + 1) // 2, half - 1, 0, step, 0, 0
    window = min(ranks, 2 * half - 1)
    step = _all_ones((half - 1) // max(window // 2, 1))
    low, span = _exponents(dtype, 1 - dtype.bias)
    return window, step, (step + 1) // 2, 2 * half - 1, half, 0, low, span


def _prod(dtype: Dtype, ranks: int) -> _Numbers:
    """Keep floats within 2^±(window // 2 + 1); in integers leave room for window + window // 2 twos and a factor.

    The top bits of steps and base are signs: there, addition is XOR.
    """
    sign = 0 if dtype.kind == "unsigned" else 1 << 63
    if dtype.kind == "float":
        window = min(ranks, dtype.bias - 1)
        return window, sign | 1, 0, sign | ((1 << (dtype.precision - 1)) - 1), 0, 0, dtype.bias, 0
    window = min(ranks, dtype.precision // 3)
    return window, sign | 1, 0, sign | ((1 << (dtype.precision - window - window // 2)) - 1), 0, 1, 0, 0


def _avg(dtype: Dtype, ranks: int) -> _Numbers:
    """Draw floats from 1..2^(precision - 1) times a power of two so large that the quotient is a normal number.

    e4m3 has none that is large enough beyond 1024 ranks; its quotients may then be subnormal.
    """
    window = min(ranks, 2)
    half = 1 << (dtype.precision - 1)
    if dtype.kind == "float":
        return window, 0, 0, half - 1, 0, 1, *_exponents(dtype, 1 - dtype.bias + ranks.bit_length())
    if dtype.kind == "unsigned":
        return window, 0, 0, half - 1, 0, 0, 0, 0
    return window, 0, 0, 2 * half - 1, half, 0, 0, 0


def _all_ones(limit: int) -> int:
    """Return the largest 2^k - 1 up to `limit`."""
    return (1 << ((limit + 1).bit_length() - 1)) - 1


def _exponents(dtype: Dtype, low: int) -> tuple[int, int]:
    """Return the lowest biased exponent of integers below 2^precision, and how many to draw from: the middle half."""
    if dtype.kind != "float":
        return 0, 0
    high = dtype.bias - dtype.precision
    low = min(low, high)
    quarter = (high - low + 1) // 4
    return low + quarter + dtype.bias, high - low + 1 - 2 * quarter
