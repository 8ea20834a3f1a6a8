"""What the rows of a launch amount to: whether each is what the scenario expects, and the exit code of all of them."""

from collections.abc import Mapping
from typing import Any

from collbench.evidence import UNDECIDED
from collbench.record import Record
from collbench.transports import expected
from collbench.world import World

UNEXPECTED = "unexpected_transport"
"""The note of a row whose data did not go by the transport that the scenario expects."""

_OF_A_NETWORK = ("rdma", "tcp", "net/", "ib", "socket", "gdr", "collnet")

UNTOLD = "transport_untold"
"""The note of a row that moved too little to tell by which transport, where the scenario expects one."""


def expectation(wanted: str | None, group: World, values: Mapping[str, Any], path: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says where its transport is not the one that the scenario expects, or nobody can tell.

    `path` is what `Paths.columns` found. What goes on within a device has no transport, and nothing is expected of it.
    """
    found, hosts = str(values.get("transport") or ""), len(set(group.hosts))
    if wanted is None or path.get("local") or expected(wanted, found, hosts):
        return {}
    if group.size == 1:
        return {"notes": " ".join(filter(None, (values.get("notes"), UNTOLD)))}
    reason, note = f"transport: got {found or 'none that is known'}, expected {wanted}", UNEXPECTED
    if found == UNDECIDED:
        reason, note = f"{reason} ({path.get('undecided')})", UNTOLD
    elif not found and path.get("unread"):
        reason = f"{reason}; {path['unread']}"
    elif hosts == 1 and any(word in wanted for word in _OF_A_NETWORK):
        reason = f"{reason}; all its ranks are on {group.hosts[0]}: expect this of topologies that join hosts"
    elif "rdma" in wanted and path.get("no_rdma"):
        reason = f"{reason}; {path['no_rdma']}"
    return {"notes": " ".join(filter(None, (values.get("notes"), note))), "reason": reason}


def verdict(row: Record) -> str:
    """Return what a row counts as: its status, or that it is not what the scenario expects, or cannot be held to it."""
    notes = (row.notes or "").split() if row.status == "ok" else []
    return "unexpected" if UNEXPECTED in notes else "untold" if UNTOLD in notes else row.status


def exit_code(verdicts: list[str]) -> int:
    """Return the exit code of a launch by the verdicts on its rows.

    A row that moved too little to tell its transport is no failure, but an expectation that no row could be held to is.
    """
    for status, code in (("wrong", 3), ("timeout", 4), ("failed", 1), ("unexpected", 5)):
        if status in verdicts:
            return code
    if "ok" in verdicts or not verdicts:
        return 0
    return 5 if "untold" in verdicts else 7
