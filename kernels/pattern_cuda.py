"""Fill and compare device memory with the data that collbench.pattern describes, bit for bit as on the host."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from collbench.pattern import WORDS

_WORDS = np.dtype([(name, np.uint64) for name in WORDS])
_WIDTH = WORDS.index("width")
_THREADS = 256
_BLOCKS = 1024  # with _THREADS about what the largest devices hold at once; each thread strides over the rest
_NONE = 2**64 - 1

# A contiguous cupy.ndarray of unsigned integers of the element's width, or an address and a count of elements.
Memory = Any


@cache
def _module() -> Any:
    return cupy.RawModule(code=Path(__file__).with_name("pattern.cu").read_text())


def _launch(name: str, memory: Memory, words: Sequence[int], *arguments: Any) -> None:
    if isinstance(memory, tuple):
        pointer, count = memory
    else:
        if 8 * memory.itemsize != words[_WIDTH] or not memory.flags.c_contiguous:
            raise ValueError(
                f"pattern: memory: got {memory.dtype}, expected contiguous elements of {words[_WIDTH]} bits"
            )
        pointer, count = memory.data.ptr, memory.size
    blocks = min(-(-count // _THREADS), _BLOCKS)
    if blocks:
        packed = np.array(tuple(words), _WORDS)[()]
        kernel = _module().get_function(name)
        kernel((blocks,), (_THREADS,), (np.uint64(pointer), np.uint64(count), packed, *arguments))


def fill(memory: Memory, words: Sequence[int], index: int, inverted: bool = False, stream: Any = None) -> None:
    """Write the values of the elements from `index` on, or their complements; returns when that is queued.

    `stream` is a cupy stream; None is the current one.
    """
    with stream or cupy.cuda.get_current_stream():
        _launch("pattern_fill", memory, words, np.uint64(index), np.uint64(_NONE if inverted else 0))


def compare(
    memory: Memory, words: Sequence[int], index: int, tolerance: int = 0, stream: Any = None
) -> tuple[int, int]:
    """Return how many elements differ from the values from `index` on, and the first of them or -1.

    `tolerance` is in units in the last place. Waits for the stream.
    """
    with stream or cupy.cuda.get_current_stream():
        found = cupy.array([0, _NONE], np.uint64)
        _launch("pattern_compare", memory, words, np.uint64(index), np.uint64(tolerance), found)
        count, first = (int(word) for word in found.get())
    return count, first if count else -1
