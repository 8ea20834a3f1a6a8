"""Published times, and made-up curves whose truth is known, for the tests of fits and forecasts."""

from collections.abc import Sequence

import numpy as np

from collbench.readers.fit_rows import Curve, Family, curve
from collbench.readers.forecast import Forecast
from collbench.readers.laws import LAWS, Law

DATA_A_GBPS = (
    0.48, 0.83, 1.58, 2.67, 4.73, 8.84, 12.28, 20.8, 35.42, 48.48, 50.76, 43.82, 45.54, 46.97, 47.98, 48.59, 47.83,
    47.53, 47.38, 47.32,
)  # fmt: skip
"""algbw of all_reduce on 32 GPUs of 4 hosts from 32 KiB on, doubling: S. Bekman, "Machine Learning Engineering"."""
DATA_B_US = (10, 13.76, 16.88, 20.8, 25.2, 29.5, 33.7)
"""A small all_reduce on 2 to 8 GPUs of one DGX A100: nccl-tests, issue 123."""

KIB, MIB = 1 << 10, 1 << 20
SIZES = tuple(KIB << step for step in range(11))
ALPHA, BANDWIDTH = 4e-6, 5e9


def data_a() -> Curve:
    sizes = [32 * KIB << step for step in range(len(DATA_A_GBPS))]
    return curve(sizes, [size / (rate * 1e9) for size, rate in zip(sizes, DATA_A_GBPS, strict=True)], 32, 4)


def made_up(
    alpha_s: float,
    bandwidth: float,
    sizes: Sequence[int],
    *,
    launches: int = 1,
    of_launch: float = 0.0,
    of_row: float = 0.0,
    seed: int = 0,
    ranks: int = 2,
    starts: float = 1.0,
    moved: float = 1.0,
    base_s: float = 0.0,
) -> Curve:
    """Times base + starts alpha + moved S / B with lognormal noise of each launch and of each row."""
    draw = np.random.default_rng(seed)
    truth = base_s + starts * alpha_s + moved * np.asarray(sizes) / bandwidth
    noise = draw.normal(0, of_launch, (launches, 1)) + draw.normal(0, of_row, (launches, len(sizes)))
    return curve(sizes, (truth * np.exp(noise)).tolist(), ranks)


def family(*curves: Curve, collective: str = "all_reduce") -> Family:
    return Family((("collective", collective), ("backend", "mpi")), tuple(curves))


def doubling(low: int, high: int) -> list[int]:
    sizes = []
    while low <= high:
        sizes.append(low)
        low *= 2
    return sizes


def ring(ranks: int, **more: float) -> Curve:
    """All_reduce by a ring on one host, five launches, 3 % about and each row 2 %."""
    starts, moved = 2 * (ranks - 1), 2 * (ranks - 1) / ranks
    noise = {"launches": 5, "of_launch": 0.03, "of_row": 0.02, "seed": ranks} | more
    return made_up(ALPHA, BANDWIDTH, SIZES, starts=starts, moved=moved, ranks=ranks, **noise)  # type: ignore[arg-type]


def ring_s(size: int, ranks: int) -> float:
    """Its truth in seconds."""
    return 2 * (ranks - 1) * ALPHA + 2 * (ranks - 1) / ranks * size / BANDWIDTH


def law(collective: str, name: str) -> Law:
    """One of the laws, by its name."""
    return next(one for one in LAWS[collective] if one.name == name)


def width(one: Forecast) -> float:
    """How wide its interval is, as a factor; it lies about the time."""
    assert one.low_s is not None
    assert one.high_s is not None
    assert one.low_s < one.time_s < one.high_s
    return one.high_s / one.low_s
