"""What the measuring clock itself costs, and how finely it counts."""

from dataclasses import dataclass

import numpy as np

from collbench.backends.base import NO_CALLS

_READINGS = 2000


@dataclass(frozen=True)
class Clock:
    """`floor_s` is the time between two readings with nothing between them, `step_s` the least difference seen.

    A sample holds one floor too many, whatever is measured; the step is how much finer it could be told apart.
    """

    floor_s: float
    step_s: float


def measure_clock() -> Clock:
    """Measure the compiled loop's clock on this machine, with the loop itself."""
    from collbench.kernels.call_loop import call_loop, read_clock

    stamps = np.zeros((_READINGS, 3), np.int64)
    call_loop(NO_CALLS, NO_CALLS, NO_CALLS, 0, 1, stamps)
    readings = np.zeros(_READINGS, np.int64)
    read_clock(readings)
    values = np.unique(readings)
    # The values fall on the clock's raster, with a remainder from its scaling: the raster is the smallest distance
    # between values that is not such a remainder (1 or 2 ns).
    distances = np.diff(values)
    distances = distances[distances > 2]
    step = float(np.min(distances)) * 1e-9 if distances.size else 1e-9
    return Clock(floor_s=float(np.median(stamps[:, 1] - stamps[:, 0])) * 1e-9, step_s=min(step, 1e-3))
