"""Operations that are made of several messages, each a call on a part of the buffers, with computation between."""

from collections.abc import Mapping, Sequence

from collbench.backends.base import NO_STATUS, Call
from collbench.collectives import Message, collective_of, entry_named
from collbench.dtypes import DTYPES
from collbench.plan import Case


def messages_of(case: Case) -> tuple[Message, ...]:
    """What the case's operation is made of; empty where it is one call on the whole buffers."""
    if not case.pattern or entry_named(case.collective).collective.in_sweeps:
        return ()
    return collective_of(case.collective, case.pattern, 1).messages(DTYPES[case.dtype].itemsize)


def part_of(words: Mapping[str, int], message: Message, itemsize: int, *, besides: str = "") -> dict[str, int]:
    """Return the words of a call on one message's part of the buffers; the word `besides` is no address."""
    offset = message.offset * itemsize
    moved = {name: words[name] + offset for name in ("send", "recv") if name != besides}
    return {**words, **moved, "count": message.length}


def pause(message: Message) -> list[Call]:
    """The call that computes before a message; none where nothing is computed."""
    if not message.pause_ns:
        return []
    from collbench.kernels.spin import spin

    return [Call(int(spin.address), (message.pause_ns,), NO_STATUS)]


def refused_as_messages(case: Case, calls: Sequence[str]) -> str | None:
    """Why a case whose operation is several messages cannot be called as it says; None where it is none or can."""
    if entry_named(case.collective).collective.in_sweeps:
        return None
    if case.call not in calls:
        return f"call {case.call}: {case.collective} can be {' or '.join(calls)} here"
    if case.caller != "compiled":
        return f"caller {case.caller}: {case.collective} is called by the compiled loop alone"
    return None
