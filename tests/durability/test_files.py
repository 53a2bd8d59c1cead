"""Would catch a file that is believed although it is half there, damaged, somebody else's or from another time.

And a folder that others may read, a path that only works without spaces, and a full disk that leaves rubbish behind.
"""

import errno
import os
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megaphone.durability import files
from megaphone.durability.files import BLOCK, Folder, retried
from megaphone.errors import CheckpointError

PARTS = [b"one", b"", b"x" * 200]


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path))


def read(folder, name="f", kind="plan"):
    return [bytes(part) for part in folder.read(name, kind)]


def everything(path):
    return sorted(str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file())


@given(parts=st.lists(st.binary(max_size=200), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_come_back_as_they_were(tmp_path, parts):
    folder = Folder(str(tmp_path))
    size = folder.write("sub/f", "plan", parts)
    assert read(folder, "sub/f") == parts
    assert (tmp_path / "sub/f").stat().st_size == size + 8


def test_parts_lie_where_arrow_can_use_them(folder):
    folder.write("f", "plan", PARTS)
    assert all(part.address % BLOCK == 0 for part in folder.read("f", "plan"))


def test_anything_with_memory_is_a_part(folder):
    folder.write("f", "plan", [pa.py_buffer(b"arrow"), memoryview(b"view"), bytearray(b"array"), struct.pack("<q", 7)])
    assert read(folder) == [b"arrow", b"view", b"array", struct.pack("<q", 7)]


@pytest.mark.parametrize("look", [Folder.sizes, Folder.folders, Folder.drafts])
def test_folder_that_is_made_while_it_is_looked_for_is_no_error(folder, tmp_path, look):
    class Made:
        """A file system that does what Arrow's was seen to, in an epoch that had two workers begin their logs."""

        def get_file_info(self, selector):
            if (tmp_path / "log").exists():
                return arrow.get_file_info(selector)
            (tmp_path / "log").mkdir()
            raise FileNotFoundError(errno.ENOENT, "Cannot list directory")

    arrow, folder._fs = folder._fs, Made()
    assert look(folder, "log") == []


def test_newer_file_takes_the_place_of_the_older(folder):
    folder.write("f", "plan", [b"old"])
    folder.write("f", "plan", [b"new"])
    assert read(folder) == [b"new"]
    assert folder.names("") == ["f"]


def test_draft_is_not_there_before_it_is_finished(folder, tmp_path):
    draft = folder.draft("f", "plan")
    draft.add(b"one")
    assert folder.names("") == []
    with pytest.raises(FileNotFoundError):
        folder.read("f", "plan")
    draft.finish()
    assert folder.names("") == everything(tmp_path) == ["f"]


def test_discarded_draft_leaves_nothing(folder, tmp_path):
    draft = folder.draft("f", "plan")
    draft.add(b"one")
    draft.discard()
    assert everything(tmp_path) == []


def test_failing_writer_leaves_nothing(folder, tmp_path):
    def parts():
        yield b"one"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        folder.write("f", "plan", parts())
    assert everything(tmp_path) == []


def test_failing_writer_leaves_the_older_file(folder):
    folder.write("f", "plan", [b"old"])
    with pytest.raises(TypeError):
        folder.write("f", "plan", [None])
    assert read(folder) == [b"old"]


def test_writer_that_dies_leaves_only_a_draft_which_can_be_swept_away(folder, tmp_path):
    program = (
        "import os, sys; from megaphone.durability.files import Folder\n"
        "draft = Folder(sys.argv[1]).draft('log/f', 'log'); draft.add(b'half'); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == 9
    (left,) = everything(tmp_path)
    assert left.startswith("log/f.")
    assert left.endswith(".writing")
    assert folder.names("log") == []
    folder.write("log/g", "log", PARTS)
    assert [f"log/{name}" for name in folder.drafts("log")] == [left]
    folder.remove(left)
    assert everything(tmp_path) == ["log/g"]


def test_two_writers_of_one_file_do_not_meet(folder):
    first, second = folder.draft("f", "plan"), folder.draft("f", "plan")
    first.add(b"first")
    second.add(b"second")
    second.finish()
    first.finish()
    assert read(folder) == [b"first"]


# -- what is refused ------------------------------------------------------------------------------------------------


def refused(folder, match, name="f", kind="plan"):
    with pytest.raises(CheckpointError, match=match) as caught:
        folder.read(name, kind)
    assert f"{folder.uri}/{name}" in str(caught.value)


def test_truncated_file_is_refused_wherever_it_ends(folder, tmp_path):
    folder.write("f", "plan", PARTS)
    whole = (tmp_path / "f").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "f").write_bytes(whole[:size])
        refused(folder, "truncated or damaged|is not a plan of Megaphone's|is of version")


@pytest.mark.parametrize(
    ("place", "where"),
    [(0, "head"), (BLOCK, "length"), (2 * BLOCK, "part"), (3 * BLOCK - 1, "padding"), (-1, "digest")],
)
def test_flipped_bit_is_refused(folder, tmp_path, place, where):
    folder.write("f", "plan", PARTS)
    raw = bytearray((tmp_path / "f").read_bytes())
    raw[place] ^= 1
    (tmp_path / "f").write_bytes(raw)
    refused(folder, "damaged|is not a plan")


def test_appended_bytes_are_refused(folder, tmp_path):
    folder.write("f", "plan", PARTS)
    with (tmp_path / "f").open("ab") as file:
        file.write(b"more")
    refused(folder, "truncated or damaged")


@pytest.mark.parametrize("content", [b"", b"hello", b"PAR1" + bytes(500), bytes(500), os.urandom(500)])
def test_foreign_file_is_refused(folder, tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    refused(folder, "is not a plan of Megaphone's")


def test_file_of_another_kind_is_refused(folder):
    folder.write("f", "log", PARTS)
    refused(folder, "is not a plan of Megaphone's")


def test_file_of_another_version_is_refused_with_both_versions(folder, monkeypatch):
    monkeypatch.setattr(files, "VERSION", 2)
    folder.write("f", "plan", PARTS)
    monkeypatch.setattr(files, "VERSION", 1)
    refused(folder, "is of version 2; this is version 1")


def test_missing_file_is_not_found_by_its_whole_name(folder):
    with pytest.raises(FileNotFoundError) as caught:
        folder.read("sub/f", "plan")
    assert f"{folder.uri}/sub/f" in str(caught.value)


# -- a full disk ------------------------------------------------------------------------------------------------------


class FullDisk:
    """Takes some writes, then has no room."""

    def __init__(self, stream, room):
        self._stream, self._room = stream, room

    def write(self, data):
        self._room -= 1
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._stream.write(data)

    def close(self):
        self._stream.close()


class FullFileSystem:
    def __init__(self, room):
        self._fs, self._room = pafs.LocalFileSystem(), room

    def __getattr__(self, name):
        return getattr(self._fs, name)

    def open_output_stream(self, path):
        return FullDisk(self._fs.open_output_stream(path), self._room)


@pytest.mark.parametrize("room", range(9))
def test_full_disk_leaves_no_half_file(folder, tmp_path, room):
    """At the head, at a part's length, in a part, at the end, at the digest."""
    folder.write("f", "plan", [b"old"])
    folder._fs = FullFileSystem(room)
    with pytest.raises(OSError, match="No space left"):
        folder.write("f", "plan", [b"one", b"two"])
    assert everything(tmp_path) == ["f"]
    assert read(Folder(str(tmp_path))) == [b"old"]


def test_file_beyond_the_limit_of_the_system_leaves_nothing(tmp_path):
    program = (
        "import resource, signal, sys; from megaphone.durability.files import Folder\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: Folder(sys.argv[1]).write('f', 'log', [bytes(3000), bytes(3000)])\n"
        "except OSError as error: print(error.errno)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(errno.EFBIG)
    assert everything(tmp_path) == []


# -- where ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
@pytest.mark.parametrize("name", ["plain", "with space", "per%20cent", "Grüße", "a+b#c", "a:b"])
def test_path_is_taken_as_hadoop_writes_it(tmp_path, form, name):
    folder = Folder(form.format(tmp_path / name))
    folder.write("sub/f", "plan", PARTS)
    assert everything(tmp_path) == [f"{name}/sub/f"]
    assert read(folder, "sub/f") == PARTS
    assert folder.names("sub") == ["f"]
    assert folder.folders("") == ["sub"]


def test_relative_path_is_one_of_this_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Folder("here").write("f", "plan", PARTS)
    assert everything(tmp_path) == ["here/f"]


def test_folders_are_private_to_their_user(tmp_path):
    folder = Folder(str(tmp_path / "own"))
    folder.make()
    folder.write("sub/f", "plan", PARTS)
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "own/sub").stat().st_mode) == 0o700


def test_names_are_in_order_and_without_hidden_and_unfinished_ones(folder, tmp_path):
    for name in ("b", "a", "c"):
        folder.write(f"sub/{name}", "plan", [])
    folder.write("sub/deep/d", "plan", [])
    (tmp_path / "sub/.nfs0001").write_bytes(b"")
    (tmp_path / "sub/e.1-2.writing").write_bytes(b"")
    assert folder.names("sub") == ["a", "b", "c"]
    assert [size for _, size in folder.sizes("sub")] == [2 * BLOCK + 8] * 3
    assert folder.names("nowhere") == folder.folders("nowhere") == []


def test_removing_what_is_not_there_is_no_error(folder, tmp_path):
    folder.write("f", "plan", [])
    folder.remove("f")
    folder.remove("f")
    folder.remove("no/such")
    assert everything(tmp_path) == []


# -- other file systems -----------------------------------------------------------------------------------------------


def elsewhere(kind, tmp_path):
    folder = Folder(str(tmp_path))
    if kind == "subtree":
        folder._fs, folder._root = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()), "root"
    else:
        folder._fs, folder._root = pafs._MockFileSystem(), "root"
    return folder


@pytest.mark.parametrize("kind", ["subtree", "mock"])
def test_nothing_depends_on_the_local_file_system(kind, tmp_path):
    folder = elsewhere(kind, tmp_path)
    assert folder.names("sub") == []
    folder.write("sub/deep/f", "plan", PARTS)
    folder.write("sub/deep/f", "plan", [b"new"])
    assert read(folder, "sub/deep/f") == [b"new"]
    assert folder.names("sub/deep") == ["f"]
    assert folder.folders("sub") == ["deep"]
    draft = folder.draft("sub/deep/g", "plan")
    draft.add(b"half")
    draft.discard()
    folder.draft("sub/deep/h", "plan")._stream.close()
    assert folder.names("sub/deep") == ["f"]
    for name in folder.drafts("sub/deep"):
        folder.remove(f"sub/deep/{name}")
    folder.remove("sub/deep/f")
    assert not folder._fs.get_file_info(pafs.FileSelector("root/sub/deep"))
    with pytest.raises(FileNotFoundError):
        folder.read("sub/deep/f", "plan")


# -- reading while others write ---------------------------------------------------------------------------------------


def test_reading_is_tried_again_when_a_file_vanishes():
    answers = [FileNotFoundError(), FileNotFoundError(), "there"]

    def read():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert retried(read) == "there"


def test_reading_what_stays_away_fails_in_the_end():
    tries = []

    def read():
        tries.append(None)
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        retried(read, times=3)
    assert len(tries) == 3
