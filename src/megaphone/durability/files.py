"""Files that are complete or absent: written aside, then renamed; read back only if every byte is as it was written.

A file says in its first line what it is and in which version, holds parts of any size, and ends with a digest.
Any file system that Arrow knows will do: a local path, HDFS, an object store.
Neighbours: store.py says which files there are.
"""

import contextlib
import errno
import itertools
import os
import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import xxhash

from megaphone.durability.rights import resolved
from megaphone.durability.trust import Judge, tell_once
from megaphone.errors import CheckpointError
from megaphone.printing import printable

VERSION = 4
"""Of every file here. A reader refuses what it does not know."""

BLOCK = 64
"""Everything begins at a multiple of this, so that Arrow can read parts where they lie."""

END_OF_PARTS = 2**64 - 1

TEMPORARY = ".writing"
"""End of the name of a file that is not complete."""

_serial = itertools.count()


class Folder:
    """A folder on some file system, and the files in it by relative name."""

    def __init__(self, uri: str, judged_from: str | None = None) -> None:
        """Find a folder; nothing is created yet.

        If it is part of a checkpoint that is unpickled, `judged_from` is that checkpoint's location.
        """
        self.uri = uri.rstrip("/") or uri
        self._fs, self._root = _resolve(uri)
        self._judged = judged_from is not None
        self._judge = Judge(_resolve(judged_from)[1]) if judged_from is not None and self._is_local else None
        self._made: set[str] = set()

    def judge(self) -> None:
        """Refuse it if others could change what is in it; tell the user once what cannot be judged."""
        if self._judge is not None:
            self._judge.folder(self._root)
            self._judge.tell(self._root)
        elif self._judged:
            tell_once(f"who can write to {printable(self.uri)} is not looked at")

    def write(self, name: str, kind: str, parts: Iterable[Any]) -> int:
        """Write a file at once; the bytes it has."""
        with self.draft(name, kind) as draft:
            for part in parts:
                draft.add(part)
        return draft.size

    def draft(self, name: str, kind: str) -> "Draft":
        """A file to be written part by part; it is there when the draft is finished, not before."""
        self._make_parent(name)
        return Draft(self, name, kind)

    def read(self, name: str, kind: str) -> list[pa.Buffer]:
        """The parts of a file; raises FileNotFoundError if there is none, and refuses one that is not whole.

        One that others could have put there is refused, too, if the folder is judged.
        """
        where = f"{self.uri}/{name}"
        try:
            path = self._path(name)
            file = self._fs.open_input_file(path if self._judge is None else self._judge.file(path))
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "no such file", where) from None
        with file:
            return list(_parts(file.read_buffer(), kind, where))

    def names(self, folder: str) -> list[str]:
        """The complete files in a folder below this one, without their folder, in order."""
        return [name for name, _ in self.sizes(folder)]

    def sizes(self, folder: str) -> list[tuple[str, int]]:
        """The complete files in a folder and their bytes."""
        found = ((info.base_name, info.size) for info in self._infos(folder) if info.is_file)
        # Hidden ones are not ours: NFS hides what was deleted while somebody had it open.
        return sorted((name, size) for name, size in found if not name.endswith(TEMPORARY) and name[0] != ".")

    def is_folder(self, name: str = "") -> bool:
        """Is there a folder of this name?"""
        return bool(self._fs.get_file_info(self._path(name)).type == pafs.FileType.Directory)

    def is_there(self, name: str = "") -> bool:
        """Is there a file or a folder of this name?"""
        return bool(self._fs.get_file_info(self._path(name)).type != pafs.FileType.NotFound)

    def folders(self, folder: str) -> list[str]:
        """The folders in a folder, without it, in order."""
        return sorted(info.base_name for info in self._infos(folder) if info.type == pafs.FileType.Directory)

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        try:
            self._fs.delete_file(self._path(name))
        except FileNotFoundError:
            return

    def drafts(self, folder: str) -> list[str]:
        """What is being written in a folder, or was when its writer died."""
        return [info.base_name for info in self._infos(folder) if info.base_name.endswith(TEMPORARY)]

    @property
    def _is_local(self) -> bool:
        return isinstance(self._fs, pafs.LocalFileSystem)

    def _infos(self, folder: str) -> list[pafs.FileInfo]:
        """All that is in a folder; nothing if there is none."""
        selector = pafs.FileSelector(self._path(folder), allow_not_found=True)
        try:
            return list(self._fs.get_file_info(selector))
        except FileNotFoundError:
            # Arrow finds none, then looks whether there is one: another process has made it in between.
            return list(self._fs.get_file_info(selector))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _make_parent(self, name: str) -> None:
        parent = name.rpartition("/")[0]
        if parent not in self._made:
            self.make(parent)
            self._made.add(parent)

    def make(self, folder: str = "") -> None:
        """Create a folder; on a local file system only its user may enter."""
        if self._is_local:
            path = Path(self._path(folder))
            # One by one: parents that Python makes have the mode that the umask leaves.
            missing = [above for above in (path, *path.parents) if not above.exists()]
            for above in (*reversed(missing), path):
                above.mkdir(mode=0o700, exist_ok=True)
            if self._judge is not None:
                self._judge.folder(str(path))
        else:
            self._fs.create_dir(self._path(folder), recursive=True)


class Draft:
    """A file on its way: parts are added, then it is finished or thrown away."""

    def __init__(self, folder: Folder, name: str, kind: str) -> None:
        """Begin it under a name of its own: two writers of one file must not meet."""
        self._folder = folder
        self._target = folder._path(name)
        self._temporary = f"{self._target}.{os.getpid()}-{next(_serial)}{TEMPORARY}"
        self._digest = xxhash.xxh3_64()
        self._stream = folder._fs.open_output_stream(self._temporary)
        self.size = 0
        with self._whole_or_not():
            self._put(_head(kind))

    def add(self, part: Any) -> None:
        """One more part."""
        view = memoryview(part).cast("B")
        self._put(struct.pack("<Q", view.nbytes).ljust(BLOCK, b"\0"))
        self._put(view)
        self._put(bytes(-view.nbytes % BLOCK))

    def finish(self) -> None:
        """Let it appear, whole, in the place of any older one."""
        with self._whole_or_not():
            self._put(struct.pack("<Q", END_OF_PARTS).ljust(BLOCK, b"\0"))
            self._stream.write(self._digest.digest())
            self._stream.close()
            self._folder._fs.move(self._temporary, self._target)

    def discard(self) -> None:
        """Leave nothing of it."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._stream.close()
        with contextlib.suppress(OSError):
            self._folder.remove(self._temporary.removeprefix(f"{self._folder._root}/"))

    def __enter__(self) -> "Draft":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            self.finish()
        else:
            self.discard()

    @contextlib.contextmanager
    def _whole_or_not(self) -> Iterator[None]:
        """A full disk may say so when the file is begun, and when it is closed."""
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def _put(self, data: Any) -> None:
        self._digest.update(data)
        self._stream.write(data)
        self.size += len(data)


def _head(kind: str) -> bytes:
    return f"megaphone {kind} {VERSION}\n".encode().ljust(BLOCK, b"\0")


def _parts(data: pa.Buffer, kind: str, where: str) -> Iterator[pa.Buffer]:
    _check_head(bytes(data[:BLOCK]), kind, where)
    _check_digest(data, where)
    place = BLOCK
    while True:
        (size,) = struct.unpack("<Q", data[place : place + 8])
        place += BLOCK
        if size == END_OF_PARTS:
            return
        yield data.slice(place, size)
        place += -(-size // BLOCK) * BLOCK


def _check_head(head: bytes, kind: str, where: str) -> None:
    words = head.split(b"\n", 1)[0].split(b" ")
    if len(words) != 3 or words[0] != b"megaphone" or words[1] != kind.encode():
        raise CheckpointError(f"{where} is not a {kind} of Megaphone's: it begins with {head[:24]!r}")
    if words[2] != str(VERSION).encode():
        raise CheckpointError(f"{where} is of version {words[2].decode(errors='replace')}; this is version {VERSION}")


def _check_digest(data: pa.Buffer, where: str) -> None:
    body, digest = data.slice(0, max(0, data.size - 8)), bytes(data[max(0, data.size - 8) :])
    if data.size < 2 * BLOCK + 8 or xxhash.xxh3_64(body).digest() != digest:
        raise CheckpointError(f"{where} is truncated or damaged: {data.size} bytes that do not add up")


def _resolve(uri: str) -> tuple[Any, str]:
    """A file system and a path on it. Hadoop writes `file:/path`, and escapes nothing."""
    scheme = _scheme(uri)
    if scheme in ("", "file"):
        local = "/" + uri.removeprefix("file:").lstrip("/") if scheme else uri
        # Links are followed here and now: one that is changed later leads nobody astray.
        return pafs.LocalFileSystem(), resolved(local)
    # Hadoop's names for Amazon's store; Arrow has one.
    fs, path = pafs.FileSystem.from_uri(re.sub(r"\As3[an]:", "s3:", uri))
    return fs, path.rstrip("/")


def _scheme(uri: str) -> str:
    """What stands before the colon, unless it is part of a path."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", uri)
    return found[1] if found else ""


def absolute(uri: str) -> str:
    """A name by which every process on every machine finds the same folder, if it can at all."""
    return uri if _scheme(uri) else str(Path(uri).absolute())


def retried(read: Callable[[], Any], times: int = 5) -> Any:
    """Read once more when a file vanished between the listing and the reading: it has been replaced by a newer one."""
    for number in range(1, times):
        try:
            return read()
        except FileNotFoundError:
            time.sleep(0.05 * number)
    return read()
