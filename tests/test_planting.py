"""The busy loop that scripts and tests plant into measured calls."""

import ctypes

import numpy as np

import planting
from collbench.backends.base import Call, call_list


def test_the_loop_is_one_more_call_of_each_rotation() -> None:
    run = call_list([Call(1, (2, 3)), Call(4)], [Call(5), Call(6)])
    longer = planting.with_loop(run, 7)
    assert longer.shape == (2, 3, 14)
    assert longer.flags.c_contiguous
    assert np.array_equal(longer[:, :2], run)
    for rotation in longer:
        assert rotation[2, 0] not in (0, 1, 4, 5, 6)
        assert (rotation[2, 1], rotation[2, 2]) == (0, 7)  # no status, so many steps
    assert planting.with_loop(run, 0) is run


def test_the_loop_does_its_steps() -> None:
    def steps(count: int) -> int:
        x, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
        for _ in range(count):
            x ^= x << 13 & mask
            x ^= x >> 7
            x ^= x << 17 & mask
        return x

    loop = planting.with_loop(call_list([Call(1)]), 1)[0, 1, 0]
    call = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(int(loop))
    assert [call(count) for count in (1, 2, 50)] == [steps(count) for count in (1, 2, 50)]
