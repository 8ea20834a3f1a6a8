"""Where a sample starts at an instant: one more call in `meet`, which spins until then.

It reads a schedule, two int64 words: the next instant, in nanoseconds of this host's CLOCK_MONOTONIC, and how far the
one after it lies. Who comes after the instant does not wait; the loop's own stamps show how late it was.
"""

from typing import Any

import numba
import numpy as np
from numba import types

from collbench.kernels.call_loop import now
from collbench.kernels.jit import c_function

INSTANT, PERIOD, WORDS = range(3)


@c_function(types.uint64(types.CPointer(types.int64)))
def start_at(address: Any) -> np.uint64:
    """Wait for the instant of the schedule at `address`, and move it on; 0, so that it may stand in a call list."""
    schedule = numba.carray(address, (WORDS,))
    instant = schedule[INSTANT]
    schedule[INSTANT] = instant + schedule[PERIOD]
    while now() < instant:
        pass
    return np.uint64(0)
