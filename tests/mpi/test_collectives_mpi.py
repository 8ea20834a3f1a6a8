"""Every collective, type, operation, placement and form of call with the MPI of this environment, verified."""

from collections.abc import Iterable
from pathlib import Path

import pytest

import launching
from collbench.collectives import TABLE, names
from collbench.dtypes import DTYPES
from collbench.results import read

MEASURE = """
schema = 1
title = "verify"
[measure]
time_budget = "2 ms"
least_time = "0 s"
least_iterations = 1
warmup_time = "1 ms"
"""


def listed(names: Iterable[str]) -> str:
    """Write names as a list of a scenario file."""
    return str([*names]).replace("'", '"')


COLLECTIVES = f"""
[[sweep]]
backends = ["mpi"]
collectives = {listed(names())}
"""

SHAPES = MEASURE + COLLECTIVES + 'placements = ["default", "in_place"]\nsizes = ["0 B", "1000 B"]\n'
ROOTS = (
    MEASURE
    + f"""
[[sweep]]
backends = ["mpi"]
collectives = {listed(name for name in names() if TABLE[name].collective.rooted)}
roots = ["all"]
placements = ["default", "in_place"]
callers = ["compiled", "python"]
sizes = ["1000 B"]
[[sweep]]
backends = ["mpi"]
collectives = {listed(name for name in names() if TABLE[name].collective.has_patterns)}
patterns = ["uniform", "linear"]
placements = ["default", "in_place"]
callers = ["compiled", "python"]
sizes = ["1000 B"]
"""
)
FORMS = (
    MEASURE
    + COLLECTIVES
    + """
placements = ["default", "in_place"]
callers = ["compiled", "python"]
calls = ["blocking", "nonblocking", "persistent"]
syncs = ["dissemination"]
sizes = ["40 B"]
"""
)
TYPES = (
    MEASURE
    + f"""
[[sweep]]
backends = ["mpi"]
collectives = ["all_reduce"]
dtypes = {listed(DTYPES)}
operations = ["sum", "prod", "min", "max"]
sizes = ["1000 B"]
[[sweep]]
backends = ["mpi"]
collectives = ["all_gather"]
dtypes = {listed(DTYPES)}
sizes = ["1000 B"]
"""
)

EXPLAINED = (
    "has no in-place form",
    "needs at least 2 ranks",
    "use call blocking",
    "has no MPI_Sendrecv_init",
    "has no type for",
    "cannot",
)


def run(text: str, ranks: int, tmp_path: Path) -> list[str]:
    scenario, folder = tmp_path / "verify.toml", tmp_path / "run"
    scenario.write_text(text)
    launching.collbench(["launch", scenario, "-n", str(ranks), "-o", folder], timeout=280).expect(0)
    rows = read(folder)
    assert {row.status for row in rows} <= {"ok", "skipped"}
    for row in rows:
        if row.status == "ok" and row.collective != "barrier":
            assert row.wrong == 0
        elif row.status == "skipped":
            assert any(words in str(row.reason) for words in EXPLAINED), row.reason
    return [str(row.collective) for row in rows if row.status == "ok"]


# Four MPICH ranks on two cores need milliseconds for a message: the widest sweeps stay within the cores there.
FEW = launching.RANKS if launching.flavour() == "openmpi" else (1, 2)
FEWEST = [1, *(pytest.param(ranks, marks=pytest.mark.long) for ranks in FEW[1:-1]), FEW[-1]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", launching.RANKS)
def test_every_collective_in_and_out_of_place(ranks: int, tmp_path: Path) -> None:
    measured = run(SHAPES if ranks in FEW else SHAPES.replace('"0 B", ', ""), ranks, tmp_path)
    assert set(measured) == {name for name in names() if TABLE[name].collective.least_ranks <= ranks}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", FEWEST)
def test_every_root_and_pattern(ranks: int, tmp_path: Path) -> None:
    run(ROOTS, ranks, tmp_path)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", FEW[1:3][-1:])
def test_every_form_of_call(ranks: int, tmp_path: Path) -> None:
    run(FORMS, ranks, tmp_path)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", FEW[:3][-1:])
def test_every_type_and_operation(ranks: int, tmp_path: Path) -> None:
    run(TYPES, ranks, tmp_path)
