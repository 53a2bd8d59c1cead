"""A shared folder: read and written with care, since others may be able to write there too.

Only regular files of this user, and of owners that were named, are read. No link is followed, nothing is opened that
could block, and no file that is there already is written into: what is written gets a fresh name and is then renamed.
"""

import os
import pwd
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

from megaphone.errors import PlanError

MAX_BYTES = 4 << 20
"""Of a file that is read. A plan that moves a hundred thousand bins has fewer."""


MAX_UID = (1 << 32) - 2
"""The one after it stands for no user."""


@dataclass(frozen=True, slots=True)
class Seal:
    """What changes when a file is replaced or written to."""

    device: int
    inode: int
    bytes: int
    modified_ns: int
    mode: int
    owner: int
    links: int

    @classmethod
    def of(cls, seen: os.stat_result) -> "Seal":
        """The seal of a file by what the system says of it."""
        return cls(seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_mode, seen.st_uid, seen.st_nlink)


class SharedFolder:
    """A folder by its path; one that was removed and made again is entered again."""

    def __init__(self, path: Path, owners: Iterable[int] = ()) -> None:
        """Enter it, or refuse; `owners` are the uids whose files are read besides this user's own."""
        self._owners = frozenset({os.geteuid(), *owners})
        try:
            self.path = path.resolve()
            self._fd = self._enter()
        except (NotADirectoryError, FileNotFoundError):
            raise PlanError(f"{path} is not a directory; create it first") from None
        except (OSError, ValueError) as error:
            raise PlanError(f"{path} cannot be watched: {_reason(error)}") from None

    @property
    def is_open_to_all(self) -> bool:
        """Can everybody write to it?"""
        return bool(os.fstat(self._fd).st_mode & stat.S_IWOTH)

    def close(self) -> None:
        """Leave it."""
        os.close(self._fd)

    def names(self) -> set[str]:
        """Everything that is there now."""
        seen, held = self.path.stat(follow_symlinks=False), os.fstat(self._fd)
        if (seen.st_dev, seen.st_ino) != (held.st_dev, held.st_ino):
            entered = self._enter()
            os.close(self._fd)
            self._fd = entered
        with os.scandir(self._fd) as entries:
            return {entry.name for entry in entries}

    def seal(self, name: str) -> Seal | None:
        """What a file looks like from outside; None if it is not there."""
        try:
            return Seal.of(os.stat(name, dir_fd=self._fd, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes:
        """The content of a file; refused if it is not one that we read."""
        try:
            # Looked at before it is opened: opening a device can have consequences.
            self._check(Seal.of(os.stat(name, dir_fd=self._fd, follow_symlinks=False)))
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
            with os.fdopen(fd, "rb") as file:
                # And again: it may have been replaced in between.
                self._check(Seal.of(os.fstat(fd)))
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise PlanError(f"the file cannot be read: {_reason(error)}") from None
        _check_size(len(content))
        return content

    def write(self, name: str, text: str) -> None:
        """A file that has all of the text, or is not there; what had its name before is replaced, not written into."""
        draft = f".{secrets.token_hex(8)}.draft"
        fd = os.open(draft, _CREATE, 0o666, dir_fd=self._fd)
        try:
            with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            os.rename(draft, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=self._fd)
            raise

    def create(self, name: str) -> None:
        """An empty file, only if nothing has its name: FileExistsError otherwise."""
        os.close(os.open(name, _CREATE, 0o666, dir_fd=self._fd))

    def remove(self, name: str) -> None:
        """Remove a file if that is possible."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self._fd)

    def _enter(self) -> int:
        # O_NOFOLLOW: the path was resolved when it was given, so a link has been put there since.
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        owner = os.fstat(fd).st_uid
        # Root can do anything anyhow, and owns many a folder that it made for others.
        if owner not in self._owners | {0}:
            os.close(fd)
            raise PlanError(
                f"{self.path} belongs to uid {owner}; watch a folder of your own, or trust that user: owners=[{owner}]"
            )
        return fd

    def _check(self, seen: Seal) -> None:
        if stat.S_ISLNK(seen.mode):
            raise PlanError("the file is a link; write a regular file")
        if not stat.S_ISREG(seen.mode):
            raise PlanError("this is not a regular file; write one")
        if seen.owner not in self._owners:
            raise PlanError(
                f"the file belongs to uid {seen.owner}, who is not trusted here; name that user in watch(owners=)"
            )
        # A second name can be given to a file of the user's by somebody else, and make an old plan a new one.
        if seen.links != 1:
            raise PlanError(f"the file has {seen.links} names (hard links); write one that has one")
        _check_size(seen.bytes)


_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def uids(owners: Any) -> frozenset[int]:
    """Users by number or by name, as numbers.

    >>> uids([1000, "root"]) == {0, 1000}
    True
    >>> uids(["nobody at all"])
    Traceback (most recent call last):
    megaphone.errors.PlanError: no user named 'nobody at all' on this machine; give a name that is, or a uid
    """
    if isinstance(owners, (str, bytes)) or not isinstance(owners, Iterable):
        raise PlanError(f"owners {owners!r}; give a list of uids or names of users")
    return frozenset(map(_uid, owners))


def _uid(owner: Any) -> int:
    if isinstance(owner, str):
        try:
            return pwd.getpwnam(owner).pw_uid
        except (KeyError, ValueError):
            raise PlanError(f"no user named {owner!r} on this machine; give a name that is, or a uid") from None
    # NumPy's integers are numbers as well; true and false are not.
    if isinstance(owner, bool) or not isinstance(owner, SupportsIndex) or not 0 <= index(owner) <= MAX_UID:
        raise PlanError(f"{owner!r} is no user; give a uid from 0 to {MAX_UID}, or a name")
    return index(owner)


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise PlanError(f"the file has {size} bytes or more; write at most {MAX_BYTES}")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
