"""A comparison as text, JSON and Markdown."""

import json

import pytest

from collbench.readers.gate import Comparison, compare
from collbench.readers.gate_text import as_json, markdown, text, written
from compared_rows import SIZES, run


@pytest.fixture
def slower() -> Comparison:
    return compare(run(), run({SIZES[-1]: 1.3, 8: 1.3}, seed=2, placement="a|b"), notes=["kernel differs"])


def test_the_table_says_what_decides_and_where_to_look(slower: Comparison) -> None:
    lines = text(slower).splitlines()
    assert lines[0] == "note: kernel differs"
    assert lines[1] == (
        "by bands, at most 5 % false alarms in all (Bonferroni: 0.833 % for each of 3, 2.5 % for any one case):"
    )
    assert [line.split()[0] for line in lines[2:6]] == ["latency", "middle", "bandwidth", "any"]
    assert lines[6] == "where to look, each case by itself at 5 % a side, which decides nothing:"
    assert {line.split("  ")[1] for line in lines[7:9]} == {"all_reduce 8 B", "all_reduce 8 MiB"}
    assert lines[9] == "6 cases: 2 slower, 4 same"
    assert "percentages are of time" in lines[10]
    assert lines[11] == "overall: slower (exit code 5)"


def test_named_cases_are_not_listed_twice() -> None:
    from collbench.readers.gate import Rules

    found = text(compare(run(), run(1.3, seed=2), Rules(cases=("c8", "c1024"))))
    assert "by cases, at most 5 % false alarms in all (Bonferroni: 2.5 % for each of 2):" in found
    assert found.count("all_reduce 8 B ") == 1
    assert "where to look" not in found


def test_the_json_has_all_of_it(slower: Comparison) -> None:
    content = json.loads(as_json(slower))
    assert (content["overall"], content["exit_code"], content["decided_by"]) == ("slower", 5, "bands")
    assert len(content["cases"]) == len(SIZES)
    band = content["decisions"][2]
    assert (band["name"], band["word"], band["launches"]) == ("bandwidth", "slower", [6, 6])
    assert band["low"] > 1 + content["threshold"]
    assert band["added_s"] == pytest.approx(band["base_s"] * (band["ratio"] - 1))
    assert band["added_s"] > content["floor_s"]
    assert content["notes"] == ["kernel differs"]


def test_the_json_of_too_few_launches_has_no_bounds() -> None:
    content = json.loads(as_json(compare(run(launches=1), run(launches=1))))
    assert content["exit_code"] == 6
    assert [one["low"] for one in content["decisions"]] == [None] * 4


def test_the_markdown_is_a_table_that_github_shows(slower: Comparison) -> None:
    lines = markdown(slower).splitlines()
    assert lines[0] == "### collbench: slower (failed)"
    tables = [line for line in lines if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {7}
    assert any(line.startswith("| bandwidth | **slower** | ") for line in tables)
    assert not any("<=" in line for line in tables)  # < would begin a tag
    assert lines.index("</details>") > lines.index("<details><summary>Where to look (2 cases), each case by itself at "
                                                   "5 % a side, which decides nothing</summary>")  # fmt: skip


def test_bars_in_a_name_do_not_end_a_cell() -> None:
    base = [*run(placement="in|place", launches=5), *run(placement="out", launches=5, sizes=[8, 32])]
    base = [one for one in base if one.placement == "out" or one.size_bytes != 8]
    shown = markdown(compare(base, base[:1]))
    assert "in\\|place" in shown


@pytest.mark.parametrize(
    ("factor", "mark"), [(1.0, "same (passed)"), (1.3, "slower (failed)"), (1.1, "unclear (undecided)")]
)
def test_each_format_says_the_same(factor: float, mark: str) -> None:
    found = compare(run(), run(factor, seed=2))
    assert written(found, "markdown").startswith(f"### collbench: {mark}\n")
    assert f"overall: {found.word} (exit code {found.exit_code})" in written(found, "text")
    assert json.loads(written(found, "json"))["exit_code"] == found.exit_code
