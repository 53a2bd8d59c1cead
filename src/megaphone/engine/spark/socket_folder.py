"""A private folder for the sockets of a process, which goes when the process does, however that ends.

A process that is killed removes nothing. Its folder is locked as long as it lives, since the kernel lets go of what a
dead process held; whoever makes a folder of its own removes those that are not locked any more.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from megaphone.engine.spark.memory import kernel

PREFIX = "megaphone-"

LOCK = "lock"
"""In each folder: locked while its process lives, with the name of the kernel that knows it."""


class SocketFolder:
    """The folder of this process."""

    def __init__(self) -> None:
        """Make it among the temporary files, and remove there what processes that are gone have left."""
        _sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        draft = self.path / f".{LOCK}"
        self._file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # Where nothing can be locked, nobody can tell that we are gone.
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._file, kernel().encode())
            # Not before it is locked: somebody else would take it for one that was left behind.
            draft.rename(self.path / LOCK)

    def close(self) -> None:
        """Remove it; nothing happens if that is done already."""
        shutil.rmtree(self.path, ignore_errors=True)
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _sweep(among: Path) -> None:
    with contextlib.suppress(OSError):
        for folder in among.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
        return
    file = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        # In a folder that machines share, another one's lock may be none here.
        if kernel() and os.read(file, len(kernel()) + 1) == kernel().encode():
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(file)
