"""The run directory: which controls are served on this machine for this user, and how to reach them.

One file for each, which only the user can read, since it has the token in it; it goes with its control. What a killed
process left behind is ignored, and swept away by whoever notices.
Neighbours: server.py is what is reached, client.py reaches it.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import msgspec
import psutil

from megaphone.errors import MegaphoneError


@dataclass(frozen=True, slots=True)
class Query:
    """A running query."""

    id: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A control that is served."""

    control: str
    address: str
    token: str = field(repr=False)
    queries: tuple[Query, ...]
    pid: int
    began_s: float
    """When the process began: another one may have its number by now."""

    @classmethod
    def of_this_process(cls, control: str, address: str, token: str, queries: tuple[Query, ...]) -> "Entry":
        """An entry for a control of this process."""
        return cls(control, address, token, queries, os.getpid(), psutil.Process().create_time())


def query_matches(query: Query, wanted: str) -> bool:
    """Is it this query, by its name or by the beginning of its id?"""
    return query.name == wanted or (wanted != "" and query.id.startswith(wanted))


def home() -> Path:
    """The folder of the entries: `$XDG_RUNTIME_DIR/megaphone`, or `megaphone-<uid>` among the temporary files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        return Path(runtime) / "megaphone"
    return Path(tempfile.gettempdir()) / f"megaphone-{os.getuid()}"


def enter(entry: Entry) -> Path:
    """Write an entry, or write it anew; where."""
    text = msgspec.json.encode(entry)
    while True:
        # Whoever was the last to leave may have removed the folder just now.
        with contextlib.suppress(FileNotFoundError):
            return _write(make_home() / f"{entry.pid}-{entry.control}.json", text)


def make_home() -> Path:
    """The folder of the entries, made if it is not there; refused if it is not private to this user."""
    folder = home()
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _check(folder)
    return folder


def enter_door(entry: Entry, address: str) -> Path:
    """A file that leads a browser to an address with a token in it, which no process list may show; where."""
    _check(home())
    to = escape(address)
    text = (
        f'<!doctype html><meta charset="utf-8"><title>Megaphone</title><meta http-equiv="refresh" content="0;url={to}">'
    )
    return _write(home() / f"{entry.pid}-{entry.control}.html", text.encode())


def leave(path: Path) -> None:
    """Remove an entry, and what leads to it."""
    for file in (path, path.with_suffix(".html")):
        file.unlink(missing_ok=True)
    # The last one turns off the light.
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def _write(path: Path, text: bytes) -> Path:
    """A file that only the user can read, complete or absent."""
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    draft.replace(path)
    return path


def entries() -> list[Entry]:
    """What is served now; what is left over from processes that are gone is swept away."""
    folder = home()
    try:
        _check(folder)
    except FileNotFoundError:
        return []
    return sorted(_read_all(folder), key=lambda entry: (entry.pid, entry.control))


def _read_all(folder: Path) -> Iterator[Entry]:
    for path in folder.glob("*.json"):
        try:
            entry = msgspec.json.decode(path.read_bytes(), type=Entry)
        except (OSError, msgspec.MsgspecError):
            # Gone since, or not ours to read.
            continue
        if _is_running(entry):
            yield entry
        else:
            leave(path)


def _is_running(entry: Entry) -> bool:
    try:
        return abs(psutil.Process(entry.pid).create_time() - entry.began_s) < 1.0
    except psutil.NoSuchProcess:
        return False


def _check(folder: Path) -> None:
    """Somebody else's folder could have anything in it, and would be told our token."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise MegaphoneError(f"{folder} is not a folder that is private to you; remove it, or set XDG_RUNTIME_DIR")
