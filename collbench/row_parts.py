"""Parts of a row that the runner fills in: sizes, pages, and what verification found."""

from typing import Any

from collbench.backends.base import BoundCall
from collbench.collectives import collective_of
from collbench.dtypes import DTYPES
from collbench.errors import CannotRun
from collbench.plan import Case
from collbench.verify import Damage
from collbench.world import World


def sizes(case: Case, ranks: int) -> dict[str, int]:
    """The size and count of a case on so many ranks; nothing where it cannot be laid out on them."""
    try:
        collective = collective_of(case.collective, case.pattern, ranks)
    except CannotRun:
        return {}
    shape = collective.shape(case.requested_bytes, DTYPES[case.dtype].itemsize if case.dtype else 1, max(1, ranks))
    return {"size_bytes": shape.size_bytes, "count": shape.count} if ranks else {}


def page_bytes(bound: BoundCall, group: World) -> int | None:
    """The largest page behind any rank's buffers, on the group's rank 0; None where nobody knows."""
    own = [memory.page_bytes() or 0 for one in bound.buffers for memory in one.memories]
    return max(group.gather(max(own, default=0)) or [0]) or None


def wrong(damage: Damage | None, group: World) -> dict[str, Any]:
    """Bring the ranks' damages together: the total, and the first rank's first wrong element."""
    damages = group.all_gather(damage)
    total = sum(one.wrong for one in damages if one is not None)
    first = next(((rank, one) for rank, one in enumerate(damages) if one is not None), None)
    if first is None:
        return {"wrong": 0}
    rank, one = first
    return {
        "wrong": total,
        "first_wrong": one.index,
        "first_got": one.got,
        "first_expected": one.expected,
        "reason": one.on(group.ranks[rank]),
    }
