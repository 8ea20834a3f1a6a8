"""Pairs of events on a stream, and what the device's clock costs and how finely it counts, measured with them."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.backends.base import Call
from collbench.clock import Clock

Int64s = NDArray[np.int64]

_CLOCK_MONOTONIC = 1
_SECOND_NS = 1_000_000_000
_AT_ONCE, _ROUNDS = 16, 16
"""Empty pairs that are measured: few at once, since what a held stream can take is limited, and often."""
_DOCUMENTED_STEP_NS = 500
"""CUDA's documentation of cudaEventElapsedTime: "a resolution of around 0.5 microseconds"."""
_ROUNDING_NS = 2
"""A difference of so much may be a remainder of the conversion to milliseconds and back."""


class Events:
    """Pairs of events, each of one rotation; and when the host let each one's stream go on."""

    def __init__(self, cupy: Any, pairs: int) -> None:
        self.pairs = pairs
        self.start_events = [cupy.cuda.Event() for _ in range(pairs)]
        self.stop_events = [cupy.cuda.Event() for _ in range(pairs)]
        self.start = [int(event.ptr) for event in self.start_events]
        self.stop = [int(event.ptr) for event in self.stop_events]
        self._elapsed = cupy.cuda.get_elapsed_time
        self.released: Int64s = np.zeros((pairs, 2), np.int64)
        """A struct timespec for each pair: seconds and nanoseconds."""

    def read(self, first: int, samples: int) -> Int64s:
        """Nanoseconds of the samples of the block that began with iteration `first`."""
        pairs = ((first + sample) % self.pairs for sample in range(samples))
        return self._between((self.start_events[k], self.stop_events[k]) for k in pairs)

    def read_released(self, first: int, samples: int) -> Int64s:
        """When the stream was let go in these samples, in nanoseconds of CLOCK_MONOTONIC."""
        taken = self.released[(first + np.arange(samples)) % self.pairs]
        return np.asarray(taken[:, 0] * _SECOND_NS + taken[:, 1], np.int64)

    def stamp(self, k: int) -> Call:
        """The call that notes the time in place k of `released`."""
        clock_gettime = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0
        return Call(clock_gettime, (_CLOCK_MONOTONIC, int(self.released[k].ctypes.data)))

    def gaps(self) -> Int64s:
        """Nanoseconds from each pair's end to the next one's beginning."""
        return self._between(zip(self.stop_events[:-1], self.start_events[1:], strict=True))

    def _between(self, pairs: Any) -> Int64s:
        return np.array([round(1e6 * self._elapsed(*pair)) for pair in pairs], np.int64)


def measure_clock(cupy: Any, stream: Any, hold: Callable[[], object], release: Callable[[], object]) -> Clock:
    """Measure pairs of events with nothing between them, queued while the stream is held where it can be."""
    events = Events(cupy, _AT_ONCE)
    empty: list[Int64s] = []
    steps: list[Int64s] = []
    for _ in range(1 + _ROUNDS):
        hold()
        for start, stop in zip(events.start_events, events.stop_events, strict=True):
            start.record(stream)
            stop.record(stream)
        release()
        stream.synchronize()
        empty.append(events.read(0, events.pairs))
        steps += [empty[-1], events.gaps()]
    # What is done for the first time takes longer.
    return Clock(floor_s=float(np.median(np.concatenate(empty[1:]))) * 1e-9, step_s=step_ns(*steps) * 1e-9)


def step_ns(*durations: Int64s) -> int:
    """The least that tells two of these durations apart, or one from nothing: they are all multiples of the step."""
    values = np.unique(np.concatenate([np.zeros(1, np.int64), *durations]))
    distances = np.diff(values)
    distances = distances[distances > _ROUNDING_NS]
    return int(distances.min()) if distances.size else _DOCUMENTED_STEP_NS


def worst_clock(clocks: list[Clock]) -> Clock:
    """What may be said of the clocks of several devices."""
    return Clock(max(one.floor_s for one in clocks), max(one.step_s for one in clocks))
