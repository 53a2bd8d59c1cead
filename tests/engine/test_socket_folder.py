"""Would catch a folder that a killed process leaves behind for ever, and one taken from a process that lives."""

import os
import tempfile
from pathlib import Path

import pytest

from megaphone.engine.spark import socket_folder
from megaphone.engine.spark.socket_folder import SocketFolder


@pytest.fixture
def among(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def killed() -> Path:
    """The folder of a process that was killed: nothing is removed, and the kernel closes its files."""
    folder = SocketFolder()
    (folder.path / "worker.sock").touch()
    os.close(folder._file)
    return folder.path


def test_folders_of_killed_processes_go_when_another_is_made(among: Path) -> None:
    left = [killed() for _ in range(3)]
    made = SocketFolder()
    assert not any(path.exists() for path in left)
    assert list(among.iterdir()) == [made.path]


def test_folder_of_a_process_that_lives_stays_until_it_is_closed(among: Path) -> None:
    one = SocketFolder()
    other = SocketFolder()
    assert {one.path, other.path} == set(among.iterdir())
    one.close()
    one.close()
    other.close()
    assert list(among.iterdir()) == []


def test_folder_that_is_no_such_process_s_stays(among: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_folder, "kernel", lambda: "of another machine")
    elsewhere = killed()
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(among))
    (among / "megaphone-bench-1").mkdir(0o700)
    (among / "target").mkdir(0o700)
    (among / "target" / socket_folder.LOCK).write_text(socket_folder.kernel())
    (among / "megaphone-link").symlink_to(among / "target")
    made = SocketFolder()
    assert {path.name for path in among.iterdir()} == {
        *("megaphone-bench-1", "megaphone-link", "target"),
        *(elsewhere.name, made.path.name),
    }
    assert (among / "target" / socket_folder.LOCK).exists()
