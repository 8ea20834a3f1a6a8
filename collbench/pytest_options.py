"""What a session over several ranks asks of pytest's options: what it refuses, and what the other ranks are told."""

import os
from pathlib import Path
from typing import Any

import pytest

from collbench.start import launcher_size

SELECTION = ("lf", "failedfirst", "newfirst", "stepwise")
"""Options by which pytest selects tests from its cache: rank 0 reads it, the others take its selection."""
SILENT: dict[str, Any] = {
    "benchmark_json": None,
    "benchmark_save": None,
    "benchmark_autosave": None,
    "benchmark_compare": [],
    "benchmark_compare_fail": None,
    "benchmark_histogram": [],
    "benchmark_cprofile_dump": [],
    "benchmark_storage": f"file://{os.devnull}",  # it makes the folder, wherever that is
    "benchmark_quiet": True,
    "benchmark_verbose": False,
    "cacheclear": False,
    "xmlpath": None,
    "log_file": None,
    "htmlpath": None,
    "report_log": None,
    "pastebin": None,
} | dict.fromkeys(SELECTION, False)
"""What pytest and its plugins are told on the other ranks, where they have such an option."""


def refused(config: pytest.Config) -> str | None:
    """Say why the session cannot run, from what is known before MPI is up."""
    option = config.option
    if not config.pluginmanager.hasplugin("benchmark"):
        return (
            "--collbench: got no pytest-benchmark, expected version 5 or later; pip install 'collbench[bench]' (and "
            "leave out -p no:benchmark)"
        )
    if getattr(option, "numprocesses", None) or getattr(option, "dist", "no") != "no" or getattr(option, "tx", None):
        return "--collbench: got workers of pytest-xdist (-n), expected none; mpirun starts the ranks: leave -n out"
    size = launcher_size()
    if size is not None and size[1] > 1 and (getattr(option, "usepdb", False) or getattr(option, "trace", False)):
        return f"--collbench: got --pdb or --trace on {size[1]} ranks, expected one; nobody could type to the others"
    name = str(option.collbench)
    if name.endswith(".py") or "::" in name or (name and Path(name).is_dir()):
        return f"--collbench: got {name}, expected a scenario; write --collbench= where only tests of files are wanted"
    return None
