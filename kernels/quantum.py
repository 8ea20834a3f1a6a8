"""A fixed quantum of work, done again and again: what takes longer than the shortest one was taken by something."""

import numpy as np
import numpy.typing as npt

from collbench.kernels.call_loop import now
from collbench.kernels.jit import kernel


@kernel("uint64(uint64, int64[::1])")
def work_quanta(steps: int, stamps: npt.NDArray[np.int64]) -> np.uint64:
    """Do `steps` dependent multiplications between one reading of the clock and the next; stamps in nanoseconds.

    stamps[i + 1] - stamps[i] is the time of quantum i. The result hangs on all of the work, so none can be left out.
    """
    x = np.uint64(0x9E3779B97F4A7C15)
    stamps[0] = now()
    for i in range(1, stamps.shape[0]):
        for _ in range(steps):
            x = x * np.uint64(0xD1342543DE82EF95) + np.uint64(1)
        stamps[i] = now()
    return x
