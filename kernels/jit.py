"""How kernels are compiled for the host: by Numba, to run without the GIL, cached where the machine allows it."""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

# Not beside the source: uninstalling a package leaves there what it did not bring, and the folder that remains hides an
# editable install of the same name.
if not getattr(numba.config, "CACHE_LOCATOR_CLASSES", ""):
    numba.config.CACHE_LOCATOR_CLASSES = "UserProvidedCacheLocator,UserWideCacheLocator,ZipCacheLocator"

F = TypeVar("F", bound=Callable[..., Any])


def inlined(function: F) -> F:
    """Let kernels call this function; it is compiled as a part of each of them."""
    return cast(F, numba.njit(nogil=True, error_model="numpy", boundscheck=False)(function))


def kernel(*signatures: str) -> Callable[[F], F]:
    """Compile a function for these signatures when its module is imported, or take it from the cache.

    numba looks for a place to keep it in NUMBA_CACHE_DIR and in the user's cache, and raises where it can write to
    neither. Then a private folder under the system's temporary folder serves, and if that fails
    too the function is compiled anew in each process.
    """

    def decorator(cache: bool) -> Any:
        return numba.njit(list(signatures), nogil=True, cache=cache, error_model="numpy", boundscheck=False)

    def compiled(function: F) -> F:
        return cast(F, _compiled(function, decorator))

    return compiled


def c_function(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that C calls by its `address`, with the GIL or without; kept like a kernel."""

    def decorator(cache: bool) -> Any:
        return numba.cfunc(signature, cache=cache, error_model="numpy", boundscheck=False)

    return lambda function: _compiled(function, decorator)


def _compiled(function: Callable[..., Any], decorator: Callable[[bool], Any]) -> Any:
    try:
        return decorator(True)(function)
    except (RuntimeError, OSError):  # no place; or a place that cannot be written to after all
        folder = _private_folder()
    if folder is not None:
        os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = folder
        try:
            return decorator(True)(function)
        except (RuntimeError, OSError):
            pass
    return decorator(False)(function)


def _private_folder() -> str | None:
    """Make a folder that is ours alone, since what lies in it is run unseen; None where that cannot be had."""
    folder = Path(tempfile.gettempdir()) / f"collbench-numba-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700
    return str(folder) if ours else None
