"""CUDA devices through CuPy: which one a rank has, memory on it, and the driver's functions by address."""

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from collbench.backends.base import Backend
from collbench.backends.memory import GUARD_BYTES, HostMemory, Memory, Words, Wrong
from collbench.dtypes import Dtype
from collbench.errors import LibraryFailed
from collbench.instances import VARIABLE
from collbench.units import about
from collbench.world import World

_HEADROOM_BYTES, _HEADROOM_SHARE = 1 << 30, 1 / 8
"""Left free on the device, the lesser of the two: what a library takes when it first connects to eight peers and more,
and verification's few words."""
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE: also where all are hidden
_CUPY_FOR = {12: "cupy-cuda12x", 13: "cupy-cuda13x"}
"""CuPy's packages by the CUDA that they were built for: whose drivers run them, all of a major version and later ones
(CUDA Compatibility, "Minor Version Compatibility")."""


@cache
def driver_problem() -> str | None:
    """One sentence that says why CuPy cannot reach a CUDA device here; found through the driver alone, without CuPy."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed; install collbench[cuda13] or collbench[cuda12], as the driver is"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver (libcuda.so.1) is on this machine; a GPU or vGPU and its guest driver are needed"
    status = driver.cuInit(0)
    hidden = os.environ.get(VARIABLE)
    if status == _NO_DEVICE and hidden is not None:
        return f"no CUDA device is visible ({VARIABLE} is {hidden!r}{_named_twice(hidden)})"
    if status:
        return f"the CUDA driver finds no usable device (cuInit: {status}); `nvidia-smi` shows what it sees"
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    if count.value == 0:
        return f"no CUDA device is visible ({VARIABLE} is {'not set' if hidden is None else repr(hidden)})"
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return _too_old(version.value)


def _too_old(driver_version: int) -> str | None:
    """Say why the installed CuPy needs a newer driver than this (12040 is CUDA 12.4); None where it does not.

    By the package's name, since CuPy itself takes a second to import; of a CuPy built here nothing is known.
    """
    built_for = next((major for major, package in _CUPY_FOR.items() if _is_installed(package)), None)
    had = driver_version // 1000
    if built_for is None or had >= built_for:
        return None
    package = _CUPY_FOR[built_for]
    instead = f"install collbench[cuda{had}] in place of {package}, or " if had in _CUPY_FOR else ""
    found = f"the CUDA driver is for CUDA {_version(driver_version)}"
    return f"{found}, and {package} needs one for {built_for}.0 or later; {instead}update the driver"


def _is_installed(package: str) -> bool:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version(package))
    return False


def _version(number: int) -> str:
    return f"{number // 1000}.{number // 10 % 100}"


def _entries(listed: str) -> list[str]:
    return [entry for entry in map(str.strip, listed.split(",")) if entry]


def _named_twice(listed: str) -> str:
    """Which entries of a list are there more than once, in words."""
    twice = [entry for entry, times in Counter(_entries(listed)).items() if times > 1]
    return f", which names {', '.join(twice)} more than once" if twice else ""


def cut_short() -> str | None:
    """Say where fewer devices are visible than CUDA_VISIBLE_DEVICES names; None where it does not."""
    listed = os.environ.get(VARIABLE, "")
    if (seen := visible_devices()) >= len(_entries(listed)):
        return None
    return f"{VARIABLE} is {listed!r} and shows {seen}: CUDA ends the list at the first entry that is no device"


def in_brackets(texts: Iterable[str | None]) -> str:
    """What `cut_short` says on some ranks, each text once, as it follows in a sentence."""
    return "".join(f" ({text})" for text in dict.fromkeys(texts) if text)


def visible_devices() -> int:
    """How many devices this process sees, by the driver alone; 0 where there is none to ask."""
    if driver_problem() is not None:
        return 0
    count = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count))
    return count.value


def device_index(world: World) -> int:
    """Which visible device is this rank's: by its number on the host, or the only one where each rank sees its own."""
    import cupy

    return world.local_rank % int(cupy.cuda.runtime.getDeviceCount())


@cache
def device_uuid(index: int) -> str:
    """What tells a device, or an instance of one (MIG), from every other, on this and any other host."""
    import cupy

    # The driver's newer function tells instances of one device (MIG) apart, which its older one does not.
    driver, device, uuid = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    newer = getattr(driver, "cuDeviceGetUuid_v2", None)
    if newer and not driver.cuDeviceGet(ctypes.byref(device), index) and not newer(ctypes.byref(uuid), device):
        return bytes(uuid).hex()
    return bytes(cupy.cuda.runtime.getDeviceProperties(index)["uuid"]).hex()


def owners(world: World) -> dict[str, list[int]]:
    """Which ranks have which device, by its UUID; collective. A device that cannot be read is a LibraryFailed.

    Pods that share a device have host names of their own, and it is one device all the same.
    """
    import cupy

    try:
        uuid, problem = device_uuid(device_index(world)), None
    except cupy.cuda.runtime.CUDARuntimeError as error:
        uuid, problem = "", f"{world.named(world.rank)} cannot read its device ({error})"
    first = world.first_problem(problem)
    if first is not None:
        raise LibraryFailed(first[1])
    found: dict[str, list[int]] = {}
    for rank, one in enumerate(world.all_gather(uuid)):
        found.setdefault(one, []).append(rank)
    return found


def most_on_a_device(world: World) -> int:
    """The largest number of ranks that have one device; collective."""
    return max(map(len, owners(world).values()))


def ranks_and_hosts(ranks: Sequence[int], world: World) -> str:
    """Name members as `World.named` does: `ranks 0, 1 on a`, or `rank 0 on a and rank 1 on b`."""
    by_host: dict[str, list[int]] = {}
    for rank in ranks:
        by_host.setdefault(world.hosts[rank], []).append(world.ranks[rank])
    told = [f"rank{'s' * (len(its) > 1)} {', '.join(map(str, its))} on {host}" for host, its in by_host.items()]
    return " and ".join(told)


def alone_problem(world: World) -> str | None:
    """One sentence that says why several ranks cannot talk to each other; None if they can."""
    if world.size > 1 and world.comm is None:
        return f"no MPI library could be loaded to bring the ranks together ({world.alone_because})"
    return None


def sharing_problem(world: World) -> str | None:
    """One sentence that says which ranks would share a device; the same on every rank, and collective."""
    try:
        shared = owners(world)
    except LibraryFailed as error:
        return str(error)
    hidden = world.all_gather(cut_short())
    for ranks in shared.values():
        if len(ranks) > world.ranks_per_device:
            allowed = f"at most {world.ranks_per_device}" if world.ranks_per_device > 1 else "one"
            why = in_brackets(hidden[rank] for rank in ranks)
            return (
                f"{ranks_and_hosts(ranks, world)} have the same device{why}, expected {allowed} each; start as "
                "many ranks a host as it has devices, or write ranks_per_device under [measure] (functional only)"
            )
    return None


def free_bytes() -> int:
    """Memory of the current device that buffers may take: what is free, with CuPy's unused blocks given back."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    free, total = map(int, cupy.cuda.runtime.memGetInfo())
    return max(0, free - min(_HEADROOM_BYTES, int(total * _HEADROOM_SHARE)))


def room_problem(need_bytes: int, index: int) -> str | None:
    """One sentence that says why a device has no room for so many bytes of buffers; None if it has."""
    import cupy

    with cupy.cuda.Device(index):
        free = free_bytes()
    if need_bytes <= free:
        return None
    found = f"{about(free)} of {device_name(index)} is free for them"
    return f"device memory: the buffers need {about(need_bytes)}, and {found}"


@cache
def device_name(index: int) -> str:
    """The device's model."""
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(index)["name"].decode(errors="replace"))


def driver_version() -> str:
    """The version of CUDA that the driver has."""
    import cupy

    return f"CUDA {_version(int(cupy.cuda.runtime.driverGetVersion()))}"


class OnDevice(Backend):
    """What a backend says of the device that its process has: its name, its number here, its UUID, who shares it."""

    on_device = True
    _device: int
    _sharers: int

    @property
    def device(self) -> str:
        return device_name(self._device)

    @property
    def device_number(self) -> int | None:
        return self._device

    @property
    def uuid(self) -> str:
        return device_uuid(self._device)

    @property
    def ranks_per_device(self) -> int | None:
        return self._sharers

    def for_group(self, group: World | None, number: int) -> Backend | None:
        # Groups that are measured at once share devices as the ranks of one group do.
        told = self.group.all_gather(None if group is None else (number, self.uuid))
        made = self._opened_for(group, number)
        if isinstance(made, OnDevice):
            uuids = [one[1] for one in told if one is not None]
            made._sharers = max(uuids.count(one[1]) for one in told if one is not None and one[0] == number)
        return made

    def _opened_for(self, group: World | None, number: int) -> Backend | None:
        """Open the library anew for a part of the ranks, as `Backend.for_group` says."""
        return super().for_group(group, number)


class Driver:
    """The CUDA driver's functions by address; CuPy's own runtime is linked into it and has none to look up."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def address(self, name: str) -> int:
        """Where a function is."""
        try:
            return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            raise LibraryFailed(f"the CUDA driver has no {name}") from None

    def call(self, name: str, *words: int) -> int:
        """Call one with 64-bit words; its status."""
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * len(words))
        return int(prototype(self.address(name))(*words))


class DeviceMemory(Memory):
    """Memory of the current device, taken from the driver directly and not from CuPy's pool."""

    def __init__(self, dtype: Dtype, length: int, stream: Any) -> None:
        import cupy

        super().__init__(dtype, length)
        self._stream = stream
        self._memory = self._taken(2 * GUARD_BYTES + length * dtype.itemsize)
        elements = length + 2 * self.guard
        self._all = cupy.ndarray((elements,), dtype.view, cupy.cuda.MemoryPointer(self._memory, 0))

    def _taken(self, size_bytes: int) -> Any:
        """Allocate; CuPy's own kind of memory, freed with the last array over it."""
        import cupy

        return cupy.cuda.Memory(size_bytes)

    @property
    def address(self) -> int:
        return int(self._all.data.ptr) + GUARD_BYTES

    @property
    def array(self) -> Any:
        """The data without the guards, as unsigned words; a cupy.ndarray."""
        return self._part(0, self.length)

    @property
    def allocation(self) -> int:
        """Where what was allocated begins: CUDA's handles for other processes know no other address."""
        return int(self._all.data.ptr)

    def fill(self, start: int, length: int, words: Words, index: int, *, inverted: bool = False) -> None:
        from collbench.kernels import pattern_cuda

        pattern_cuda.fill(self._part(start, length), words, index, inverted, self._stream)
        self._stream.synchronize()

    def compare(self, start: int, length: int, words: Words, index: int, tolerance: int = 0) -> Wrong:
        from collbench.kernels import pattern_cuda

        wrong, first = pattern_cuda.compare(self._part(start, length), words, index, tolerance, self._stream)
        return int(wrong), int(first)

    def bits(self, start: int) -> int:
        return int(self._part(start, 1).get(stream=self._stream)[0])

    def close(self) -> None:
        del self._all, self._memory

    def _part(self, start: int, length: int) -> Any:
        return self._all[self.guard + start : self.guard + start + length]


class PinnedMemory(HostMemory):
    """Page-locked memory of the host, taken from the driver directly and not from CuPy's pool."""

    def _take(self, size_bytes: int, pages: str) -> Any:
        import cupy

        return cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(size_bytes), 0)
