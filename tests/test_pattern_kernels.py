from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from collbench.dtypes import DTYPES, Dtype
from collbench.kernels import pattern as kernels
from collbench.kernels.pattern import compare, fill
from collbench.pattern import CODES, WORDS, Pattern

BLOCK = 8192  # elements that are made at a time; ranges longer than it cross a seam
every_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda dtype: dtype.name)


def values(words: tuple[int, ...], count: int, index: int = 0) -> npt.NDArray[Any]:
    view = np.zeros(count, f"uint{words[WORDS.index('width')]}")
    fill(view, words, index)
    return view


@every_dtype
def test_poison_is_wrong_everywhere(dtype: Dtype) -> None:
    for operation in CODES:
        words = Pattern(dtype, operation, 3, 11).words(1, 1)
        poison = np.zeros(50, dtype.view)
        fill(poison, words, 7, inverted=True)
        assert (poison == ~values(words, 50, 7)).all()
        assert compare(poison, words, 7) == (50, 0)


@every_dtype
def test_one_wrong_bit_is_found_where_it_is(dtype: Dtype) -> None:
    size = 2 * BLOCK + 5
    for operation, ranks in (("sum", 1), ("move", 3), ("prod", 8)):
        words = Pattern(dtype, operation, ranks, 12).words(ranks - 1, ranks - 1)
        view = np.zeros(size, dtype.view)
        fill(view, words, 33)
        assert compare(view, words, 33) == (0, -1)
        for position, bit in ((0, 0), (BLOCK - 1, 3), (BLOCK, 8 * dtype.itemsize - 1), (size - 1, 5)):
            view[position] ^= view.dtype.type(1 << bit)
            assert compare(view, words, 33) == (1, position)
            assert compare(view[position:], words, 33 + position) == (1, 0)
            view[position] ^= view.dtype.type(1 << bit)
        view[[5, BLOCK + 1]] ^= 1
        assert compare(view, words, 33) == (2, 5)


def test_tolerance_counts_units_in_the_last_place_both_ways() -> None:
    pattern = Pattern(DTYPES["float16"], "avg", 3, 13)
    words = pattern.words(0, 2)
    bits = values(words, 40)
    assert pattern.tolerance == 2
    assert bits.all()
    for distance, wrong in ((1, 0), (2, 0), (3, 40), (1000, 40)):
        assert compare(bits + np.uint16(distance), words, 0, 2)[0] == wrong
        assert compare(bits - np.uint16(distance), words, 0, 2)[0] == wrong


@every_dtype
def test_a_part_is_made_as_the_whole_is(dtype: Dtype) -> None:
    for operation in CODES:
        words = Pattern(dtype, operation, 5, 14).words(2, 2)
        whole = values(words, BLOCK + 100)
        for start, count in ((1, 1), (BLOCK - 3, 7), (17, BLOCK)):
            assert (values(words, count, start) == whole[start : start + count]).all()


def test_an_empty_view_is_right() -> None:
    words = Pattern(DTYPES["int8"], "sum", 2, 1).words(0, 1)
    empty = np.zeros(0, np.uint8)
    fill(empty, words, 5)
    assert compare(empty, words, 5) == (0, -1)


def test_a_view_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="view: got 8 bits an element, expected 16"):
        fill(np.zeros(2, np.uint8), Pattern(DTYPES["int16"], "sum", 2, 1).words(0, 1), 0)


def test_the_kernels_read_the_words_in_the_order_of_the_description() -> None:
    for position, name in enumerate(WORDS):
        assert getattr(kernels, name.upper()) == position
    for name, code in CODES.items():
        assert getattr(kernels, name.upper()) == code
    source = Path(kernels.__file__).with_suffix(".cu").read_text()
    fields = source[source.index("u64 operation") + 3 : source.index("};")]
    assert tuple(field.strip(" \n;") for field in fields.split(",")) == WORDS
    names = source[source.index("enum {") + 6 : source.index("};", source.index("enum {"))]
    assert tuple(name.strip().lower() for name in names.split(",")) == tuple(CODES)
