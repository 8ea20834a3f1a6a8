"""What a run that died leaves in its folder, and the row that is made of it."""

import json
from typing import Any

from collbench.record import Record
from collbench.results import RunFolder


def reason_of(faults: list[dict[str, Any]]) -> tuple[str, str] | None:
    """Return the status and the sentence that tell best why ranks ended: what one did itself, before what it suffered.

    A rank that raised an error comes before one whose time was up, and both before those that a signal ended. Of ranks
    whose time was up, the one in another phase or case than most is where to look, and is named.
    """
    told = [fault for fault in faults if "reason" in fault]
    raised = [fault for fault in told if fault.get("exit_code") not in (4, 130)]
    if raised:
        return "failed", _sentence(raised[0])
    late = [fault for fault in told if fault.get("exit_code") == 4]
    if late:
        where = [(fault.get("case_id"), fault.get("phase")) for fault in late]
        usual = max(set(where), key=where.count)
        differing = [fault for fault, place in zip(late, where, strict=True) if place != usual]
        return "timeout", _sentence(differing[0] if differing else late[0])
    if told:
        return "failed", _sentence(told[0])
    return None


def _sentence(fault: dict[str, Any]) -> str:
    return f"rank {fault['rank']} on {fault.get('host', '?')}: {fault['reason']} (phase {fault.get('phase', '?')})"


def account_for(folder: RunFolder, code: int, otherwise: str = "") -> Record | None:
    """Give the case that a dead run was in its row; the row, or None where no case was pending.

    `otherwise` is the reason where no rank left a word.
    """
    text = folder.take_pending()
    if text is None:
        return None
    values = json.loads(text)
    rows = {(row.case_id, row.group, row.launch) for row in folder.read()}
    if (values["case_id"], values["group"], values["launch"]) in rows:
        return None
    faults = [fault for fault in folder.read_faults() if fault.get("case_id") in ("", values["case_id"], None)]
    status, reason = reason_of(faults) or ("timeout" if code == 4 else "failed", otherwise or "no rank left a word")
    record = Record(**(values | {"status": status, "reason": reason}))
    folder.append([record])
    return record
