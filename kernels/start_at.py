"""Where a sample starts at an instant: one more call in `meet`, which spins until then.

It reads a schedule, an int64 array of HEAD words and one more for each start of a block:
INSTANT   when the next start is, nanoseconds of this host's CLOCK_MONOTONIC; the call moves it on by PERIOD
PERIOD    nanoseconds from one start to the next
START     number of the next start within the block
STARTS    how many starts the schedule has words for; further ones are waited for and leave no mark
GRACE     nanoseconds by which a start may miss its instant
HEAD + k  1 where start k was late: the rank came after the instant, or lost its core while it waited
"""

from typing import Any

import numba
import numpy as np
from numba import types

from collbench.kernels.call_loop import now
from collbench.kernels.jit import c_function

INSTANT, PERIOD, START, STARTS, GRACE, HEAD = range(6)


@c_function(types.uint64(types.CPointer(types.int64)))
def start_at(address: Any) -> np.uint64:
    """Wait for the next instant of the schedule at `address`; 0, so that it may stand in a call list."""
    head = numba.carray(address, (HEAD,))
    instant, start = head[INSTANT], head[START]
    head[INSTANT] = instant + head[PERIOD]
    head[START] = start + 1
    seen = now()
    late = seen > instant
    while seen < instant:
        seen = now()
    if (late or seen - instant > head[GRACE]) and start < head[STARTS]:
        numba.carray(address, (HEAD + start + 1,))[HEAD + start] = 1
    return np.uint64(0)
