"""The house's promises: where things lie, what installs, and what an import costs."""

import importlib
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

import collbench

ROOT = Path(__file__).parents[1]
INSIDE = ("kernels", "scenarios")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]

# What start-up cannot afford on thousands of ranks, or a machine without it cannot import.
HEAVY = {"cupy", "matplotlib", "mpi4py", "numba", "numpy", "pandas", "polars", "pyarrow", "pydantic", "scipy"}

KERNEL_MODULES = sorted(path.stem for path in (ROOT / "kernels").glob("*.py"))


@pytest.mark.parametrize("name", INSIDE)
def test_symlink(name: str) -> None:
    link = ROOT / "collbench" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name
    assert link.resolve() == ROOT / name
    assert link.is_dir()


@pytest.mark.parametrize("name", INSIDE)
def test_no_init(name: str) -> None:
    assert list((ROOT / name).rglob("__init__.py")) == []


@pytest.mark.parametrize("name", KERNEL_MODULES)
def test_kernel_module_is_imported_from_kernels(name: str) -> None:
    try:
        module = importlib.import_module(f"collbench.kernels.{name}")
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "cupy":
            raise
        pytest.skip("cupy is not installed")
    assert module.__file__ is not None
    assert Path(module.__file__).resolve() == ROOT / "kernels" / f"{name}.py"
    assert name not in sys.modules
    assert f"kernels.{name}" not in sys.modules


def test_compiled_kernels_are_kept_outside_the_package() -> None:
    # Uninstalling would leave them, and a folder left in site-packages hides an editable install of the same name.
    kept = Path(importlib.import_module("collbench.kernels.call_loop").call_loop.stats.cache_path)
    assert not kept.is_relative_to(ROOT / "kernels")
    assert not kept.is_relative_to(ROOT / "collbench")


def test_every_package_is_declared() -> None:
    folders = {path.parent for path in (ROOT / "collbench").rglob("*.py")}
    found = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert found | {f"collbench.{name}" for name in INSIDE} == set(SETUPTOOLS["packages"])
    for package in SETUPTOOLS["packages"]:
        assert package.rpartition(".")[2] in INSIDE or (ROOT / package.replace(".", "/") / "__init__.py").exists()


def test_test_modules_have_names_of_their_own() -> None:
    folder = ROOT / "tests"
    ours = (path for path in folder.rglob("*.py") if path.relative_to(folder).parts[0] != "emugpu")
    repeated = [name for name, times in Counter(path.name for path in ours).items() if times > 1]
    assert [name for name in repeated if name != "conftest.py"] == []


def test_version_is_the_installed_one() -> None:
    assert version("collbench") == collbench.__version__


def test_import_is_nearly_free() -> None:
    program = "import sys, collbench; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "collbench" in loaded.split()
    assert HEAVY.isdisjoint(loaded.split())


def test_help_is_nearly_free() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "collbench", "--help"]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    # "import time:       123 |        456 |   module.name"
    loaded = {line.rpartition("|")[2].strip() for line in completed.stderr.splitlines()}
    assert "usage: collbench" in completed.stdout
    assert "collbench.cli" in loaded
    assert HEAVY.isdisjoint(loaded)


def test_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    # Python 3.12 and later make virtual environments without setuptools; the extra `test` brings it.
    pytest.importorskip("setuptools", minversion="77")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("collbench", "tests", *INSIDE):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    program = "import setuptools.build_meta as backend; backend.build_wheel('..')"
    subprocess.run([sys.executable, "-c", program], cwd=source, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())

    expected = {str(path.relative_to(ROOT)) for path in (ROOT / "collbench").rglob("*.py")}
    planning = ROOT / "collbench" / "planning"
    data = [path for pattern in ("*.csv", "references/*.toml", "workloads/*.toml") for path in planning.glob(pattern)]
    expected |= {str(path.relative_to(ROOT)) for path in data}
    for name, patterns in (("kernels", ("*.py", "*.cu")), ("scenarios", ("*.toml",))):
        expected |= {f"collbench/{name}/{path.name}" for pattern in patterns for path in (ROOT / name).glob(pattern)}
    assert {name for name in held if ".dist-info/" not in name} == expected | {"collbench/py.typed"}
    assert any(name.endswith("licenses/LICENSE") for name in held)
