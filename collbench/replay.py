"""The replay of a workload: its gradients reduced bucket by bucket, as one operation of a case.

A case's pattern says all of it, so that no rank and no reader needs the workload's file:

    resnet18/ddp/none: 2052000 28852224 15853824                        the buckets, in bytes, back to back
    resnet18/ddp/20 ms backward 0.667: 2052000 28852224 15853824        the same while a step computes so long

Before each bucket the rank computes until that bucket's gradients are ready, as the planner's pipeline has it: backward
is the last part of the step, and gradients become ready in proportion to their bytes.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collbench.errors import CannotRun
from collbench.scenario import Sweep

if TYPE_CHECKING:  # pydantic, which only rank 0 needs
    from collbench.planning.workload import Workload

NAME = "replay"
NONE, GIVEN = "none", "given"
"""Values of `computes` besides durations: nothing between the buckets; every time that the workload itself gives."""
_PATTERN = re.compile(r"(.+)/(\w+)/(?:none|([0-9.e+-]+) ms backward ([0-9.e+-]+)): ([0-9]+(?: [0-9]+)*)")
_NS = 1_000_000_000
_DAY_S = 86400.0
_SHOWN = 80


@dataclass(frozen=True)
class Replayed:
    """What is replayed: bytes of the buckets in the order in which they become ready, and the step's computation.

    `compute_s` is 0 where the buckets come back to back; `backward` is the share of it during which gradients become
    ready.
    """

    workload: str
    bucketing: str
    sizes: tuple[int, ...]
    compute_s: float = 0.0
    backward: float = 1.0

    @property
    def text(self) -> str:
        """As the case's pattern has it."""
        compute = f"{self.compute_s * 1e3:.9g} ms backward {self.backward:.3g}" if self.compute_s else NONE
        return f"{self.workload}/{self.bucketing}/{compute}: {' '.join(map(str, self.sizes))}"

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of backward, by bytes, after which each bucket is ready."""
        total, passed, found = sum(self.sizes), 0, []
        for size in self.sizes:
            passed += size
            found.append(passed / total)
        return tuple(found)

    @property
    def pauses_ns(self) -> tuple[int, ...]:
        """How long is computed before each bucket; their sum is the whole computation."""
        forward = self.compute_s * (1 - self.backward)
        ready = [round((forward + self.compute_s * self.backward * share) * _NS) for share in self.shares]
        return tuple(after - before for before, after in zip([0, *ready], ready, strict=False))


def parse(pattern: str) -> Replayed:
    """Read a case's pattern."""
    parts = _PATTERN.fullmatch(pattern)
    found = None if parts is None else _replayed(*parts.groups())
    if found is None:
        got = repr(pattern if len(pattern) < _SHOWN else f"{pattern[:_SHOWN]}...")
        raise CannotRun(f"{NAME}: got pattern {got}, expected WORKLOAD/BUCKETING/COMPUTE: SIZES; run kind replay")
    return found


def _replayed(name: str, bucketing: str, compute_ms: str | None, backward: str, sizes: str) -> Replayed | None:
    """Return what the parts say; None where they are no sizes, times or shares."""
    try:
        held = tuple(int(size) for size in sizes.split())
        if not 0 < min(held) <= max(held) < 1 << 63:
            return None
        if compute_ms is None:
            return Replayed(name, bucketing, held)
        compute_s, share = float(compute_ms) / 1e3, float(backward)
    except ValueError:  # numbers of thousands of digits too
        return None
    return Replayed(name, bucketing, held, compute_s, share) if 0 < compute_s <= _DAY_S and 0 <= share <= 1 else None


def short(pattern: str) -> str:
    """Return a pattern without its sizes, for tables and messages; that of another collective as it is."""
    return pattern.partition(": ")[0].partition(" backward ")[0]


def problem(workload: "Workload") -> str | None:
    """Say why a workload cannot be replayed; None where it can."""
    if re.fullmatch(r"[A-Za-z0-9_.+-]{1,64}", workload.name) is None:
        return "a file whose name has letters, digits, and any of _ . + - alone"
    if workload.zero:
        return f"a workload whose gradients are all-reduced; this one has ZeRO stage {workload.zero}"
    return None


def sweeps(
    sweep: Sweep,
    workloads: Sequence["Workload"],
    bucketings: Sequence[str],
    dtypes: Sequence[str],
    computes: Sequence[str | float],
) -> Iterator[Sweep]:
    """Make the ordinary sweeps of one of kind "replay": one for each workload, bucketing and type.

    `bucketings` and `dtypes` are empty for the workload's own.
    """
    for workload in workloads:
        for bucketing in bucketings or (workload.bucketing.kind,):
            for dtype in dtypes or (workload.dtype,):
                how = replace(workload.bucketing, kind=bucketing)
                cut = replace(workload, bucketing=how, dtype=dtype)
                sizes = tuple(bucket.size_bytes for bucket in cut.buckets())
                patterns = [
                    Replayed(workload.name, bucketing, sizes, seconds, workload.backward).text
                    for compute in computes
                    for seconds in _seconds(compute, workload)
                ]
                yield replace(sweep, patterns=tuple(dict.fromkeys(patterns)), dtypes=(dtype,), sizes=(sum(sizes),))


def _seconds(compute: str | float, workload: "Workload") -> tuple[float, ...]:
    if isinstance(compute, float):
        return (compute,)
    return (0.0,) if compute == NONE else tuple((workload.compute_s or {}).values())
