"""What NCCL says that it chooses, from a launch that is not timed to the rows of one that is."""

from pathlib import Path

from collbench.choices import keep, load
from collbench.nccl_log import Choice


def test_choices_come_back_as_they_were_kept(tmp_path: Path) -> None:
    choices = {
        ("c1", "world"): Choice("all_reduce", 8, "Ring", "LL", 2),
        ("c1", "0-1"): Choice("all_reduce", 8, "Tree"),
    }
    keep(tmp_path, "", choices)
    keep(tmp_path, "ring", {})
    assert load(tmp_path, "") == choices
    assert load(tmp_path, "ring") == {}
    assert load(tmp_path, "unknown") == {}
    (tmp_path / "choices.json").write_text("[[1]]")
    assert load(tmp_path, "") == {}
