"""Reduce two inputs in device memory to one output; and what a type and an operation are in CUDA."""

from functools import cache
from typing import Any

import numpy as np

from collbench.kernels.launch_cuda import Kernel, compiled

_OPERATIONS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
_INTEGERS = {"int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64"} | {
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64"
}  # fmt: skip
# How an element is stored, what is computed with, and how the one becomes the other.
_FLOATS = {
    "float16": ("u16", "f32", "FLOAT16"),
    "bfloat16": ("u16", "f32", "BFLOAT16"),
    "float32": ("f32", "f32", "PLAIN"),
    "float64": ("f64", "f64", "PLAIN"),
}
_PACK_BYTES = 16


def problem(dtype: str, operation: str) -> str | None:
    """Say why there is no kernel for the type and the operation; None if there is."""
    if operation not in _OPERATIONS:
        return f"our kernels have no operation {operation}"
    if dtype not in _INTEGERS and dtype not in _FLOATS:
        return f"our kernels cannot reduce {dtype}"
    return None


def macros(dtype: str, operation: str) -> dict[str, str | int]:
    """What arithmetic.cu is compiled with."""
    if dtype in _FLOATS:
        element, value, kind = _FLOATS[dtype]
    else:
        element, kind = _INTEGERS[dtype], "PLAIN"
        # Sums and products have the same bits without the sign, and may wrap.
        value = element if operation in ("min", "max") else "u64" if element.endswith("64") else "u32"
    return {"ELEMENT": element, "VALUE": value, "FORMAT": kind, "OPERATION": _OPERATIONS[operation]}


@cache
def kernel(dtype: str, operation: str) -> Kernel:
    """The kernel: out, one input, the other, elements."""
    return compiled(["arithmetic.cu", "reduce.cu"], macros(dtype, operation), "reduce")


def arguments(made: Kernel, out: int, one: int, other: int, count: int, itemsize: int) -> tuple[int, tuple[Any, ...]]:
    """How many blocks to launch, and with what."""
    blocks = made.blocks(-(-count * itemsize // _PACK_BYTES))
    return blocks, (np.uint64(out), np.uint64(one), np.uint64(other), np.uint64(count))
