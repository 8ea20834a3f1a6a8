"""all_reduce between the devices of one host by our own kernels: compiled, and what they are launched with."""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import numpy as np

from collbench.kernels.launch_cuda import Kernel, compiled
from collbench.kernels.reduce_cuda import macros


def flag_words(blocks: int, ranks: int) -> int:
    """Words of 64 bits that the meetings of so many blocks take in each rank's memory; they begin at 0."""
    return blocks * ranks


def state_words(blocks: int) -> int:
    """Words of 64 bits in which a rank keeps how far it has come; they begin at 0."""
    return 1 + blocks


@cache
def kernel(name: str, dtype: str, operation: str, ranks: int) -> Kernel:
    """The kernel: one argument, which `arguments` makes."""
    return compiled(["arithmetic.cu", "peer.cu"], macros(dtype, operation) | {"RANKS": ranks}, name)


def arguments(ranks: int, values: Mapping[str, Any]) -> np.void:
    """Pack the kernels' one argument; `input`, `scratch` and `flags` have an address for each rank."""
    tables = [(name, np.uint64, (ranks,)) for name in ("input", "scratch", "flags")]
    words = [(name, np.uint64) for name in ("output", "state", "error", "count", "rank", "deadline_ns")]
    packed = np.zeros((), np.dtype([*tables, *words]))
    for name, value in values.items():
        packed[name] = value
    return cast(np.void, packed[()])
