"""What is printed, to an output that may be full, closed, broken or missing: the run is the product, not its text."""

import contextlib
import os
import sys
from typing import TextIO

from collbench.errors import CollbenchError

_MODES = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)
"""How a missing standard stream is replaced: what is printed to a missing output fails, what is said of it does not."""


def mend_streams() -> None:
    """Open what of the three standard streams is closed: the next file, or one of a library, would take its number."""
    for number, mode in enumerate(_MODES):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, mode)  # the lowest free number
            os.set_inheritable(opened, True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  it lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def tell(text: str) -> None:
    """Print a line while work goes on; an output that cannot take it gets nothing more, and ends nothing."""
    try:
        print(text, flush=True)
    except (OSError, ValueError):
        silence(sys.stdout)


def complain(text: str) -> None:
    """Print a line to standard error, as far as that can be."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        silence(sys.stderr)


def deliver(text: str) -> None:
    """Print what a command is there to print; CollbenchError where the output refuses it, not where a reader left."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # `collbench list | head`
        silence(sys.stdout)
    except (OSError, ValueError) as error:
        silence(sys.stdout)
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CollbenchError(
            f"standard output: could not print: {reason}, expected an output that takes text; print it somewhere else"
        ) from error


def silence(stream: TextIO) -> None:
    """Let what a broken stream still holds go nowhere, or Python complains of it at the end and exits with 120."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
