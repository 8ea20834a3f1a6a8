"""What is measured again at the end of a launch: suspects among the pairs, alone, with a partner known to be good."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from collbench.plan import Case
from collbench.readers.pairs import largest, pairs_of, to_measure_again
from collbench.record import Record
from collbench.topology import AGAIN, Group, Round

_MOST = 32
"""More suspects than this are no suspects: the fabric is as it is."""


def wanted(rows: Sequence[Record]) -> list[tuple[Case, Round]]:
    """The cases and the pairs of ranks that are measured again, from the rows of the launch, a resumed one's too."""
    cases = {row.case_id: _case_of(row) for row in rows}
    found: list[tuple[Case, Round]] = []
    for one in largest(pairs_of(rows), rows):
        case = cases[one.case_id]
        # A row of another version may say less of its case than its name does.
        pairs = to_measure_again(one) if case.case_id == one.case_id else ()
        found += [(case, (Group(f"{AGAIN}{a}-{b}", (a, b)),)) for a, b in pairs[:_MOST]]
    return found


def _case_of(row: Record) -> Case:
    """The case that a row is of."""
    found: dict[str, Any] = {}
    for field in fields(Case):
        value = getattr(row, field.name)
        found[field.name] = (value or 0) if field.type is int else "" if value is None else str(value)
    return Case(**found)
