import os
from pathlib import Path

import pytest

from collbench.durable import sentences, write_atomically
from collbench.errors import CollbenchError, UsageError


def test_a_file_is_old_or_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")

    def fail(_: int) -> None:
        assert path.read_text() == "old"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, "new", durable=False)
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_name_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    write_atomically(tmp_path / "file", "x")
    assert [path.name.startswith(".file-") for path in synced] == [True, False]
    assert synced[1] == tmp_path


def test_an_error_of_the_file_system_is_a_sentence() -> None:
    for number, kind, text in (
        (13, UsageError, "you may write to"),
        (28, CollbenchError, "make room"),
        (5, CollbenchError, "check"),
    ):
        with pytest.raises(kind, match=f"^x: could not do it: .*; .*{text}"), sentences(Path("x"), "do it"):
            raise OSError(number, os.strerror(number))
