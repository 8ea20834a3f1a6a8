"""Any file is a scenario or one sentence that says why not."""

import datetime
import math
import re
import tomllib
from copy import deepcopy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench import scenario, scenario_model
from collbench.errors import ScenarioError
from collbench.scenario_model import MOST_PROBLEMS
from collbench.scenario_tables import MOST_SIZES
from collbench.units import format_size, parse_size
from wrong_files import LEAST, sized

SIZES = st.integers(1, 10**6)


@given(SIZES, SIZES, st.floats(1.01, 100) | st.integers(2, 100))
def test_sizes_by_factor_are_the_exact_powers(first: int, last: int, factor: float) -> None:
    text = sized(f'{{ from = "{first} B", to = "{last} B", factor = {factor!r} }}')
    if first > last:
        with pytest.raises(ScenarioError, match="exchange from and to"):
            scenario.parse(text, name="x")
        return
    found = scenario.parse(text, name="x").sweeps[0].sizes
    exact, expected = Fraction(first), []
    while math.floor(exact + Fraction(1, 2)) <= last:
        expected.append(math.floor(exact + Fraction(1, 2)))
        exact *= Fraction(repr(factor))
    assert found == tuple(dict.fromkeys(expected))


@given(SIZES, SIZES, SIZES)
def test_sizes_by_step_are_a_range(first: int, last: int, step: int) -> None:
    expected = tuple(range(first, last + 1, step))
    text = sized(f'{{ from = "{format_size(first)}", to = "{format_size(last)}", step = "{format_size(step)}" }}')
    if 0 < len(expected) <= MOST_SIZES:
        assert scenario.parse(text, name="x").sweeps[0].sizes == expected
    else:
        with pytest.raises(ScenarioError, match=r"exchange from and to|raise it"):
            scenario.parse(text, name="x")


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=20, unique=True).map(lambda all: [*map(format_size, all)]))
def test_listed_sizes_arrive(sizes: list[str]) -> None:
    found = scenario.parse(sized(str(sizes)), name="x").sweeps[0].sizes
    assert found == tuple(map(parse_size, sizes))


FULL = tomllib.loads(
    LEAST
    + 'backends = ["mpi"]\nroots = [0]\nbuffers = [1]\ntopologies = ["world"]\nmatrix = [[1]]\npatterns = ["uniform"]\n'
    + 'include = [{ dtype = ["int8"], root = "0" }]\nexclude = [{ least_size = "1 B", most_size = "2 B" }]\n'
    + '[[sweep]]\ncollectives = ["barrier"]\nsizes = { from = "1 B", to = "8 B", factor = 2 }\n'
    + '[[sweep]]\ncollectives = ["barrier"]\nsizes = { from = "1 B", to = "8 B", step = "1 B" }\n'
    + '[measure]\nmodes = ["latency"]\nprecision = 0.1\ntime_budget = "1 s"\nseed = 3\nverify = true\n'
    + '[[variant]]\nname = "a"\nenv = { A = "1" }\n[expect]\ntransport = "rdma"'
)
KEYS = st.sampled_from(sorted({key for keys in scenario_model._KEYS.values() for key in keys})) | st.text(max_size=10)
SCALARS = (
    st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["8 B", "3 s", "world", "first:2", "all", "all_reduce", "int8", "<list>", "<factor>", "[key]"])
    | st.just(datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
    | st.just(datetime.time(1))
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container and index within a document."""
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, key) for key, _ in inner] + [place for _, item in inner for place in places(item)]


def check_only_scenario_errors(document: dict[str, Any]) -> None:
    try:
        found = scenario_model.build(document, name="x", where="x.toml")
    except ScenarioError as error:
        lines = str(error).splitlines()
        assert 1 <= len(lines) <= MOST_PROBLEMS
        for line in lines:
            assert re.match(r"x\.toml: \S.*: got .+, expected .+; .+", line), line
            assert not re.search("pydantic|https?:", line)
    else:
        assert hash(found) is not None
        assert all(type(size) is int for sweep in found.sweeps for size in sweep.sizes)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_document_is_a_scenario_or_a_scenario_error(document: dict[str, Any]) -> None:
    check_only_scenario_errors(document)


@settings(max_examples=400)
@given(st.data())
def test_any_change_of_a_document_is_a_scenario_or_a_scenario_error(data: st.DataObject) -> None:
    document = deepcopy(FULL)
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(document)))
        if isinstance(container, dict) and data.draw(st.booleans()):
            container[data.draw(KEYS)] = data.draw(VALUES)
        else:
            container[key] = data.draw(VALUES)
    check_only_scenario_errors(document)
