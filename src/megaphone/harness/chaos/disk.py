"""A small disk that can be filled: memory mounted as a folder, in a name space that any user may make.

A process holds the name space open, so that the disk outlives whoever uses it.
Neighbours: warden.py has the query enter it.
"""

import subprocess
from pathlib import Path


class SmallDisk:
    """A folder of so many megabytes, for processes that enter."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        """Make it; `seen` is the folder as seen from outside."""
        folder.mkdir()
        script = f'mount -t tmpfs -o size={megabytes}m none "{folder}" && echo ready && exec cat'
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            raise OSError("no small disk to be had here: unshare or mount is not allowed")
        self.seen = Path(f"/proc/{self._holder.pid}/root{folder}")
        self.enter = ["nsenter", "-t", str(self._holder.pid), "--user", "--preserve-credentials", "--mount", "--"]

    def close(self) -> None:
        """Let it go, with all that is on it."""
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait()
