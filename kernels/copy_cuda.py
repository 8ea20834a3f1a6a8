"""Copy device memory, or memory that the device has mapped, with our own kernel."""

from functools import cache
from typing import Any

import numpy as np

from collbench.kernels.launch_cuda import Kernel, compiled

_WORD_BYTES = 16


@cache
def kernel() -> Kernel:
    """The kernel: to, from, bytes."""
    return compiled(["copy.cu"], {}, "copy")


def arguments(to: int, source: int, size_bytes: int) -> tuple[int, tuple[Any, ...]]:
    """How many blocks to launch, and with what."""
    blocks = kernel().blocks(-(-size_bytes // _WORD_BYTES))
    return blocks, (np.uint64(to), np.uint64(source), np.uint64(size_bytes))
