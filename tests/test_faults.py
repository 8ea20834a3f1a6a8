"""Which of the words that dying ranks leave becomes the reason, and the row that is made of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import UsageError
from collbench.faults import Reason, account_for, hosts_in, pending_rows, reason_of
from collbench.results import RunFolder

HOSTS = ("a", "a", "b")
LATE, ENDED = 4, 130


def word(rank: int, code: int, phase: str = "sample", **more: Any) -> dict[str, Any]:
    return {
        "rank": rank,
        "host": HOSTS[rank],
        "phase": phase,
        "case": "all_reduce",
        "case_id": "c1",
        "at": "",
        "reason": f"word of {rank}",
        "exit_code": code,
    } | more


def reason(*faults: dict[str, Any], ended_by_us: bool = False) -> Reason:
    found = reason_of(faults, HOSTS, ended_by_us)
    assert found is not None
    return found


def test_no_word_is_no_reason() -> None:
    assert reason_of([], HOSTS) is None
    assert reason_of([{"rank": 0, "unreadable": "{"}], HOSTS) is None


def test_an_error_comes_before_a_time_that_was_up_and_before_a_signal() -> None:
    found = reason(word(0, LATE), word(1, ENDED), word(2, 1))
    assert found == ("failed", "rank 2 on b: word of 2 (phase sample of all_reduce)", 1)


def test_an_error_of_all_ranks_is_said_without_a_rank_and_keeps_its_exit_code() -> None:
    assert reason(word(0, 7, everyone=True)) == ("failed", "word of 0", 7)


def test_the_rank_in_the_rarest_place_is_named() -> None:
    found = reason(word(0, LATE), word(1, LATE, "verify", at="x.py:7 in f"), word(2, LATE))
    assert found.status == "timeout"
    assert found.exit_code == 4
    assert found.text.startswith("rank 1 on a: word of 1 (phase verify of all_reduce, at x.py:7 in f)")
    assert "rank 0 is elsewhere (phase sample of all_reduce)" in found.text


@pytest.mark.parametrize("stuck", [0, 1])
def test_of_two_ranks_the_one_that_waits_for_the_other_is_not_where_to_look(stuck: int) -> None:
    phases = ["prepare done, waiting for the others"] * 2
    phases[stuck] = "prepare"
    found = reason_of([word(rank, LATE, phases[rank]) for rank in range(2)], HOSTS[:2])
    assert found is not None
    assert found.text.startswith(f"rank {stuck} on a: ")


def test_ranks_in_one_place_have_one_sentence() -> None:
    assert (
        reason(*(word(rank, LATE) for rank in range(3))).text == "rank 0 on a: word of 0 (phase sample of all_reduce)"
    )


def test_a_rank_that_says_nothing_while_others_run_out_of_time_is_named() -> None:
    found = reason(word(0, LATE), word(1, LATE))
    assert found.status == "timeout"
    assert found.text.startswith("rank 2 on b left no word (stopped, stuck or gone); rank 0 on a: ")


def test_a_rank_that_was_only_ended_while_others_ran_out_of_time_is_named() -> None:
    found = reason(word(0, LATE), word(1, ENDED), word(2, LATE))
    assert found.status == "timeout"
    assert found.text.startswith("rank 1 on a: word of 1")


def test_a_rank_that_stood_still_is_named() -> None:
    found = reason(word(0, LATE), word(1, LATE, "verify"), word(2, LATE, stood_still=True))
    assert found.text.startswith("rank 2 on b: word of 2")
    everyone = reason(*(word(rank, LATE, stood_still=True) for rank in range(3)))  # the whole machine
    assert everyone.text == "rank 0 on a: word of 0 (phase sample of all_reduce)"


def test_a_rank_that_says_nothing_when_the_launcher_ends_the_others_was_killed() -> None:
    found = reason(word(0, ENDED), word(2, ENDED))
    assert found.status == "failed"
    assert found.exit_code == 1
    assert found.text.startswith("rank 1 on a ended without a word (killed or crashed); then rank 0")


def test_a_signal_to_all_ranks_is_an_interruption() -> None:
    assert reason(*(word(rank, ENDED) for rank in range(3))).exit_code == 130
    assert reason(word(0, ENDED), ended_by_us=True).exit_code == 130


def test_many_silent_ranks_are_counted() -> None:
    found = reason_of([word(0, LATE)], ["a"] * 20)
    assert found is not None
    assert "rank 8 on a and 11 more left no word" in found.text


@pytest.mark.parametrize(
    ("folded", "hosts"),
    [({"0-1": "a", "2": "b"}, ["a", "a", "b"]), ({"each": ["a", "b", "c"]}, ["a", "b", "c"]), (None, [""] * 3)],
)
def test_hosts_are_read_from_the_environment(folded: object, hosts: list[str], tmp_path: Path) -> None:
    if folded is not None:
        (tmp_path / "environment.json").write_text(json.dumps({"ranks": {"hostname": folded}}))
    assert hosts_in(RunFolder(tmp_path), 3) == hosts


ROW = {"case_id": "c1", "group": "world", "launch": 0, "status": "failed", "run_id": "r", "started_at": "t"}


def folder_with_pending(tmp_path: Path, start: str = "me") -> RunFolder:
    row = ROW | {"scenario": "s", "collective": "all_reduce", "backend": "mpi"}
    folder = RunFolder(tmp_path)
    folder.set_pending(pending_rows(start, [row]))
    return folder


def test_the_pending_case_gets_its_row_once(tmp_path: Path) -> None:
    folder = folder_with_pending(tmp_path)
    record = account_for(folder, "me", "timeout", "because")
    assert record is not None
    assert (record.status, record.reason) == ("timeout", "because")
    assert folder.read() == [record]
    assert account_for(folder, "me", "timeout", "because") is None
    folder.set_pending(pending_rows("me", [ROW]))  # it died between its row and the end of its case
    assert account_for(folder, "me", "failed", "later") is None
    assert [row.reason for row in folder.read()] == ["because"]
    folder.unlock()


def test_halves_of_files_are_taken_away(tmp_path: Path) -> None:
    folder = folder_with_pending(tmp_path)
    (tmp_path / ".pending.json-17-4711").write_text("{")
    account_for(folder, "me", "failed", "because")
    folder.unlock()
    assert {path.name for path in tmp_path.iterdir()} == {"results.csv", "lock"}


def test_the_pending_case_of_another_launch_is_not_ours(tmp_path: Path) -> None:
    folder = folder_with_pending(tmp_path, "another")
    assert account_for(folder, "me", "failed", "because") is None
    assert folder.read() == []
    folder.unlock()


def test_the_pending_case_in_a_folder_that_another_writes_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collbench.results.RunFolder.lock.__defaults__", (0.1,))
    folder = folder_with_pending(tmp_path)
    with RunFolder(tmp_path), pytest.raises(UsageError, match="got a folder that process"):
        account_for(folder, "me", "failed", "because")
    assert (tmp_path / "pending.json").exists()
