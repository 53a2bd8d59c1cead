"""A small HTTP server in the driver: requests with the token are handed to the desk, all others are refused.

It knows no verbs. A request must name this very address (a web page of somebody else's can lead a browser here under
another name), carry the token in a header (which no such page can send), and be small. Only what is public, our own
page, is given without the token. decisions/0021: one thread reads all connections, and the places that are counted are
for requests with the token.
"""

import asyncio
import contextlib
import hmac
import socket
import threading
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from megaphone.service.answers import FAILED, Answer, Desk, Refusal, Request
from megaphone.service.connection import Connection
from megaphone.service.head import check_kind, options_of
from megaphone.service.logs import LOGGER
from megaphone.service.place import HOST, Place
from megaphone.service.threads import in_thread

REQUEST_S = 10.0
"""For a request to arrive, from its first byte to its last."""

IDLE_S = 5.0
"""For the next request of a connection to begin: the page sends one every second."""

MAX_CONNECTIONS = 128
"""With more, the oldest one that has not shown the token is closed."""

MAX_CALLERS = 32
"""Requests with the token that are answered at a time, each in a thread: a rescale may take minutes."""

BACKLOG = 1024
"""Connections that wait to be accepted. A caller beyond them tries again after a second."""

CROWDED_S = 1.0
"""For another one to wait for a place before it is refused."""

PAUSE_S = 0.1
"""Between attempts to accept a connection when there is no file left for it."""


@dataclass(slots=True)
class Caller:
    """The other end of a connection."""

    task: "asyncio.Task[None]"
    known: bool = False
    """Whether it has sent the token."""
    busy: bool = False
    """Whether it has a place, or waits for one."""


class Server:
    """Serves until it is closed."""

    def __init__(
        self, desk: Desk, token: str, place: Place | None = None, public: Mapping[str, Answer] | None = None
    ) -> None:
        """Listen on the loopback address and on a free port unless told; `public` is what anybody may have, by path."""
        place = place or Place()
        self._desk = desk
        self._token = token
        self._public = public or {}
        self._listener = _listen(place)
        port = self._listener.getsockname()[1]
        self.address = f"http://{place.authority(port)}"
        self._names = [place.authority(port), *([f"localhost:{port}"] if place.host == HOST else [])]
        self._callers: dict[Connection, Caller] = {}
        self._places = asyncio.Semaphore(MAX_CALLERS)
        self._ending = asyncio.Event()
        self._closed = threading.Event()
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="megaphone-http")
        self._thread.start()

    def close(self) -> None:
        """Listen no more. Requests that are being answered get their answers, for which this does not wait."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ending.set)
        self._closed.wait()
        if not self._callers:
            self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve_all())
        finally:
            self._closed.set()

    async def _serve_all(self) -> None:
        self._loop.add_reader(self._listener, self._accept)
        await self._ending.wait()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        waiting = [caller.task for caller in self._callers.values() if not caller.busy]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        self._closed.set()
        await asyncio.gather(*(caller.task for caller in self._callers.values()))

    def _accept(self) -> None:
        """Accept one connection. The others have their turn before the next, however many arrive."""
        try:
            self._admit(Connection(self._listener.accept()[0]))
        except OSError:
            # There may be no file left for it, and none of ours that could be given up.
            if not self._drop_oldest():
                self._loop.remove_reader(self._listener)
                self._loop.call_later(PAUSE_S, self._accept_again)

    def _accept_again(self) -> None:
        if not self._ending.is_set():
            self._loop.add_reader(self._listener, self._accept)

    def _admit(self, connection: Connection) -> None:
        task = self._loop.create_task(self._serve_one(connection))
        self._callers[connection] = Caller(task)
        task.add_done_callback(lambda _: self._end(connection))
        if len(self._callers) > MAX_CONNECTIONS:
            self._drop_oldest()

    def _end(self, connection: Connection) -> None:
        self._callers.pop(connection, None)
        connection.close()

    def _drop_oldest(self) -> bool:
        """Close a connection that waits for a request, if any; one with the token only if there is no other."""
        waiting = [connection for connection, caller in self._callers.items() if not caller.busy]
        if waiting:
            oldest = min(waiting, key=lambda connection: self._callers[connection].known)
            self._callers.pop(oldest).task.cancel()
        return bool(waiting)

    async def _serve_one(self, connection: Connection) -> None:
        caller = self._callers[connection]
        try:
            while await self._exchange(caller, connection):
                pass
            await connection.linger()
        except OSError:
            # The other end has hung up, or does not read.
            pass
        except Exception as error:
            LOGGER.warning("a request over HTTP could not be answered: %s", Refusal.after(error))

    async def _exchange(self, caller: Caller, connection: Connection) -> bool:
        """Answer a request; false if none came, or if no other may follow."""
        if not await connection.begins(IDLE_S):
            return False
        async with contextlib.AsyncExitStack() as held:
            answer, last = await self._answer(caller, connection, held)
            await connection.send(answer, last)
        return not last

    async def _answer(
        self, caller: Caller, connection: Connection, held: contextlib.AsyncExitStack
    ) -> tuple[Answer, bool]:
        """The answer to a request, and whether the connection ends with it."""
        # After a refusal it does: what follows may not be the beginning of a request.
        try:
            async with asyncio.timeout(REQUEST_S):
                found = await self._read(caller, connection, held)
            answer = found if isinstance(found, Answer) else await in_thread(partial(self._ask, found))
            return answer, self._ending.is_set() or not connection.persists
        except Refusal as refusal:
            return refusal.answer(), True
        except TimeoutError:
            return too_late().answer(), True
        except OSError:
            raise
        except Exception as error:
            return Refusal.after(error).answer(), True

    async def _read(self, caller: Caller, connection: Connection, held: contextlib.AsyncExitStack) -> Request | Answer:
        """A request for the desk, for which a place is held; or the answer, if that is public."""
        head = await connection.head()
        check_name(head.fields, self._names)
        if head.method == "GET" and head.path in self._public:
            return self._public[head.path]
        check_token(head.fields, self._token)
        caller.known = True
        options = options_of(head.target)
        if head.method == "POST":
            check_kind(head.fields)
        await held.enter_async_context(self._place(caller))
        return Request(head.method, head.path, options, await connection.body(head))

    @contextlib.asynccontextmanager
    async def _place(self, caller: Caller) -> AsyncIterator[None]:
        """One of the places for requests with the token; refused if none gets free soon."""
        caller.busy = True
        try:
            try:
                async with asyncio.timeout(CROWDED_S):
                    await self._places.acquire()
            except TimeoutError:
                crowded = f"{MAX_CALLERS} requests are being answered; send it again later"
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, crowded, FAILED) from None
            try:
                yield
            finally:
                self._places.release()
        finally:
            caller.busy = False

    def _ask(self, request: Request) -> Answer:
        try:
            return self._desk(request)
        except Refusal as refusal:
            return refusal.answer()
        except BaseException as error:
            return Refusal.after(error).answer()


def too_late() -> Refusal:
    """The refusal of a request that has not arrived in time."""
    return Refusal(HTTPStatus.REQUEST_TIMEOUT, f"not a whole request in {REQUEST_S:g} s; send all of it at once")


def check_name(fields: Mapping[str, str], names: Collection[str]) -> None:
    """Refuse requests under other names, and from other pages than our own."""
    if fields.get("host") not in names:
        ours = next(iter(names))
        raise Refusal(HTTPStatus.MISDIRECTED_REQUEST, f"this is {ours}, and answers to no other name")
    if fields.get("origin") not in (None, *(f"http://{name}" for name in names)):
        raise Refusal(HTTPStatus.FORBIDDEN, "a request from a page of somebody else's")


def check_token(fields: Mapping[str, str], token: str) -> None:
    """Refuse requests without the token; compared in constant time."""
    given = fields.get("authorization", "").encode()
    if not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise Refusal(
            HTTPStatus.UNAUTHORIZED,
            "no token, or a wrong one; send a header 'Authorization: Bearer TOKEN'",
            headers={"WWW-Authenticate": "Bearer"},
        )


def _listen(place: Place) -> socket.socket:
    listener = socket.socket(place.family, socket.SOCK_STREAM)
    try:
        # The port of a control that has just ended can be served on again.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place.sockaddr)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
