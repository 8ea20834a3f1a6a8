"""What is measured again at the end of a launch: suspects among the pairs, alone, with a partner known to be good."""

from collections.abc import Sequence

from collbench.plan import Case, Plan
from collbench.readers.pairs import AGAIN, largest, pairs_of, to_measure_again
from collbench.record import Record
from collbench.topology import Group, Round

_MOST = 32
"""More suspects than this are no suspects: the fabric is as it is."""


def wanted(plan: Plan, rows: Sequence[Record]) -> list[tuple[Case, Round]]:
    """The cases and the pairs of ranks that are measured again, from the rows of the launch."""
    cases = {case.case_id: case for case in plan.cases}
    found: list[tuple[Case, Round]] = []
    for one in largest(pairs_of(rows), rows):
        pairs = to_measure_again(one) if one.case_id in cases else ()
        found += [(cases[one.case_id], (Group(f"{AGAIN}{a}-{b}", (a, b)),)) for a, b in pairs[:_MOST]]
    return found
