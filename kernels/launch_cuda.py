"""Our own CUDA kernels: compiled from the .cu files beside, and launched by CuPy or, by address, from a call list."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cupy
import numpy as np

THREADS = 512
"""A block. Every device holds at least two of them at once a multiprocessor, and few are enough for a short message."""


@dataclass(frozen=True)
class Kernel:
    """A kernel, and how many blocks of it the device holds at once."""

    function: Any
    blocks_at_once: int

    def blocks(self, items: int) -> int:
        """Blocks for so many items of work; where they are more than the device holds, the threads stride over them."""
        return max(1, min(-(-items // THREADS), self.blocks_at_once))

    def launch(self, blocks: int, arguments: Sequence[Any], stream: Any) -> None:
        """Queue it through CuPy; `arguments` are numpy scalars of the parameters' types."""
        self.function((blocks,), (THREADS,), tuple(arguments), stream=stream)

    def words(self, blocks: int, arguments: Sequence[Any], stream: int) -> tuple[tuple[int, ...], object]:
        """The words of cuLaunchKernel that queue the same, and what must stay alive as long as they are used.

        cuLaunchKernel(function, grid x y z, block x y z, shared bytes, stream, parameters, extra) reads `parameters`,
        an array with the address of each argument's value, when it is called.
        """
        values = [np.array(argument) for argument in arguments]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        function = int(self.function.kernel.ptr)
        words = (function, blocks, 1, 1, THREADS, 1, 1, 0, stream, int(pointers.ctypes.data), 0)
        return words, (self.function, values, pointers)


def compiled(sources: Sequence[str], macros: dict[str, str | int], name: str) -> Kernel:
    """Compile one kernel of the sources, read as one text; CuPy keeps what it compiled on disk."""
    folder = Path(__file__).parent
    code = "".join((folder / source).read_text() for source in sources)
    options = tuple(f"-D{macro}={value}" for macro, value in macros.items())
    function = cupy.RawModule(code=code, options=options).get_function(name)
    at_once = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.kernel.ptr, THREADS, 0)
    return Kernel(function, at_once * cupy.cuda.Device().attributes["MultiProcessorCount"])
