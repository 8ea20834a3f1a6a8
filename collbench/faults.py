"""What a run that died leaves in its folder, and the row that is made of it."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from collbench.errors import CollbenchError, DeadlineExceeded, Interrupted
from collbench.provenance import expanded
from collbench.record import Record
from collbench.results import RunFolder

Fault = dict[str, Any]

WAITING = "waiting for the others"
"""In the name of a phase: this rank has done its part."""


class Reason(NamedTuple):
    """Why a launch ended: the status of the row of the case that it died in, a sentence, and the exit code."""

    status: str
    text: str
    exit_code: int


def reason_of(faults: Sequence[Fault], hosts: Sequence[str], ended_by_us: bool = False) -> Reason | None:
    """Return what tells best why a launch ended whose ranks are on these hosts; None where nobody told.

    What a rank did itself comes before what it suffered: an error that it raised before a time that was up, and both
    before a signal. Of ranks whose time was up, the one in another place than most is where to look; more so one whose
    watchdog did not see its time pass. A rank that left no word, while others did, was killed, crashed or stopped.
    `ended_by_us`: the signals were the user's, and no finding.
    """
    told = [fault for fault in faults if "reason" in fault]
    suffered = (DeadlineExceeded.exit_code, Interrupted.exit_code)
    raised = [fault for fault in told if fault["exit_code"] not in suffered]
    if raised:
        return Reason("failed", _sentence(raised[0]), int(raised[0]["exit_code"]))
    words = {int(fault["rank"]) for fault in told}
    silent = _ranks([rank for rank in range(len(hosts)) if rank not in words], hosts) if told else ""
    late = [fault for fault in told if fault["exit_code"] == DeadlineExceeded.exit_code]
    ended = [fault for fault in told if fault["exit_code"] == Interrupted.exit_code]
    if late:
        return Reason("timeout", _late(late, ended, silent), DeadlineExceeded.exit_code)
    if silent and not ended_by_us:
        text = f"{silent} ended without a word (killed or crashed); then {_sentence(ended[0])}"
        return Reason("failed", text, CollbenchError.exit_code)
    return Reason("failed", _sentence(ended[0]), Interrupted.exit_code) if ended else None


def _late(late: Sequence[Fault], ended: Sequence[Fault], silent: str) -> str:
    """Say where to look: at a rank that is silent, stood still, was only ended, or is not where most are."""
    if silent:
        return f"{silent} left no word (stopped, stuck or gone); {_sentence(late[0])}"
    told = [*ended, *late]
    still = [fault for fault in told if fault.get("stood_still")]
    if ended or 0 < len(still) < len(told):
        first = (still or ended)[0]
        return f"{_sentence(first)}, while {_sentence(next(fault for fault in told[::-1] if fault is not first))}"
    places = [(fault.get("case_id"), fault.get("phase"), fault.get("at")) for fault in late]
    if len(set(places)) == 1:
        return _sentence(late[0])
    # The rarest place is where to look; of two equally rare ones the one that waits for the others is not.
    suspect = min(
        zip(late, places, strict=True), key=lambda one: (WAITING in str(one[0].get("phase")), places.count(one[1]))
    )
    other = next(fault for fault, place in zip(late, places, strict=True) if place != suspect[1])
    return f"{_sentence(suspect[0])}, while rank {other['rank']} is elsewhere{_place(other)}"


def _ranks(numbers: Sequence[int], hosts: Sequence[str]) -> str:
    named = ", ".join(f"rank {rank}" + (f" on {hosts[rank]}" if hosts[rank] else "") for rank in numbers[:8])
    return named + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")


def _sentence(fault: Fault) -> str:
    if fault.get("everyone"):
        return str(fault["reason"])
    return f"rank {fault['rank']} on {fault.get('host', '?')}: {fault['reason']}{_place(fault)}"


def _place(fault: Fault) -> str:
    case = f" of {fault['case']}" if fault.get("case") else ""
    at = f", at {fault['at']}" if fault.get("at") else ""
    return f" (phase {fault.get('phase', '?')}{case}{at})"


def hosts_in(folder: RunFolder, ranks: int) -> list[str]:
    """The ranks' hosts as the run's environment.json has them; empty names before there is one."""
    try:
        text = (folder.path / "environment.json").read_text(encoding="utf-8")
        folded: dict[str, Any] = json.loads(text)["ranks"]["hostname"]
    except (OSError, ValueError, KeyError):
        return [""] * ranks
    if "each" in folded:
        return [str(host) for host in folded["each"]]
    owners = {rank: str(host) for numbers, host in folded.items() for rank in expanded(numbers)}
    return [owners.get(rank, "") for rank in range(ranks)]


def pending_rows(start: str, rows: Sequence[dict[str, Any]]) -> str:
    """Word of the case that begins now in the launch that was started as `start`: the rows that it will have."""
    return json.dumps({"start": start, "rows": rows})


def account_for(folder: RunFolder, start: str, status: str, reason: str) -> Record | None:
    """Give the case that the launch `start` died in its rows; the first, or None where none of its cases was pending.

    Locks the folder first: what is pending in a folder that another process writes is that one's.
    """
    folder.lock()
    folder.remove_halves()
    text = folder.take_pending()
    if text is None:
        return None
    pending = json.loads(text)
    if pending["start"] != start:
        return None
    there = {(row.case_id, row.group, row.launch) for row in folder.read()}
    missing = [row for row in pending["rows"] if (row["case_id"], row["group"], row["launch"]) not in there]
    records = [Record(**(row | {"status": status, "reason": reason})) for row in missing]
    folder.append(records)
    return records[0] if records else None
