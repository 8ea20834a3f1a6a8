"""Every kind of damage is planted in a loopback collective, and must be seen and named."""

import ctypes
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from collbench.backends.base import NO_STATUS, BoundCall, Call, Steps, call_list, no_step
from collbench.backends.loopback import Loopback
from collbench.backends.memory import Buffers, HostMemory, Region
from collbench.collectives import Layout, Piece, entry_named
from collbench.dtypes import DTYPES
from collbench.pattern import Pattern
from collbench.plan import Case
from collbench.scenario import Measure
from collbench.timing import sample
from collbench.verify import Check, Damage, check_case, value_text
from collbench.world import World

COUNT = 1000
QUICK = Measure(time_budget_s=0.02, least_time_s=0.0, warmup_time_s=0.01)
LIBC = ctypes.CDLL(None)
CASE = Case(
    variant="", backend="loopback", collective="all_reduce", call="blocking", dtype="float32", operation="sum",
    root="", placement="out_of_place", caller="compiled", mode="latency", sync="library", buffer="plain", buffers=1,
    pages="default", pattern="", topology="world", requested_bytes=4 * COUNT,
)  # fmt: skip


def address(name: str) -> int:
    return ctypes.cast(getattr(LIBC, name), ctypes.c_void_p).value or 0


def move(to: int, source: int, length: int) -> Call:
    return Call(address("memmove"), (to, source, length), NO_STATUS)


def put(to: int, byte: int, length: int = 1) -> Call:
    return Call(address("memset"), (to, byte, length), NO_STATUS)


def bound_case(case: Case = CASE) -> tuple[BoundCall, Check]:
    backend = Loopback(World())
    layout = backend.layout(case, COUNT)
    bound = backend.bind(case, COUNT, layout)
    check = Check(0, layout, Pattern(DTYPES[case.dtype], case.operation or "move", 1, 7))
    for one in bound.buffers:
        check.prepare(one)
    return bound, check


def verdict(bound: BoundCall, check: Check) -> Damage | None:
    """Time the case, then verify it, as the runner does."""
    sampled = sample(bound, World(), QUICK, mode="latency", step_s=1e-8)
    assert sampled.failed is None
    return check_case(bound, check, timed=True)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("placement", ["out_of_place", "in_place"])
@pytest.mark.parametrize("caller", ["compiled", "python"])
@pytest.mark.parametrize("buffers", [1, 3])
def test_a_working_case_is_clean(dtype: str, placement: str, caller: str, buffers: int) -> None:
    case = replace(CASE, dtype=dtype, placement=placement, caller=caller, buffers=buffers)
    bound, check = bound_case(case)
    assert verdict(bound, check) is None


Plant = Callable[[int, int], list[Call]]
BYTES = 4 * COUNT
HALF = BYTES // 2

PLANTS: dict[str, tuple[Plant, str, int, int]] = {
    # name: (calls by the addresses of send and recv, where it shows, index, how many wrong)
    "unwritten": (lambda send, recv: [move(send, send, 4)], "received", 0, COUNT),
    "dropped tail": (lambda send, recv: [move(recv, send, BYTES - 4)], "received", COUNT - 1, 1),
    "dropped head": (lambda send, recv: [move(recv + 8, send + 8, BYTES - 8)], "received", 0, 2),
    "swapped blocks": (
        lambda send, recv: [move(recv, send + HALF, HALF), move(recv + HALF, send, HALF)],
        "received",
        0,
        COUNT,
    ),
    "shifted": (lambda send, recv: [move(recv + 4, send, BYTES - 4), move(recv, send, 4)], "received", 1, COUNT - 1),
    "overrun": (lambda send, recv: [move(recv, send, BYTES), put(recv + BYTES, 0x5A, 4)], "after received", COUNT, 1),
    "underrun": (lambda send, recv: [move(recv, send, BYTES), put(recv - 4, 0x5A, 4)], "before received", -1, 1),
    "late overrun": (
        lambda send, recv: [move(recv, send, BYTES), put(recv + BYTES + 4092, 0x5A, 4)],
        "after received",
        COUNT + 1023,
        1,
    ),
    "modified input": (
        lambda send, recv: [move(recv, send, BYTES), put(send + 400, 0x5A, 4)],
        "received",  # the second iteration already copies the modified element
        100,
        2,
    ),
    "input's guard": (
        lambda send, recv: [move(recv, send, BYTES), put(send + BYTES, 0x5A, 4)],
        "after sent",
        COUNT,
        1,
    ),
}


@pytest.mark.parametrize("kind", PLANTS)
def test_planted_damage_is_seen(kind: str) -> None:
    plant, where, index, wrong = PLANTS[kind]
    bound, check = bound_case()
    buffers = bound.buffers[0]
    bound.run = call_list(plant(buffers.send.address, buffers.recv.address))
    found = verdict(bound, check)
    assert found is not None
    assert (found.where, found.index) == (where, index)
    # What is overrun by an equal value stays unseen: a shifted block may hold one by chance, a poisoned one cannot.
    assert found.wrong == wrong if kind != "shifted" else wrong * 0.95 < found.wrong <= wrong


@pytest.mark.parametrize("bit", [0, 7, 22, 31])
@pytest.mark.parametrize("index", [0, 1, 511, 998, 999])
def test_one_flipped_bit_is_seen(bit: int, index: int) -> None:
    bound, check = bound_case()
    buffers = bound.buffers[0]
    place, shift = 4 * index + bit // 8, bit % 8
    right = ctypes.string_at(buffers.send.address + place, 1)[0]
    flip = put(buffers.recv.address + place, right ^ (1 << shift))
    bound.run = call_list([move(buffers.recv.address, buffers.send.address, BYTES), flip])
    found = verdict(bound, check)
    assert found is not None
    assert (found.where, found.index, found.wrong) == ("received", index, 1)
    assert found.got != found.expected


def test_in_place_damage_is_seen() -> None:
    bound, check = bound_case(replace(CASE, placement="in_place"))
    recv = bound.buffers[0].recv.address
    bound.run = call_list([put(recv + 40, 0x5A, 4)])
    found = verdict(bound, check)
    assert found is not None
    assert (found.where, found.index, found.wrong) == ("received", 10, 1)


def test_only_one_of_several_buffer_sets_is_damaged() -> None:
    bound, check = bound_case(replace(CASE, buffers=3))
    last = bound.buffers[2]
    bound.run[2, 0, 4] = BYTES - 4  # the length word of the third rotation
    assert last.recv.length == COUNT
    found = verdict(bound, check)
    assert found is not None
    assert (found.where, found.index) == ("received", COUNT - 1)


def test_a_call_that_stops_working_is_seen_though_its_old_result_is_right() -> None:
    """After the 40th call nothing is written any more: the timed buffers still hold the right result of before."""
    bound, check = bound_case()
    buffers, calls = bound.buffers[0], [0]

    def run(k: int) -> None:
        calls[0] += 1
        if calls[0] <= 5:
            ctypes.memmove(buffers.recv.address, buffers.send.address, BYTES)

    bound.steps = Steps(no_step, run)
    found = verdict(bound, check)
    assert calls[0] > 5
    assert found is not None
    assert (found.where, found.index, found.wrong) == ("received", 0, COUNT)


def test_a_status_in_mid_loop_fails_the_sample() -> None:
    bound, _ = bound_case()
    good = Call(address("labs"), (0,))
    bound.run = call_list(*[[good if k != 37 else Call(address("labs"), (5,))] for k in range(64)])
    sampled = sample(bound, World(), replace(QUICK, time_budget_s=0.2), mode="latency", step_s=1e-8)
    assert sampled.failed == (0, 5)
    assert sampled.durations_s.size == 0


def test_a_status_of_the_call_after_timing_is_damage() -> None:
    bound, check = bound_case()
    bound.run = call_list([Call(address("labs"), (5,))])
    found = check_case(bound, check, timed=False)
    assert found is not None
    assert found.where == "the call after timing"


def test_untouched_elements_must_stay() -> None:
    bound, _ = bound_case()
    layout = Layout(send=COUNT, recv=COUNT, expected=(Piece(0, 10, untouched=True), Piece(10, COUNT - 10, 0, 0, 10)))
    check = Check(0, layout, Pattern(DTYPES["float32"], "move", 1, 7))
    check.prepare(bound.buffers[0])
    found = verdict(bound, check)  # the loopback copies everything, the first ten elements as well
    assert found is not None
    assert (found.where, found.index, found.wrong) == ("received", 0, 10)


@pytest.mark.parametrize(
    ("name", "bits", "text"),
    [
        ("uint8", 255, "255"),
        ("int8", 255, "-1"),
        ("int32", 0x80000000, "-2147483648"),
        ("float32", 0x3F800000, "1.0 (0x3f800000)"),
        ("float32", 0xC0490FDB, "-3.1415927410125732 (0xc0490fdb)"),
        ("float16", 0x3C00, "1.0 (0x3c00)"),
        ("bfloat16", 0xBF80, "-1.0 (0xbf80)"),
        ("float64", 0x7FF0000000000000, "NaN or infinity (0x7ff0000000000000)"),
        ("float8_e4m3", 0x38, "1.0 (0x38)"),
        ("float32", 1, "1.401298464324817e-45 (0x00000001)"),
    ],
)
def test_values_in_words(name: str, bits: int, text: str) -> None:
    assert value_text(bits, DTYPES[name]) == text


def test_values_agree_with_numpy() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 200, dtype=np.uint32)
    for value, word in zip(bits.view(np.float32), bits, strict=True):
        if np.isfinite(value):
            assert float(value_text(int(word), DTYPES["float32"]).split()[0]) == float(value)


def test_in_place_the_root_of_a_scatter_must_keep_the_others_blocks() -> None:
    layout = entry_named("scatter").collective.layout(COUNT, 2, 0, root=0, in_place=True)
    memory = HostMemory(DTYPES["float32"], layout.in_place_length)
    buffers = Buffers(Region(memory, 0, layout.send), Region(memory, layout.in_place_recv, layout.recv))
    check = Check(0, layout, Pattern(DTYPES["float32"], "move", 2, 7))
    check.prepare(buffers)
    assert check.damage(buffers) is None
    memory.array[COUNT + 5] ^= 1
    found = check.damage(buffers)
    assert found is not None
    assert (found.where, found.index, found.wrong) == ("sent", COUNT + 5, 1)


def two_inputs() -> tuple[BoundCall, Check]:
    """A reduction of two inputs in one send buffer, as a Python step that numpy does."""
    layout = entry_named("reduce_local").collective.layout(COUNT, 1, 0)
    dtype = DTYPES["int32"]
    send, recv = HostMemory(dtype, layout.send), HostMemory(dtype, layout.recv)
    buffers = Buffers(Region(send, 0, layout.send), Region(recv, 0, layout.recv))

    def run(k: int) -> None:
        np.add(send.array[:COUNT], send.array[COUNT:], out=recv.array)

    check = Check(0, layout, Pattern(dtype, "sum", 2, 7))
    check.prepare(buffers)
    return BoundCall(buffers=[buffers], steps=Steps(no_step, run)), check


def test_a_send_buffer_may_hold_several_inputs() -> None:
    bound, check = two_inputs()
    assert verdict(bound, check) is None
    bound, check = two_inputs()
    send = bound.buffers[0].send.memory
    assert isinstance(send, HostMemory)
    assert bound.steps is not None
    right = bound.steps.run

    def spoil(k: int) -> None:
        right(k)
        send.array[COUNT + 3] ^= 1

    bound.steps = Steps(no_step, spoil)
    found = check_case(bound, check, timed=False)
    assert found is not None
    assert (found.where, found.index, found.wrong) == ("sent", COUNT + 3, 1)


def test_ranks_settle_between_the_calls_and_the_comparison() -> None:
    bound, check = bound_case()
    buffers = bound.buffers[0]
    settled: list[int] = []

    def arrive() -> None:
        settled.append(1)
        ctypes.memmove(buffers.recv.address, buffers.send.address, BYTES)

    bound.run, bound.settle = call_list([]), arrive
    assert check_case(bound, check, timed=False) is None
    assert settled == [1]
