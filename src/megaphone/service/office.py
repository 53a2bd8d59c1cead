"""The office of a control: open as long as a query runs on it.

It opens with the first query and closes with the last, and keeps its entry in the run directory up to date meanwhile.
Every opening has a token of its own. That nobody can be served is told, and harms no query.
Neighbours: server.py serves, directory.py is where it is found, page.py is what it shows.
"""

import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from megaphone.service.answers import Desk
from megaphone.service.directory import Entry, Query, enter, leave, make_home
from megaphone.service.logs import LOGGER, tell
from megaphone.service.page import page, page_address
from megaphone.service.place import Place
from megaphone.service.server import Server


class Office:
    """Serves one control."""

    def __init__(
        self,
        control: str,
        desk: Desk,
        place: Place | None = None,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        """Closed, for now; with every opening the address of its page is announced."""
        self._control = control
        self._desk = desk
        self._place = place or Place()
        self._announce = announce
        self._token = ""
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._file: Path | None = None
        self._told = ""
        """Why it could not be opened, the last time that this was said."""

    @property
    def address(self) -> str | None:
        """Where it is, while it is open."""
        server = self._server
        return None if server is None else server.address

    @property
    def page(self) -> str | None:
        """Where a browser finds its page, while it is open; with the token."""
        address = self.address
        return None if address is None else page_address(address, self._token)

    def update(self, queries: Sequence[Query]) -> None:
        """These queries run now."""
        with self._lock:
            try:
                self._open(tuple(queries)) if queries else self._close()
            except Exception as error:
                # Whatever it is: the query, whose epoch waits for us, has nothing to do with it.
                self._tell(str(error))

    def _tell(self, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            LOGGER.warning(
                "control %s is not served over HTTP, and the command line does not find it: %s", self._control, reason
            )

    def _open(self, queries: tuple[Query, ...]) -> None:
        fresh = self._server is None
        if self._server is None:
            # Before anything listens: without an entry nobody would know of it.
            make_home()
            # Who listens here when we have closed, and whom a page left open still asks, learns nothing of use.
            self._token = secrets.token_urlsafe(32)
            self._server = Server(self._desk, self._token, self._place, page())
        try:
            self._file = enter(Entry.of_this_process(self._control, self._server.address, self._token, queries))
        except BaseException:
            self._close()
            raise
        self._told = ""
        if fresh:
            tell("served", control=self._control, address=self._server.address)
        if fresh and self._announce is not None:
            self._announce(page_address(self._server.address, self._token))

    def _close(self) -> None:
        file, self._file = self._file, None
        server, self._server = self._server, None
        try:
            if file is not None:
                leave(file)
        finally:
            if server is not None:
                server.close()
