"""What a run that died leaves in its folder, and the row that is made of it."""

import json
from collections.abc import Sequence
from typing import Any

from collbench.errors import DeadlineExceeded, Interrupted
from collbench.record import Record
from collbench.results import RunFolder

Fault = dict[str, Any]


def reason_of(faults: Sequence[Fault], ranks: int = 0, ended_by_us: bool = False) -> tuple[str, str] | None:
    """Return the status and the sentence that tell best why a launch of so many ranks ended; None where nobody told.

    What a rank did itself comes before what it suffered: an error that it raised before a time that was up, and both
    before a signal. Of ranks whose time was up, the one in another place than most is where to look. A rank that left
    no word, while others did, was killed, crashed or stopped. `ended_by_us`: the signals were the user's, and no
    finding.
    """
    told = [fault for fault in faults if "reason" in fault]
    raised = [fault for fault in told if fault["exit_code"] not in (DeadlineExceeded.exit_code, Interrupted.exit_code)]
    if raised:
        return "failed", _sentence(raised[0])
    silent = sorted(set(range(ranks)) - {int(fault["rank"]) for fault in told}) if told else []
    late = [fault for fault in told if fault["exit_code"] == DeadlineExceeded.exit_code]
    if late:
        where = [(fault.get("case_id"), fault.get("phase")) for fault in late]
        usual = max(set(where), key=where.count)
        differing = [fault for fault, place in zip(late, where, strict=True) if place != usual]
        missing = f"{_ranks(silent)} left no word (stopped, stuck or gone); " if silent else ""
        return "timeout", missing + _sentence(differing[0] if differing and not silent else late[0])
    if silent and not ended_by_us:
        return "failed", f"{_ranks(silent)} ended without a word (killed or crashed); then {_sentence(told[0])}"
    return ("failed", _sentence(told[0])) if told else None


def _ranks(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"rank{'s' * (len(numbers) > 1)} {shown}"


def _sentence(fault: Fault) -> str:
    case = f" of {fault['case']}" if fault.get("case") else ""
    return (
        f"rank {fault['rank']} on {fault.get('host', '?')}: {fault['reason']} (phase {fault.get('phase', '?')}{case})"
    )


def account_for(folder: RunFolder, status: str, reason: str) -> Record | None:
    """Give the case that a dead run was in its row; the row, or None where no case was pending."""
    text = folder.take_pending()
    if text is None:
        return None
    values = json.loads(text)
    rows = {(row.case_id, row.group, row.launch) for row in folder.read()}
    if (values["case_id"], values["group"], values["launch"]) in rows:
        return None
    record = Record(**(values | {"status": status, "reason": reason}))
    folder.append([record])
    return record
