"""How a framework cuts a model's gradients into the messages that travel.

Gradients become ready during backward in the reverse order of the parameters; all three rules go through them that way.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

DDP_FIRST_BYTES = 2**20
DDP_CAP_BYTES = 25 * 2**20
"""PyTorch: kDefaultFirstBucketBytes and kDefaultBucketBytesCap of torch/csrc/distributed/c10d/reducer.hpp."""

HOROVOD_THRESHOLD_BYTES = 128 * 2**20
HOROVOD_CYCLE_S = 1e-3
"""Horovod: defaults of HOROVOD_FUSION_THRESHOLD and HOROVOD_CYCLE_TIME in horovod/common/operations.cc."""
_ROUNDING = 1e-9
"""Parts of a cycle by which a gradient that is ready at its end may seem to be late."""


_Closes = Callable[[int, int, int], bool]
"""Whether a bucket closes: by the bytes that it holds, the size of the tensor, and how many buckets are closed."""


@dataclass(frozen=True)
class Bucket:
    """Gradients that travel together; `ready` is the share of backward, by bytes, after which the last one is there.

    Those of an `expert` travel among the devices that hold the same experts, the others among all.
    """

    tensors: int
    size_bytes: int
    ready: float
    expert: bool = False


def ddp(sizes: Sequence[int], first: int = DDP_FIRST_BYTES, cap: int = DDP_CAP_BYTES) -> list[Bucket]:
    """Cut as PyTorch's DistributedDataParallel does: a bucket closes when it has reached its limit.

    So it overshoots by up to one tensor; the limit of the first bucket is smaller. `sizes` are in bytes, in the order
    of the parameters.
    """
    return _bucketed(sizes, lambda held, size, closed: held >= (cap if closed else first))


def horovod(sizes: Sequence[int], threshold: int = HOROVOD_THRESHOLD_BYTES) -> list[Bucket]:
    """Cut as Horovod's fusion buffer does: no bucket of several tensors passes the threshold."""
    return _bucketed(sizes, lambda held, size, closed: held + size > threshold, before=True)


def unfused(sizes: Sequence[int]) -> list[Bucket]:
    """Each tensor alone."""
    return _bucketed(sizes, lambda held, size, closed: True)


def by_unit(sizes: Sequence[int], units: Sequence[int]) -> list[Bucket]:
    """One bucket for each unit, such as a layer; the tensors of a unit stand together."""
    ends = [index for index in range(len(units)) if index == 0 or units[index] != units[index - 1]]
    cuts = [*ends, len(sizes)]
    groups = [sizes[start:end] for start, end in itertools.pairwise(cuts)]
    return _made(reversed(groups), sum(sizes))


def apart(sizes: Sequence[int], experts: Sequence[bool], cut: Callable[[Sequence[int]], list[Bucket]]) -> list[Bucket]:
    """Cut the gradients of experts apart from the others, and return both in the order in which they become ready.

    `cut` gets the places of some of the tensors, in the order of the parameters, and returns their buckets.
    """
    total = sum(sizes)
    passed = list(itertools.accumulate(reversed(sizes)))[::-1]
    found: list[Bucket] = []
    for expert in (False, True):
        places = [place for place, one in enumerate(experts) if one == expert]
        first = len(places)
        for bucket in cut(places):
            first -= bucket.tensors
            found.append(replace(bucket, ready=passed[places[first]] / total, expert=expert))
    return sorted(found, key=lambda bucket: bucket.ready)


def horovod_cycles(
    sizes: Sequence[int], ready_s: Sequence[float], threshold: int, cycle_s: float
) -> list[tuple[Bucket, float]]:
    """Cut as Horovod does while backward goes on: each cycle takes what is ready, up to the threshold at a time.

    `sizes` in bytes and `ready_s` in seconds are in the order in which the gradients become ready. Returns each bucket
    with the instant of its cycle.
    """
    total = sum(sizes)
    found: list[tuple[Bucket, float]] = []
    passed = at = 0
    while at < len(sizes):
        tick = math.ceil(ready_s[at] / cycle_s - _ROUNDING) * cycle_s
        latest = max(ready_s[at], tick + _ROUNDING * cycle_s)
        held = number = 0
        while at < len(sizes) and ready_s[at] <= latest and (not number or held + sizes[at] <= threshold):
            held, number, at = held + sizes[at], number + 1, at + 1
        passed += held
        found.append((Bucket(number, held, passed / total), tick))
    return found


def _bucketed(sizes: Sequence[int], closes: _Closes, before: bool = False) -> list[Bucket]:
    """Go through the tensors; `before` asks before a tensor is added, else after."""
    groups: list[list[int]] = []
    held: list[int] = []
    held_bytes = 0
    for size in reversed(sizes):
        if before and held and closes(held_bytes, size, len(groups)):
            groups.append(held)
            held, held_bytes = [], 0
        held.append(size)
        held_bytes += size
        if not before and closes(held_bytes, size, len(groups)):
            groups.append(held)
            held, held_bytes = [], 0
    if held:
        groups.append(held)
    return _made(groups, sum(sizes))


def _made(groups: Iterable[Sequence[int]], total: int) -> list[Bucket]:
    passed, made = 0, []
    for group in groups:
        passed += sum(group)
        made.append(Bucket(len(group), sum(group), passed / total))
    return made
