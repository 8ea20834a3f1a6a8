"""NVML through nvidia-ml-py: asked so that a query that a device, a vGPU above all, denies is an answer and no error.

library = nvml()                       an `Nvml`, or a sentence that says why there is none
handle = library.handle(uuid)          the device whose UUID CuPy gave (`backends.cuda.device_uuid`), or None
library.ask("nvmlDeviceGetName", handle)    the answer, or NOT_AVAILABLE
"""

import contextlib
from functools import cache
from typing import Any, Final

NOT_AVAILABLE: Final = "not available"
"""The answer to a query that was denied, or that this driver or this version of nvidia-ml-py does not know."""


class Nvml:
    """NVML, initialised for the life of the process; `module` is pynvml."""

    def __init__(self, module: Any) -> None:
        self._module = module
        module.nvmlInit()
        self._handles: dict[str, Any] = {}

    def ask(self, name: str, *arguments: Any) -> Any:
        """Return what a function of NVML answers, or NOT_AVAILABLE."""
        try:
            return getattr(self._module, name)(*arguments)
        except self._module.NVMLError:
            return NOT_AVAILABLE
        except (AttributeError, TypeError, ValueError, OSError):  # another version of nvidia-ml-py than was tried
            return NOT_AVAILABLE

    def handle(self, uuid: str) -> Any | None:
        """Find a device, or an instance of one (MIG), by the 32 hexadecimal digits of its UUID; None if NVML cannot."""
        if uuid not in self._handles:
            text = "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))
            for kind in ("GPU", "MIG"):
                found = self.ask("nvmlDeviceGetHandleByUUID", f"{kind}-{text}")
                if found is not NOT_AVAILABLE:
                    self._handles[uuid] = found
                    break
        return self._handles.get(uuid)

    def whole(self, handle: Any) -> Any:
        """Return the device that an instance (MIG) is a part of; the device itself where it is whole."""
        if not self.is_part(handle):
            return handle
        parent = self.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
        return handle if parent is NOT_AVAILABLE else parent

    def is_part(self, handle: Any) -> bool:
        """Say whether this is an instance of a device (MIG)."""
        answer = self.ask("nvmlDeviceIsMigDeviceHandle", handle)
        return answer is not NOT_AVAILABLE and bool(getattr(answer, "value", answer))

    def number(self, name: str, *arguments: Any) -> int | None:
        """Return a number that NVML answers; None where it does not, or where it answers its word for "no value"."""
        answer = self.ask(name, *arguments)
        return answer if isinstance(answer, int) and 0 <= answer < 2**32 - 1 else None

    def fields(self, handle: Any, *fields: tuple[int, int]) -> list[int | None]:
        """Return field values, each asked by its number and scope (a link); None where it is denied."""
        answers = self.ask("nvmlDeviceGetFieldValues", handle, list(fields))
        if answers is NOT_AVAILABLE:
            return [None] * len(fields)
        return [int(one.value.uiVal) if one.nvmlReturn == 0 else None for one in answers]


@cache
def nvml() -> Nvml | str:
    """Open NVML, once; a sentence where this machine has none."""
    try:
        import pynvml
    except ImportError:
        return "nvidia-ml-py is not installed; install collbench[cuda13] or collbench[cuda12]"
    try:
        return Nvml(pynvml)
    except Exception as error:  # NVMLError is known only with the module
        return f"NVML cannot be used ({error}); `nvidia-smi` shows what the driver sees"


def opened() -> Nvml | None:
    """Return NVML, or None where this machine has none."""
    library = nvml()
    return library if isinstance(library, Nvml) else None


def text(answer: Any) -> str:
    """Return an answer as text; some versions of nvidia-ml-py give bytes."""
    if isinstance(answer, bytes):
        return answer.split(b"\0")[0].decode(errors="replace")
    return str(answer)


def pair(answer: Any) -> tuple[Any, Any]:
    """Return an answer of two values, such as a mode now and after the next start; denied, each is NOT_AVAILABLE."""
    with contextlib.suppress(TypeError, ValueError):
        if answer is not NOT_AVAILABLE:
            first, second = answer
            return first, second
    return NOT_AVAILABLE, NOT_AVAILABLE
