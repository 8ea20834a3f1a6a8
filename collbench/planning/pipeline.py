"""When a step ends whose communication overlaps its computation: times in seconds from the step's start.

All collectives of a step share one stream, so each starts when it is ready and the one before it has ended.
"""

from collections.abc import Iterable, Sequence


def sequence(ready: Iterable[tuple[float, float]], start: float = 0.0) -> float:
    """Return when the last of several collectives ends, each given as (ready, duration)."""
    end = start
    for at, lasts in ready:
        end = max(at, end) + lasts
    return end


def reduced(compute: float, backward: float, messages: Sequence[tuple[float, float]], after: float = 0.0) -> float:
    """Return when a step ends whose gradients are reduced while backward goes on.

    `compute` is the whole computation, `backward` its share at the end; `messages` are (share of backward, duration).
    What comes `after`, such as the all_gather of updated parameters, waits for both.
    """
    begins = compute * (1 - backward)
    ends = sequence([(begins + compute * backward * share, lasts) for share, lasts in messages])
    return max(compute, ends) + after


def gathered(compute: float, backward: float, units: Sequence[tuple[float, float, float]]) -> float:
    """Return when a step ends whose parameters are gathered unit by unit, forward and backward (ZeRO stage 3, FSDP).

    `units` are (share of the computation, all_gather, reduce_scatter) in forward order. A unit computes when it is
    gathered and the unit before has computed; the next one is gathered meanwhile, and no more than that one. In
    backward the stream gathers the next unit before it reduces the last one's gradients.
    """
    stream = device = begun = 0.0
    for share, gather, _ in units:
        stream = max(stream, begun) + gather
        begun = max(stream, device)
        device = begun + compute * (1 - backward) * share
    backwards = list(reversed(units))
    stream = there = max(stream, device) + backwards[0][1]
    for index, (share, _, reduce) in enumerate(backwards):
        device = max(there, device) + compute * backward * share
        if index + 1 < len(backwards):
            stream = there = stream + backwards[index + 1][1]
        stream = max(stream, device) + reduce
    return max(device, stream)
