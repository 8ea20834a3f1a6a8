"""Which entry of CUDA_VISIBLE_DEVICES a rank takes."""

import pytest

from collbench.instances import VARIABLE, own_entry, take_own
from collbench.neighbour import _environment

MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"


@pytest.mark.parametrize(
    ("visible", "rank", "own"),
    [
        ("MIG-a,MIG-b", 0, "MIG-a"),
        ("MIG-a, MIG-b,", 1, "MIG-b"),
        ("MIG-a,MIG-b", 2, "MIG-a"),  # refused by its UUID, as are too many ranks for whole devices
        ("GPU-a,MIG-b", 0, "GPU-a"),
        ("MIG-GPU-8932f937/1/0,MIG-GPU-8932f937/2/0", 1, "MIG-GPU-8932f937/2/0"),
        (MIG, 3, MIG),
        ("0,1,2", 1, "0,1,2"),
        ("GPU-a,GPU-b", 1, "GPU-a,GPU-b"),
        ("", 1, ""),
    ],
)
def test_a_rank_takes_its_own_instance_and_leaves_whole_devices(visible: str, rank: int, own: str) -> None:
    assert own_entry(visible, rank) == own
    assert own_entry(own, rank + 1) == own  # its children and the launcher's second word change nothing


def test_its_neighbour_sees_what_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "MIG-a,MIG-b")
    take_own(1)
    assert _environment({VARIABLE: "MIG-b", "OMPI_COMM_WORLD_RANK": "1"}) == {VARIABLE: "MIG-b"}
    monkeypatch.delenv(VARIABLE)
    take_own(1)
