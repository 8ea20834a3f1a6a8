"""The element types: one row each, with what data generation and verification must know of their bits."""

from dataclasses import dataclass
from typing import Literal

from collbench.errors import UsageError

Kind = Literal["signed", "unsigned", "float"]


@dataclass(frozen=True)
class Dtype:
    """An element type.

    `precision` counts the significant bits: of a float its mantissa with the hidden bit, of an integer its value bits.
    `exponent_bits` and `bias` are 0 for integers.
    """

    name: str
    itemsize: int
    kind: Kind
    precision: int
    exponent_bits: int = 0
    bias: int = 0

    @property
    def view(self) -> str:
        """Name of the numpy type of the same width without a sign; buffers are filled and compared as this."""
        return f"uint{8 * self.itemsize}"


DTYPES = {
    dtype.name: dtype
    for dtype in (
        Dtype("int8", 1, "signed", 7),
        Dtype("uint8", 1, "unsigned", 8),
        Dtype("int16", 2, "signed", 15),
        Dtype("uint16", 2, "unsigned", 16),
        Dtype("int32", 4, "signed", 31),
        Dtype("uint32", 4, "unsigned", 32),
        Dtype("int64", 8, "signed", 63),
        Dtype("uint64", 8, "unsigned", 64),
        Dtype("float16", 2, "float", 11, 5, 15),
        Dtype("bfloat16", 2, "float", 8, 8, 127),
        Dtype("float32", 4, "float", 24, 8, 127),
        Dtype("float64", 8, "float", 53, 11, 1023),
        Dtype("float8_e4m3", 1, "float", 4, 4, 7),
        Dtype("float8_e5m2", 1, "float", 3, 5, 15),
    )
}

OPERATIONS = ("sum", "prod", "min", "max", "avg")


def dtype_named(name: str) -> Dtype:
    """Look an element type up; an unknown name is a UsageError that lists the known ones."""
    try:
        return DTYPES[name]
    except KeyError:
        raise UsageError(f"dtype: got {name!r}, expected one of {', '.join(DTYPES)}") from None
