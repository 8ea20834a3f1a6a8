"""The shell lines of docs/ci as they stand there: run one after the other, with a short scenario.

Not run: the lines that install (their extras must exist), and what GitHub and GitLab do around them.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import launching

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "ci"
SCENARIO = """
schema = 1
title = "collectives"
[measure]
least_time = "5 ms"
time_budget = "30 ms"
[[sweep]]
backends = ["mpi"]
collectives = ["all_reduce"]
sizes = ["8 B", "64 KiB", "4 MiB"]
"""
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A clone of a repository, with the scenario and a virtual environment in it."""
    if sys.prefix == sys.base_prefix or not (Path(sys.prefix) / "bin" / "collbench").exists():
        pytest.skip("the lines call .venv/bin/collbench: collbench must be installed in a virtual environment")
    work, origin = tmp_path / "work", tmp_path / "origin.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(origin))
    git(tmp_path, "clone", "-q", str(origin), str(work))
    (work / "collectives.toml").write_text(SCENARIO)
    (work / ".gitignore").write_text(".venv\nold\nnew\nab\nsummary.md\n")
    for name in (".venv", "old"):
        (work / name).symlink_to(sys.prefix)
    git(work, "checkout", "-q", "-B", "main")
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", "scenario")
    git(work, "push", "-q", "origin", "HEAD:main")
    return work


def git(folder: Path, *words: str) -> None:
    subprocess.run([*GIT, *words], cwd=folder, check=True, timeout=60, capture_output=True)


def lines(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))


def shell(work: Path, text: str, timeout: float = 200) -> launching.CompletedRun:
    """Run lines as both systems do: each of a step's lines must end well."""
    more = {
        "GITHUB_STEP_SUMMARY": str(work / "summary.md"),
        "PYTHONPATH": str(ROOT),
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }
    return launching.run(["bash", "-e", "-c", text], timeout=timeout, cwd=work, env=more)


def steps(event: str) -> list[str]:
    """The lines of GitHub's steps on an event, but for those that install."""
    found = []
    for step in lines("github-actions.yml")["jobs"]["gate"]["steps"]:
        if "run" in step and "pip install" not in step["run"] and event in step.get("if", event):
            found.append(str(step["run"]))
    return found


@pytest.mark.long
def test_github_keeps_a_baseline_and_holds_what_is_proposed_against_it(work: Path) -> None:
    pushed, proposed = steps("push"), steps("pull_request")
    assert len(pushed) == len(proposed) == 2
    for text in pushed:
        shell(work, text).expect(0)
    assert len(list((work / "results" / "baselines").glob("*/*/baseline.json"))) == 1
    assert "baseline" in subprocess.check_output(["git", "log", "--oneline", "origin/main"], cwd=work, text=True)
    shell(work, proposed[0]).expect(0)
    compared = shell(work, proposed[1])
    assert compared.code in (0, 5), compared.err  # 6 is told, and no failure
    assert "| latency" in (work / "summary.md").read_text()
    # A slower one is stopped.
    slower(work / "new" / "results.csv")
    shell(work, proposed[1]).expect(5)


def slower(path: Path) -> None:
    """Make all times of a run thrice as long."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    at = rows[0].index("time_p50_s")
    for row in rows[1:]:
        row[at] = repr(3 * float(row[at]))
    path.write_text("\n".join(",".join(row) for row in rows) + "\n")


@pytest.mark.long
def test_gitlab_measures_what_is_in_use_and_what_is_proposed_in_turns(work: Path) -> None:
    (work / "new").symlink_to(sys.prefix)
    job = lines("gitlab-ci.yml")["collectives"]
    (measured, shown) = job["script"]
    found = shell(work, f"{measured}\n{shown}")
    assert found.code in (0, 5, 6), found.err
    assert "| latency" in (work / "gate.md").read_text()
    assert job["allow_failure"]["exit_codes"] == [6]


def test_gitlab_keeps_and_compares_the_json_of_pytest_benchmark(work: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    script = lines("gitlab-pytest.yml")["collectives"]["script"]
    environment, first, kept, second = script
    shell(work, "\n".join((environment, first, kept))).expect(0)
    assert (work / "base.json").exists()
    found = shell(work, "\n".join((environment, second)))
    assert found.code in (0, 1), found.err
    assert "Comparing against benchmarks from: base.json" in found.out + found.err


def test_what_is_installed_exists() -> None:
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    named = [
        extra
        for file in sorted(EXAMPLES.glob("*.yml"))
        for words in re.findall(r"collbench\[([a-z0-9,]+)\]", file.read_text(encoding="utf-8"))
        for extra in words.split(",")
    ]
    assert named
    assert set(named) <= extras
