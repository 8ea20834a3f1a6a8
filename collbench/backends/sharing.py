"""Device memory that ranks of one host map into each other's address space, by CUDA's handles between processes (IPC).

CUDA's rules (runtime API, "Interprocess communication"): a handle is of a whole allocation by cudaMalloc; the process
that made it may not open it; it may be opened for a device that the process does not see; and the memory may be freed
only after all others have unmapped it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from collbench.backends.cuda import DeviceMemory
from collbench.world import World

_PAGE_BYTES = 1 << 21
"""A whole page of the device's: smaller allocations share one, and would show others more than is meant."""


def shareable(size_bytes: int) -> int:
    """So many bytes an allocation must have that others are to map."""
    return -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES


class ShareableMemory(DeviceMemory):
    """Device memory in pages of its own."""

    def _taken(self, size_bytes: int) -> Any:
        return super()._taken(shareable(size_bytes))


class Shared:
    """This rank's allocations as others see them, and theirs as this rank sees them.

    `addresses[rank]` are where that rank's allocations begin, in the order in which it listed them, for the ranks in
    `wanted` and this one. Making and closing it are collective: all ranks succeed, or all raise Agreed.
    """

    def __init__(self, group: World, allocations: Sequence[int], wanted: Iterable[int]) -> None:
        from cupy.cuda import runtime

        self._group = group
        self._opened: list[int] = []
        others = [rank for rank in wanted if rank != group.rank]
        handles = group.all_gather(
            group.all_or_none(lambda: [runtime.ipcGetMemHandle(allocation) for allocation in allocations])
        )
        self.addresses = {group.rank: tuple(allocations)}

        def open_all() -> None:
            for rank in others:
                self.addresses[rank] = tuple(self._open(handle) for handle in handles[rank])

        try:
            group.all_or_none(open_all)
        except BaseException:
            self.close()
            raise

    def _open(self, handle: bytes) -> int:
        from cupy.cuda import runtime

        self._opened.append(int(runtime.ipcOpenMemHandle(handle)))
        return self._opened[-1]

    def meet(self) -> None:
        """Wait for all ranks."""
        self._group.all_gather(None)

    def close(self) -> None:
        """Unmap the others' memory, and return when they have unmapped this rank's. This rank must not use it now."""
        from cupy.cuda import runtime

        for address in self._opened:
            runtime.ipcCloseMemHandle(address)
        self._opened.clear()
        self.meet()


def sharing_refused(group: World, pairs: Iterable[tuple[int, int]]) -> str | None:
    """One sentence that says which two ranks cannot reach each other's memory; collective, the same on every rank.

    Of each pair the first one maps the second one's memory, once, to see whether it can: what the devices' properties
    say is not enough (MIG, vGPUs, containers, devices that only their own rank sees).
    """
    from collbench.backends.cuda import cut_short, device_index, device_name, device_uuid, in_brackets

    index = device_index(group)
    mine = group.hosts[group.rank], device_uuid(index), device_name(index)
    where, hidden = group.all_gather(mine), group.all_gather(cut_short())
    targets = [target for rank, target in pairs if rank == group.rank and target != rank]
    problem = None
    for target in targets:
        names = _both(group, target, where)
        apart = f"{mine[0]} and {where[target][0]}" if where[target][0] != mine[0] else ""
        if where[target][1] == mine[1]:
            why = in_brackets((hidden[group.rank], hidden[target]))
            problem = f"{names} have the same device{why}{apart and f', on {apart}'}; expected one each"
        elif apart:
            problem = f"{names} are on different hosts, {apart}; expected one"
    first = group.first_problem(problem) or group.first_problem(_mapping_problem(group, targets, where))
    return first[1] if first else None


def _both(group: World, target: int, where: Sequence[tuple[str, str, str]]) -> str:
    """Name this rank and another by their numbers in the launch, with their devices."""
    ranks, devices = zip(*((group.ranks[rank], where[rank][2]) for rank in (group.rank, target)), strict=True)
    return f"ranks {ranks[0]} and {ranks[1]} ({devices[0]} and {devices[1]})"


def _mapping_problem(group: World, targets: Sequence[int], where: Sequence[tuple[str, str, str]]) -> str | None:
    """Map a little memory of each target; what stands in the way, in words. Collective."""
    import cupy

    try:
        memory = cupy.cuda.Memory(_PAGE_BYTES)
        handle, problem = cupy.cuda.runtime.ipcGetMemHandle(memory.ptr), None
    except cupy.cuda.runtime.CUDARuntimeError as error:
        own = f"rank {group.ranks[group.rank]} ({where[group.rank][2]})"
        handle, problem = b"", f"{own} cannot share its memory: {error}"
    handles = group.all_gather(handle)
    for target in targets:
        if problem is None and handles[target]:
            try:
                cupy.cuda.runtime.ipcCloseMemHandle(cupy.cuda.runtime.ipcOpenMemHandle(handles[target]))
            except cupy.cuda.runtime.CUDARuntimeError as error:
                problem = f"{_both(group, target, where)} have no peer access to each other's memory: {error}"
    group.all_gather(None)  # all have unmapped it
    return problem
