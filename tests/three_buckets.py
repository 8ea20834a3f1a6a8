"""A workload of three buckets on a fabric whose times are easy to add up, for the tests of steps."""

from collbench.planning.costs import Range
from collbench.planning.fabric import Fabric
from collbench.planning.workload import Bucketing, Tensor, Workload

MB = 1e6


def flat(collective: str, size_bytes: int, ranks: int) -> Range:
    """10 ms for each MB of an all_reduce, half for the others, whatever the ranks; a tenth less or more."""
    middle = size_bytes / MB * (10e-3 if collective == "all_reduce" else 5e-3)
    return Range(0.9 * middle, middle, 1.1 * middle)


FABRIC = Fabric("by hand", 4, flat, lambda sharers, hosts: flat)

# Three buckets, ready last first: 1 MB, 1 MB, 2 MB; forward is 30 ms, backward 60 ms.
THREE = Workload(
    name="three",
    title="three tensors",
    source="here",
    samples="samples",
    dtype="float32",
    tensors=tuple(
        Tensor(name, count * 250_000, unit) for unit, (name, count) in enumerate([("a", 2), ("b", 1), ("c", 1)])
    ),
    bucketing=Bucketing("none"),
    compute_s={10: 90e-3, 5: 50e-3},
)
