import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from collbench.dtypes import DTYPES, Dtype
from collbench.kernels import pattern as host
from collbench.pattern import CODES, Pattern

cupy = pytest.importorskip("cupy", reason="cupy is not installed", exc_type=ImportError)
device = pytest.importorskip("collbench.kernels.pattern_cuda", exc_type=ImportError)

every_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda dtype: dtype.name)
THREADS = 256 * 1024  # that run at most: longer ranges make each thread stride


def cases(dtype: Dtype) -> Iterator[tuple[Pattern, tuple[int, ...]]]:
    for operation, ranks in itertools.product(CODES, (1, 2, 3, 8, 200, 8192)):
        if operation in ("min", "max") and ranks > 200:
            continue
        pattern = Pattern(dtype, operation, ranks, 77)
        runs = {(0, 0), (ranks // 2, ranks // 2), (ranks - 1, ranks - 1)}
        if operation not in ("move", "untouched"):
            runs.add((0, ranks - 1))
            if operation != "avg":
                runs |= {(0, ranks // 2), (ranks // 3, ranks // 2)}
        for first, last in sorted(runs):
            yield pattern, pattern.words(first, last)


@every_dtype
def test_the_device_makes_the_hosts_bits(dtype: Dtype) -> None:
    for count, (pattern, words) in zip(itertools.cycle((1, 77, 300)), cases(dtype)):
        index = 10**12 + count
        expected = np.zeros(count, dtype.view)
        host.fill(expected, words, index)
        made = cupy.zeros(count, dtype.view)
        device.fill(made, words, index)
        assert (made.get() == expected).all(), pattern
        assert device.compare(made, words, index) == (0, -1)
        device.fill(made, words, index, inverted=True)
        assert (made.get() == ~expected).all()
        assert device.compare(made, words, index) == (count, 0)


@every_dtype
def test_only_the_given_elements_are_written_and_read(dtype: Dtype) -> None:
    words = Pattern(dtype, "sum", 3, 78).words(1, 1)
    whole = cupy.zeros(100, dtype.view)
    device.fill(whole[7:96], words, 50)
    assert not whole[:7].any()
    assert not whole[96:].any()
    assert host.compare(whole[7:96].get(), words, 50) == (0, -1)
    device.fill((whole.data.ptr + 20 * dtype.itemsize, 3), words, 1000)
    assert host.compare(whole[20:23].get(), words, 1000) == (0, -1)
    assert device.compare((whole.data.ptr + 20 * dtype.itemsize, 3), words, 1000) == (0, -1)
    assert device.compare(whole[23:96], words, 66) == (0, -1)


@every_dtype
def test_one_wrong_bit_is_found_where_it_is(dtype: Dtype) -> None:
    words = Pattern(dtype, "move", 3, 79).words(1, 1)
    made = cupy.zeros(1001, dtype.view)
    device.fill(made, words, 0)
    for position, bit in ((0, 0), (500, 8 * dtype.itemsize - 1), (1000, 3)):
        right = made[position].copy()
        made[position] ^= made.dtype.type(1 << bit)
        assert device.compare(made, words, 0) == (1, position)
        made[position] = right
    made[[999, 300]] = ~made[[999, 300]]
    assert device.compare(made, words, 0) == (2, 300)


def test_threads_stride_over_long_ranges() -> None:
    words = Pattern(DTYPES["uint8"], "move", 1, 80).words(0, 0)
    made = cupy.zeros(THREADS + 1000, np.uint8)
    device.fill(made, words, 3)
    assert host.compare(made.get(), words, 3) == (0, -1)
    made[[THREADS + 8, 8]] ^= np.uint8(1)  # one thread finds both
    assert device.compare(made, words, 3) == (2, 8)


def test_tolerance_counts_units_in_the_last_place() -> None:
    words = Pattern(DTYPES["float32"], "avg", 3, 81).words(0, 2)
    made = cupy.zeros(60, np.uint32)
    device.fill(made, words, 0)
    for distance, wrong in ((2, 0), (3, 60)):
        assert device.compare(made + np.uint32(distance), words, 0, 2)[0] == wrong
        assert device.compare(made - np.uint32(distance), words, 0, 2)[0] == wrong


def test_work_goes_to_the_given_stream() -> None:
    words = Pattern(DTYPES["int32"], "sum", 2, 82).words(0, 0)
    stream = cupy.cuda.Stream(non_blocking=True)
    made = cupy.zeros(1000, np.uint32)
    cupy.cuda.Device().synchronize()
    device.fill(made, words, 0, stream=stream)
    assert device.compare(made, words, 0, stream=stream) == (0, -1)
    with pytest.raises(ValueError, match="expected contiguous elements of 32 bits"):
        device.fill(cupy.zeros(4, np.uint8), words, 0)
    device.fill(made[:0], words, 0)
    assert device.compare(made[:0], words, 0) == (0, -1)
