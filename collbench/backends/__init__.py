"""The table of backends: a name, and where its class is; a library that is missing keeps its name and says why."""

import importlib
from typing import TYPE_CHECKING, cast

from collbench.errors import UsageError

if TYPE_CHECKING:
    from collbench.backends.base import Backend

DEFAULT = "default"
"""In a scenario: nccl where every rank has a device of its own, else mpi, else loopback."""

TABLE = {
    "mpi": "collbench.backends.mpi:Mpi",
    "nccl": "collbench.backends.nccl:Nccl",
    "mpi_cuda": "collbench.backends.mpi_cuda:MpiCuda",
    "staged": "collbench.backends.staged:Staged",
    "device": "collbench.backends.device:Device",
    "peer": "collbench.backends.peer:Peer",
    "perftest": "collbench.backends.perftest:Perftest",
    "loopback": "collbench.backends.loopback:Loopback",
}


def names() -> tuple[str, ...]:
    """The names of all backends, whether or not they can run here."""
    return tuple(TABLE)


def backend_named(name: str) -> "type[Backend]":
    """Import a backend's class (not its library); an unknown name is a UsageError that lists the known ones."""
    if name not in TABLE:
        raise UsageError(f"backend: got {name!r}, expected one of {', '.join(TABLE)}")
    module, _, attribute = TABLE[name].partition(":")
    return cast("type[Backend]", getattr(importlib.import_module(module), attribute))
