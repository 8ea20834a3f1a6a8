"""What holds for every test: no process outlives it, and tests/gpu needs a visible CUDA device."""

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import launching

# A machine under load makes single examples slow; in CI the same examples run each time.
hypothesis.settings.register_profile("collbench", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("collbench")

# MPICH's ranks sleep while they wait: with more ranks than cores that is several times faster than to spin.
os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
os.environ.setdefault("MPIR_CVAR_POLLS_BEFORE_YIELD", "10")

# Open MPI's btl ofi looks for fabrics for a second in each start. What runs without it is the same over shared memory.
os.environ.setdefault("OMPI_MCA_btl", "^ofi")

GPU_TESTS = Path(__file__).with_name("gpu")


def pytest_configure() -> None:
    # Ended by SIGTERM as by Ctrl-C, pytest leaves launching the time to end what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if GPU_TESTS in item.path.parents]
    if on_gpu and launching.cuda_devices() == 0:
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device is visible"))


@pytest.fixture(autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fail a test that leaves processes behind, and end them."""
    marker = f"{os.environ.get(launching.MARKER, '')}/{uuid.uuid4().hex}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(launching.MARKER, marker)
        yield
    remaining = launching.left_behind(marker)
    if remaining:
        told = "\n".join(f"{process.pid} {process.command}" for process in remaining)
        launching.kill(remaining)
        pytest.fail(f"processes left behind:\n{told}", pytrace=False)
