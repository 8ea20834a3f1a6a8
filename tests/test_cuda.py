"""What is said of the CUDA driver, on machines that a test describes."""

import importlib.metadata

import pytest

from collbench.backends import cuda


@pytest.mark.parametrize(
    ("packages", "driver", "said"),
    [
        (["cupy-cuda13x"], 12040, "the CUDA driver is for CUDA 12.4, and cupy-cuda13x needs one for 13.0 or later; "
         "install collbench[cuda12] in place of cupy-cuda13x, or update the driver"),
        (["cupy-cuda12x"], 11080, "the CUDA driver is for CUDA 11.8, and cupy-cuda12x needs one for 12.0 or later; "
         "update the driver"),
        (["cupy-cuda12x"], 12000, None),
        (["cupy-cuda12x"], 13000, None),
        (["cupy-cuda13x"], 13000, None),
        (["cupy-cuda12x", "cupy-cuda13x"], 12040, None),
        (["cupy"], 11080, None),
    ],
)  # fmt: skip
def test_a_driver_runs_what_was_built_for_its_major_version(
    packages: list[str], driver: int, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in packages:
            raise importlib.metadata.PackageNotFoundError(name)
        return "13.6.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert cuda._too_old(driver) == said
