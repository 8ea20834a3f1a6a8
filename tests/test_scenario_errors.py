import re
from pathlib import Path

import pytest

import collbench.collectives
from collbench import scenario
from collbench.errors import ScenarioError
from collbench.scenario_model import MOST_PROBLEMS
from wrong_files import LEAST, WRONG_SETTINGS, measured, sized
from wrong_sizes import WRONG_SIZES
from wrong_sweeps import WRONG_AXES

ONE_SENTENCE = re.compile(r"x\.toml: (line \d+, (column \d+|at the end)|[a-z]\S+): got .+, expected .+; .+")

WRONG = WRONG_SETTINGS | WRONG_AXES | WRONG_SIZES


@pytest.mark.parametrize(("text", "sentence"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario.parse(text, name="x")
    assert str(raised.value).startswith("x.toml: ")
    assert sentence in str(raised.value)
    assert ONE_SENTENCE.fullmatch(str(raised.value)), str(raised.value)
    assert not re.search("pydantic|https?:|validation error|\n", str(raised.value))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            "matrix = [[1, 2], [3]]",
            "matrix[1]: got 1 weights, expected as many as there are rows (2); write e.g. matrix =",
        ),
        (
            "matrix = [[0]]",
            "matrix: got a list, expected at least one weight above 0; write e.g. matrix = [[0, 1], [1, 0]]",
        ),
        ("matrix = []", "matrix: got [], expected at least one value; write e.g. matrix = [[0, 1], [1, 0]]"),
        ("matrix = [1]", "matrix[0]: got 1, expected a list; write e.g. matrix = [[0, 1], [1, 0]]"),
        (
            'matrix = [[1]]\npatterns = ["uniform"]',
            'patterns: got ["uniform"], expected a matrix or patterns, not both; remove one of them',
        ),
    ],
)
def test_wrong_weights(monkeypatch: pytest.MonkeyPatch, more: str, sentence: str) -> None:
    monkeypatch.setattr(collbench.collectives, "names", lambda: ("all_to_all_v",))
    with pytest.raises(ScenarioError) as raised:
        scenario.parse(LEAST.replace("all_reduce", "all_to_all_v") + more, name="x")
    assert str(raised.value).startswith(f"x.toml: sweep[0].{sentence}")


def test_each_problem_has_a_line() -> None:
    text = measured('precision = 0\nseed = 0.5\n[[variant]]\nname = "a b"')
    with pytest.raises(ScenarioError) as raised:
        scenario.parse(text, name="x")
    fields = [line.split(": ")[1] for line in str(raised.value).splitlines()]
    assert fields == ["measure.precision", "measure.seed", "variant[0].name"]


def test_no_more_than_five_problems_are_told() -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario.parse(sized("[1, 2, 3, 4, 5, 6, 7]"), name="x")
    assert len(str(raised.value).splitlines()) == MOST_PROBLEMS == 5


def test_of_another_version_nothing_else_is_told() -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario.parse("schema = 2\nother = 3", name="x")
    assert str(raised.value).startswith("x.toml: schema: got 2, ")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"a = {'[' * 5000}", "x.toml: got lists nested too deeply, expected a TOML scenario; flatten them"),
        (f"a = {'1' * 5000}", "x.toml: got a number that is too long, expected a TOML scenario; shorten it"),
    ],
)
def test_what_tomllib_cannot_hold(text: str, sentence: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario.parse(text, name="x")
    assert str(raised.value) == sentence


def refusal(name_or_path: str | Path) -> str:
    with pytest.raises(ScenarioError) as raised:
        scenario.load(name_or_path)
    assert len(str(raised.value).splitlines()) == 1
    return str(raised.value)


def test_an_unknown_scenario_names_the_nearest_and_lists_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ", ".join(name for name, _ in scenario.shipped())
    expected = f"expected a file or one of the shipped scenarios {names}"
    for near in ("quickstrt", "quickstart.toml", "some/where/quick-start.toml"):
        assert refusal(near) == f'scenario: got "{near}", {expected}; did you mean quickstart?'
    for far in ("zzz", "a\nb"):
        assert refusal(far).endswith(f"{expected}; write one of them or a file's path")


def test_a_folder_is_no_scenario(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f'scenario: got "{tmp_path}", a directory, expected a TOML file; name a file in it'
    assert "a directory" in refusal("")


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b"])
def test_an_impossible_path_is_a_sentence(path: str) -> None:
    assert re.match("scenario: got .+, expected .+; .+", refusal(path))


def test_an_unreadable_file_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.toml"
    path.write_text(LEAST)

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert refusal(path) == f"{path}: got no text (Permission denied), expected a readable file; check the file"


def test_a_file_that_is_not_utf8_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b'# a\ntitle = "\xff"\n')
    got = "got bytes that are not UTF-8 in line 2"
    assert refusal(path) == f"{path}: {got}, expected a TOML file in UTF-8; save it as UTF-8"


def test_a_file_name_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a\nb.toml"
    path.write_text(LEAST)
    assert 'file name: got "a\\nb", expected printable text; rename the file' in refusal(path)


def test_messages_name_the_file_as_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("schema = 1")
    assert refusal("mine.toml").startswith("mine.toml: sweep: ")
    assert refusal(tmp_path / "mine.toml").startswith(f"{tmp_path}/mine.toml: sweep: ")
