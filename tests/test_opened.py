"""Why a backend cannot be used, as the rows say it."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.backends import cuda
from collbench.backends.peer import Peer
from collbench.backends.sharing import sharing_refused
from collbench.errors import Agreed, CollbenchError
from collbench.neighbour import start
from collbench.opened import refusal
from collbench.world import World


@dataclass(frozen=True)
class Told(World):
    """Ranks whose words are known."""

    words: tuple[str | None, ...] = ()

    def all_gather(self, value: Any) -> list[Any]:
        """Give what the ranks say."""
        return list(self.words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((None, None), None),
        (("no driver", "no driver"), "no driver"),
        ((None, "no driver"), "rank 5 on b: no driver"),
        (("1 GiB is free", "2 GiB is free"), "rank 3 on a: 1 GiB is free"),
    ],
)
def test_a_reason_that_is_everybodys_is_not_one_ranks(words: tuple[str | None, ...], said: str | None) -> None:
    group = Told(size=2, ranks=(3, 5), hosts=("a", "b"), words=words)
    assert refusal(words[0], group) == said


GROUP = Told(rank=1, size=2, ranks=(3, 5), hosts=("a", "b"), words=(None, "no memory"))


def test_what_fails_in_a_group_is_told_with_the_launchs_numbers() -> None:
    with pytest.raises(Agreed, match=r"^rank 5 on b: no memory$"):
        GROUP.all_or_none(lambda: None)

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(CollbenchError, match=r"^rank 3 on a: ValueError: no$"):
        World(ranks=(3,), hosts=("a",)).from_root(fails)


def test_a_neighbour_that_fails_is_that_of_the_launchs_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = iter([[("a", [0]), ("b", [0])], [None, "no memory"]])
    monkeypatch.setattr(Told, "all_gather", lambda *_: next(gathered))
    monkeypatch.setattr("collbench.neighbour._spawn", lambda *_: SimpleNamespace(stop=lambda: None))
    with pytest.raises(CollbenchError, match=r"^neighbour copy of rank 5 on b: no memory$"):
        start("copy", GROUP, 0)


@pytest.mark.parametrize(
    ("host", "uuid", "said"),
    [
        ("b", "1", "ranks 5 and 3 (H100 and H200) have the same device; expected one each"),
        ("a", "0", "ranks 5 and 3 (H100 and H200) are on different hosts, b and a; expected one"),
    ],
)
def test_pairs_have_the_launchs_numbers(host: str, uuid: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("device_index", 0), ("device_uuid", "1"), ("device_name", "H100"), ("cut_short", None)):
        monkeypatch.setattr(cuda, name, lambda *_, value=value: value)

    def gathered(_: World, value: Any) -> list[Any]:
        return [(host, uuid, "H200"), value] if isinstance(value, tuple) else [None, value]

    monkeypatch.setattr(Told, "all_gather", gathered)
    assert sharing_refused(GROUP, [(0, 1), (1, 0)]) == said


def test_a_rank_that_did_not_come_has_the_launchs_number() -> None:
    peer: Any = SimpleNamespace(group=GROUP, deadline_s=10.0)
    assert Peer._missing(peer, 2) == "rank 5 on b did not come within 10 s"
    assert Peer._missing(peer, 719) == ""  # CUDA's


def test_owners_and_sharers_have_the_launchs_numbers() -> None:
    group = World(size=3, ranks=(1, 4, 6), hosts=("a", "a", "b"))
    assert cuda.ranks_and_hosts((0, 1), group) == "ranks 1, 4 on a"
    assert cuda.ranks_and_hosts((1, 2), group) == "rank 4 on a and rank 6 on b"
