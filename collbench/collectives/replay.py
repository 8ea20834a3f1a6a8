"""replay: a workload's gradients, bucket by bucket: several all_reduce that are one operation (kind replay)."""

from collbench import replay
from collbench.collectives.all_reduce import AllReduce
from collbench.collectives.base import Collective, Message


class Replay(AllReduce):
    """S is the whole gradient of one rank; the bus factor is all_reduce's, since each bucket's is.

    The result is that of one all_reduce over the whole vector.
    """

    name = "replay"
    has_patterns = True
    in_sweeps = False

    def __init__(self, pattern: str = "") -> None:
        self._pattern = pattern

    def spread(self, pattern: str, ranks: int) -> Collective:
        return Replay(pattern)

    def messages(self, itemsize: int) -> tuple[Message, ...]:
        found, offset = [], 0
        replayed = replay.parse(self._pattern)
        for size, pause_ns in zip(replayed.sizes, replayed.pauses_ns, strict=True):
            found.append(Message(offset, size // itemsize, pause_ns))
            offset += size // itemsize
        return tuple(found)
