"""The office of a control: open as long as a query runs on it.

It opens with the first query and closes with the last, and keeps its entry in the run directory up to date meanwhile.
That nobody can be served is told, and harms no query.
Neighbours: server.py serves, directory.py is where it is found.
"""

import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

from megaphone.service.directory import Entry, Query, enter
from megaphone.service.logs import LOGGER, tell
from megaphone.service.server import Desk, Server


class Office:
    """Serves one control."""

    def __init__(self, control: str, desk: Desk, port: int = 0) -> None:
        """Closed, for now."""
        self._control = control
        self._desk = desk
        self._port = port
        self._token = secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._file: Path | None = None

    @property
    def address(self) -> str | None:
        """Where it is, while it is open."""
        server = self._server
        return None if server is None else server.address

    def update(self, queries: Sequence[Query]) -> None:
        """These queries run now."""
        with self._lock:
            try:
                self._open(tuple(queries)) if queries else self._close()
            except Exception as error:
                # Whatever it is: the query, whose epoch waits for us, has nothing to do with it.
                LOGGER.warning("control %s cannot be served over HTTP: %s", self._control, error)

    def _open(self, queries: tuple[Query, ...]) -> None:
        if self._server is None:
            self._server = Server(self._desk, self._token, self._port)
            tell("served", control=self._control, address=self._server.address)
        self._file = enter(Entry.of_this_process(self._control, self._server.address, self._token, queries))

    def _close(self) -> None:
        file, self._file = self._file, None
        server, self._server = self._server, None
        if file is not None:
            file.unlink(missing_ok=True)
        if server is not None:
            server.close()
