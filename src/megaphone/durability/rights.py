"""Rights: who besides this user can change what is in a folder of a local file system.

What is read from a checkpoint is unpickled, so whoever can put a file there can run code as its reader. Judged is the
folder that links lead to and every folder above it, since one that can be renamed can be replaced. This user and root
are trusted; what a group may do is the user's choice. A file system is not judged whose rights are not those that
decide: its own program does (FUSE), or a server (SMB), or there are none to look at, as in an object store.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from megaphone.printing import printable

MOUNTS, USERS = Path("/proc/self/mountinfo"), Path("/proc/self/uid_map")
OVERFLOW = Path("/proc/sys/kernel/overflowuid")
PROCESSES = ("/", "proc")
EVERY_USER = ["0", "0", str((1 << 32) - 1)]


def resolved(path: str) -> str:
    """Where links lead to. What is a link in /proc may lead where no path does, and stays in the path."""
    real = os.path.realpath(path)
    try:
        return real if os.path.samestat(Path(path).stat(), Path(real).stat()) else path
    except OSError:
        parent, name = os.path.split(path)
        return real if name == "" else os.path.join(resolved(parent), name)  # noqa: PTH118


def fault_of_folder(folder: str, base: str | None = None) -> str | None:
    """Who else could change what is in a folder; None if nobody could. Its path is one without links.

    A folder that everybody can write to is no fault where nobody can rename what belongs to others, as in /tmp: but for
    `base`, what is below it, and the folder itself, if a base is given.
    """
    for path, seen, inside in _way(folder, base):
        fault = _fault(path, seen, inside)
        if fault is not None and seen.st_dev not in _rightless():
            return fault
    return None


def fault_of_file(file: Path) -> str | None:
    """Who else could change a file in a folder that is not at fault; None if nobody could."""
    seen = file.stat()
    # The mode of a file that nobody else can reach is what the umask has left of it.
    reachable = bool(file.parent.stat().st_mode & stat.S_IXOTH)
    fault = _fault(file, seen, inside=True, reachable=reachable)
    return None if fault is None or seen.st_dev in _rightless() else fault


def remarks_on(folder: str, base: str) -> Iterator[str]:
    """What the user should know of a folder that is not at fault."""
    rightless = _rightless()
    for path, seen, inside in _way(folder, base):
        if seen.st_dev in rightless:
            yield f"what the file system of {_shown(path)} shows of rights decides nothing, and is not looked at"
            return
        if seen.st_mode & stat.S_IWGRP and (inside or not seen.st_mode & stat.S_ISVTX):
            yield f"group {seen.st_gid} can write to {_shown(path)}"
            return


def _way(folder: str, base: str | None) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """The folders from the root to one, as far as they are there, and whether each is part of what is judged."""
    wanted = Path(folder)
    for path in (*reversed(wanted.parents), wanted):
        try:
            # What is a link by now was put there since, but for those of /proc.
            seen = path.lstat() if path.parts[:2] != PROCESSES else path.stat()
        except OSError:
            return
        yield path, seen, base is not None and (path == wanted or path.is_relative_to(base))


def _fault(path: Path, seen: os.stat_result, inside: bool, reachable: bool = True) -> str | None:
    if stat.S_ISLNK(seen.st_mode):
        return f"{_shown(path)} is a link of uid {seen.st_uid}'s that leads nowhere, or was put there just now"
    if seen.st_uid not in (os.geteuid(), 0) and (inside or not _is_anybody(seen.st_uid)):
        return f"{_shown(path)} belongs to uid {seen.st_uid}, who is neither this user ({os.geteuid()}) nor root"
    if reachable and seen.st_mode & stat.S_IWOTH and (inside or not seen.st_mode & stat.S_ISVTX):
        return f"{_shown(path)}, which belongs to uid {seen.st_uid}, can be written to by everybody"
    return None


def _shown(path: Path) -> str:
    return printable(str(path))


def _is_anybody(uid: int) -> bool:
    """Is this how a container that has not all users of its host shows the others, the host's root among them?

    For the folders above a checkpoint that must do, or there would be none.
    """
    try:
        return uid == int(OVERFLOW.read_text()) and USERS.read_text().split() != EVERY_USER
    except (OSError, ValueError):
        return False


def _rightless() -> frozenset[int]:
    """The devices where rights decide nothing."""
    try:
        return rightless(MOUNTS.read_text(errors="replace"))
    except OSError:
        return frozenset()


def rightless(mounts: str) -> frozenset[int]:
    """The devices among mounts, as Linux lists them, where the owners and modes that are shown decide nothing.

    A mount of somebody else's is not one of them: what he decides there is not to be relied on.

    >>> fuse = "36 25 0:57 / /mnt/bucket rw,nosuid shared:7 - fuse.bucket bucket rw,user_id=0,group_id=0,allow_other"
    >>> rightless(fuse) == {os.makedev(0, 57)}, rightless(f"{fuse},default_permissions")
    (True, frozenset())
    """
    found = set()
    for line in mounts.splitlines():
        head, _, tail = line.partition(" - ")
        kind, _, about = tail.partition(" ")
        options = about.split(" ")[-1].split(",")
        if _decides_elsewhere(kind, options):
            major, minor = head.split(" ")[2].split(":")
            found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)


def _decides_elsewhere(kind: str, options: list[str]) -> bool:
    if re.fullmatch(r"fuse(blk|\..*)?", kind):
        owners = {f"user_id={uid}" for uid in (os.geteuid(), 0)}
        return "default_permissions" not in options and not owners.isdisjoint(options)
    return kind in ("cifs", "smb3") and "noperm" in options
