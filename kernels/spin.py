"""Computation that is simulated: one more call of a list, which keeps the core busy for so many nanoseconds."""

from typing import Any

import numpy as np
from numba import types

from collbench.kernels.call_loop import now
from collbench.kernels.jit import c_function


@c_function(types.uint64(types.uint64))
def spin(nanoseconds: Any) -> np.uint64:
    """Return 0 when the time is up; by the clock, so that a rank that lost its core meanwhile is not late twice."""
    end = now() + np.int64(nanoseconds)
    while now() < end:
        pass
    return np.uint64(0)
