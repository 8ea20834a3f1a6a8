import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from collbench.kernels import jit

PROBE = """
import os
from collbench.kernels.jit import kernel

@kernel("int64(int64)")
def double(x):
    return 2 * x

print(double(21), os.environ.get("NUMBA_CACHE_DIR", "unset"), sum(double.stats.cache_hits.values()))
"""


@pytest.fixture
def probe(tmp_path: Path) -> Callable[..., list[str]]:
    """Run a kernel where neither the source's folder nor the home can be written to; `root` ignores permissions."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "__pycache__").write_text("not a folder")
    (source / "probe.py").write_text(PROBE)
    (tmp_path / "tmp").mkdir()
    base = {key: value for key, value in os.environ.items() if key not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    root = Path(jit.__file__).parents[2]
    base |= {"HOME": "/dev/null/home", "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(root)}

    def run(**environment: str) -> list[str]:
        command = [sys.executable, str(source / "probe.py")]
        done = subprocess.run(command, env=base | environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run


def test_a_private_folder_keeps_kernels_where_no_other_can(probe: Callable[..., list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "tmp" / f"collbench-numba-{os.getuid()}"
    assert probe() == ["42", str(folder), "0"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert probe() == ["42", str(folder), "1"]


def test_a_folder_that_others_can_write_to_is_not_trusted(probe: Callable[..., list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "tmp" / f"collbench-numba-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    assert probe() == ["42", "unset", "0"]
    assert list(folder.iterdir()) == []


def test_the_folder_that_the_user_names_comes_first(probe: Callable[..., list[str]], tmp_path: Path) -> None:
    named = str(tmp_path / "named")
    assert probe(NUMBA_CACHE_DIR=named) == ["42", named, "0"]
    assert probe(NUMBA_CACHE_DIR=named) == ["42", named, "1"]
