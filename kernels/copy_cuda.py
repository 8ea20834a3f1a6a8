"""Copy device memory, or memory that the device has mapped, with our own kernel."""

from functools import cache
from typing import Any

import cupy
import numpy as np

from collbench.kernels.launch_cuda import Kernel, compiled

_WORD_BYTES = 16


def kernel() -> Kernel:
    """The current device's kernel: to, from, bytes."""
    return _kernel_of(cupy.cuda.Device().id)


@cache
def _kernel_of(device: int) -> Kernel:
    """Unlike devices hold unlike numbers of blocks; this one must be current."""
    return compiled(["copy.cu"], {}, "copy")


def arguments(to: int, source: int, size_bytes: int) -> tuple[int, tuple[Any, ...]]:
    """How many blocks to launch, and with what."""
    blocks = kernel().blocks(-(-size_bytes // _WORD_BYTES))
    return blocks, (np.uint64(to), np.uint64(source), np.uint64(size_bytes))
