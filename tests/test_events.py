"""How finely a device's clock counts, told from what it said."""

import numpy as np

from collbench.backends.events import step_ns, worst_clock
from collbench.clock import Clock


def test_the_step_is_the_least_difference() -> None:
    assert step_ns(np.array([1536, 1600, 2048]), np.array([1568])) == 32


def test_what_is_all_alike_is_a_multiple_of_the_step() -> None:
    assert step_ns(np.array([1024, 1024])) == 1024


def test_remainders_of_the_conversion_are_no_step() -> None:
    assert step_ns(np.array([500, 501, 1000, 1002])) == 499


def test_nothing_at_all_leaves_what_is_documented() -> None:
    assert step_ns(np.array([0, 0])) == 500


def test_of_several_devices_the_worst_of_each() -> None:
    assert worst_clock([Clock(2e-6, 1e-9), Clock(1e-6, 5e-7)]) == Clock(2e-6, 5e-7)
