"""What a resume measures anew, and in which order; and what it refuses."""

import json
from pathlib import Path

import pytest

from collbench.errors import UsageError
from collbench.faults import pending_rows
from collbench.plan import expand
from collbench.record import Record
from collbench.results import RunFolder, RunInfo
from collbench.runs import check_devices, drop_unfinished, tried_last
from collbench.scenario import Scenario, Sweep

PLAN = expand(Scenario(name="t", title="t", sweeps=(Sweep(collectives=("all_reduce",), sizes=(8, 16, 32, 64)),)))
IDS = [case.case_id for case in PLAN.cases]


def row(case_id: str, status: str, launch: int = 0) -> Record:
    return Record(launch=launch, case_id=case_id, group="world", status=status)


def order(folder: RunFolder) -> list[str]:
    return [case.case_id for case in tried_last(PLAN.cases, folder.read_tries())]


def test_what_had_no_end_is_measured_anew_and_last(tmp_path: Path) -> None:
    a, b, c, d = IDS
    with RunFolder.create("t", tmp_path / "run") as folder:
        assert order(folder) == IDS
        folder.append([row(a, "timeout"), row(b, "ok")])
        assert drop_unfinished(folder) == 1
        assert [one.case_id for one in folder.read()] == [b]
        assert order(folder) == [b, c, d, a]
        # Of two that always end their launch, each gets its turn.
        folder.append([row(c, "failed")])
        drop_unfinished(folder)
        assert order(folder) == [b, d, a, c]
        folder.append([row(a, "timeout")])
        drop_unfinished(folder)
        assert order(folder) == [b, d, c, a]
        assert drop_unfinished(folder) == 0
        assert order(folder) == [b, d, c, a]


def test_the_case_that_a_killed_launch_was_in_is_measured_last(tmp_path: Path) -> None:
    a, b, c, d = IDS
    with RunFolder.create("t", tmp_path / "run") as folder:
        folder.set_pending(pending_rows("x", [{"case_id": a, "group": "world", "launch": 0}]))
        drop_unfinished(folder)
        assert order(folder) == [b, c, d, a]
        assert not (folder.path / "pending.json").exists()
        # It died between the row and the word that the case has it.
        folder.append([row(b, "ok")])
        folder.set_pending(pending_rows("x", [{"case_id": b, "group": "world", "launch": 0}]))
        drop_unfinished(folder)
        assert order(folder) == [b, c, d, a]


def test_an_unreadable_note_changes_no_order(tmp_path: Path) -> None:
    with RunFolder.create("t", tmp_path / "run") as folder:
        for text in ("", "[1]", "{", json.dumps({IDS[0]: None}), json.dumps("x")):
            (folder.path / "tries.json").write_text(text)
            folder.set_pending(text or "x")
            drop_unfinished(folder)
            assert order(folder) == IDS


def test_a_file_that_an_editor_saved_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    with RunFolder.create("t", tmp_path / "run") as folder:
        folder.append([row(IDS[0], "ok")])
        folder.results_path.write_bytes(folder.results_path.read_bytes().replace(b"\n", b"\r\n"))
        with pytest.raises(UsageError, match="line ends or a byte order mark of an editor"):
            drop_unfinished(folder)


def test_other_devices_than_a_run_began_with_are_refused(tmp_path: Path) -> None:
    hosts, began = ("a", "b"), (("uuid-1",), ("uuid-2",))
    with RunFolder.create("t", tmp_path / "run") as folder:
        folder.write_info(RunInfo("t", "digest", 2, ""))
        check_devices(folder, "", (), hosts)  # none are used
        check_devices(folder, "", ((), ("uuid-2",)), hosts)  # not all can be read
        assert folder.read_info().devices == {}
        for _ in range(2):
            check_devices(folder, "", began, hosts)
        check_devices(folder, "", (), hosts)  # what is left needs none
        check_devices(folder, "others", began[::-1], hosts)  # a variant may choose its own
        for second, got in (
            (["uuid-3"], "device uuid-3"), ([], "no device"), (["uuid-2", "uuid-3"], "devices uuid-2, uuid-3"),
        ):  # fmt: skip
            with pytest.raises(UsageError, match=f"run: rank 1 on b: got {got}, expected device uuid-2 as the run "):
                check_devices(folder, "", (["uuid-1"], second), hosts)
        assert folder.read_info().devices == {"": [["uuid-1"], ["uuid-2"]], "others": [["uuid-2"], ["uuid-1"]]}
        assert folder.read_info().ranks == 2
