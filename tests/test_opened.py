"""Why a backend cannot be used, as the rows say it."""

from dataclasses import dataclass
from typing import Any

import pytest

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
