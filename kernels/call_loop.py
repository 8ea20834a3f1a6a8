"""The loop that measures everything: C calls by address, with the clock read around them.

A call list is a uint64 array of shape (rotations, calls, 14). One call is its function's address, the mask of its
result that must be zero, and twelve argument words. Iteration k uses rotation k mod rotations. Twelve words suffice
for the longest signature in use (MPI_Sendrecv). On x86-64 and on 64-bit Arm Linux an integer or pointer argument
takes one word whatever its width, and words beyond what the callee declares are ignored.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from collbench.kernels.jit import kernel

ADDRESS, MASK, FIRST_WORD = 0, 1, 2
WORDS = 12
CALL_LENGTH = FIRST_WORD + WORDS
CallList = npt.NDArray[np.uint64]
Stamps = npt.NDArray[np.int64]
_CLOCK_MONOTONIC = 1
_NANOSECONDS = 1_000_000_000


@intrinsic
def _invoke(typing_context: Any, address: Any, *words: Any) -> Any:
    """Call the C function at `address` with integer words; the result is the whole first return register."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        function = builder.inttoptr(arguments[0], ir.FunctionType(word, [word] * WORDS).as_pointer())
        return builder.call(function, cgutils.unpack_tuple(builder, arguments[1]))

    return types.uint64(types.uint64, types.StarArgTuple((types.uint64,) * len(words))), generate


@intrinsic
def now(typing_context: Any) -> Any:
    """Read CLOCK_MONOTONIC in nanoseconds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, half = ir.IntType(64), ir.IntType(32)
        timespec = cgutils.alloca_once(builder, ir.ArrayType(word, 2))
        function_type = ir.FunctionType(half, [half, timespec.type])
        function = cgutils.get_or_insert_function(builder.module, function_type, "clock_gettime")
        builder.call(function, [half(_CLOCK_MONOTONIC), timespec])
        seconds = builder.load(cgutils.gep_inbounds(builder, timespec, 0, 0))
        nanoseconds = builder.load(cgutils.gep_inbounds(builder, timespec, 0, 1))
        return builder.add(builder.mul(seconds, word(_NANOSECONDS)), nanoseconds)

    return types.int64(), generate


@kernel("uint64(uint64[:, :, ::1], uint64)")
def make_calls(calls: CallList, k: int) -> np.uint64:
    """Make the calls of rotation k mod rotations; the masked results, ORed."""
    status = np.uint64(0)
    rotation = k % np.uint64(calls.shape[0]) if calls.shape[0] > 1 else np.uint64(0)
    for c in range(np.uint64(calls.shape[1])):
        call = calls[rotation, c]
        result = _invoke(
            call[0], call[2], call[3], call[4], call[5], call[6], call[7],
            call[8], call[9], call[10], call[11], call[12], call[13],
        )  # fmt: skip
        status |= result & call[1]
    return status


@kernel("uint64(uint64[:, :, ::1], uint64[:, :, ::1], uint64[:, :, ::1], uint64, uint64, int64[:, ::1])")
def call_loop(meet: CallList, run: CallList, finish: CallList, first: int, batch: int, stamps: Stamps) -> np.uint64:
    """Measure stamps.shape[0] samples of `batch` iterations each; the masked results of all calls, ORed.

    A sample is: meet, the clock, `run` batch times, the clock, finish, the clock. `stamps` (samples x 3, int64)
    receives the three readings in nanoseconds of CLOCK_MONOTONIC. `first` is the number of the first iteration, so
    that rotations go on where the last block ended. Meet and finish use the rotation of their sample's first
    iteration. Where nothing is to be finished the third reading is the second one, and costs nothing.
    """
    status = np.uint64(0)
    k = first
    for sample in range(np.uint64(stamps.shape[0])):
        status |= make_calls(meet, k)
        start = now()
        for b in range(batch):
            status |= make_calls(run, k + b)
        queued = now()
        done = queued
        if finish.shape[1] > 0:
            status |= make_calls(finish, k)
            done = now()
        # Stored only now: a store that misses the cache, or touches a new page, would be a part of the sample.
        stamps[sample, 0] = start
        stamps[sample, 1] = queued
        stamps[sample, 2] = done
        k += batch
    return status


@kernel("uint64(int64[::1])")
def read_clock(stamps: Stamps) -> np.uint64:
    """Fill `stamps` with consecutive readings of the loop's clock, in nanoseconds; 0."""
    for i in range(stamps.shape[0]):
        stamps[i] = now()
    return np.uint64(0)
