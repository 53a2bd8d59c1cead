"""Calls between processes: Arrow Flight with a shared secret, on a Unix socket or TCP.

A service offers named actions (small messages) and streams (Arrow batches). Callers without the secret are refused
before a service sees anything of theirs; what is malformed or too large is refused by name. Errors keep their kind
across the call.  What this protects, and what not: docs/security.md.
"""

import hmac
import json
import os
import socket
import stat
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from megaphone import errors
from megaphone.engine.spark.memory import kernel
from megaphone.engine.spark.messages import Address, dump, load
from megaphone.errors import MegaphoneError, PlanError, ProtocolError, WorkerLost
from megaphone.service.place import is_every_address

T = TypeVar("T")

HEADER = "auth-token-bin"
"""The one header of a call that is looked at. Flight gives it to an auth handler as bytes; a middleware would first
have every header decoded as ASCII, and tell a stranger at which line that failed.
"""

REFUSAL = "wrong or no secret"

MAX_REQUEST = 64 << 20
"""Bytes in an action, ticket or command: orders for a million bins, the most there are, take less than half of it."""

MAX_BATCH = 1 << 30
"""Bytes in one batch of an exchange: a payload is about 4 MiB, but never less than one batch of Spark's."""

MAX_ERROR = 5000
"""Bytes of an error that is sent on: gRPC lets 8 KiB of it through, in a notation that takes a third more."""

MAX_NAME = 40
"""Characters of a name nobody knows that are worth repeating."""

IDLE_S = 10.0
"""After so long without a call a connection is closed: its service may be gone, and another one takes 2 ms to open."""

PAYLOADS = pa.schema([("kind", pa.int32()), ("payload", pa.binary())])
"""What an exchange takes in: records as S got them from the shuffle."""

Action = Callable[[bytes], bytes]


class Service:
    """What a listener serves; subclasses add actions and override the streams they have."""

    def __init__(self) -> None:
        """Start with no action."""
        self.actions: dict[str, Action] = {}

    def get(self, ticket: bytes) -> Any:
        """A stream for a ticket."""
        raise ProtocolError(f"no stream for a ticket of {len(ticket)} bytes")

    def exchange(self, command: bytes, reader: Any, writer: Any) -> None:
        """A stream of payloads in, a stream out."""
        raise ProtocolError(f"no exchange for a command of {len(command)} bytes")


class Listener(flight.FlightServerBase):  # type: ignore[misc]
    """One listening socket of a service."""

    def __init__(self, location: str, service: Service, secret: str) -> None:
        """Listen; the caller runs `serve` or relies on the server's own threads."""
        super().__init__(location, auth_handler=_SecretCheck(secret))
        self._service = service

    def do_action(self, context: Any, action: Any) -> Any:
        """Carry out a named action."""
        with _telling(f"action {action.type[:MAX_NAME]!r}"):
            handler = self._service.actions.get(action.type)
            if handler is None:
                raise ProtocolError(f"no action named {action.type[:MAX_NAME]!r}")
            _check_size(f"action {action.type!r}", action.body.size, MAX_REQUEST)
            return [handler(action.body.to_pybytes())]

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Serve a stream."""
        with _telling("ticket"):
            _check_size("ticket", len(ticket.ticket), MAX_REQUEST)
            return self._service.get(ticket.ticket)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Serve a stream for a stream."""
        with _telling("exchange"):
            command = descriptor.command or b""
            _check_size("command of an exchange", len(command), MAX_REQUEST)
            self._service.exchange(command, _checked(reader), writer)


def _check_size(what: str, size: int, most: int) -> None:
    if size > most:
        raise ProtocolError(f"{what} of {size} bytes; the most is {most}")


def _checked(reader: Any) -> Iterator[Any]:
    """The chunks of an exchange, each a batch of payloads and nothing else."""
    if not reader.schema.equals(PAYLOADS):
        raise ProtocolError(f"exchange of columns {_columns(reader.schema)} instead of {_columns(PAYLOADS)}")
    return map(_check_chunk, reader)


def _check_chunk(chunk: Any) -> Any:
    if chunk.data is None:
        raise ProtocolError("exchange with a message that has no batch")
    _check_size("batch of an exchange", chunk.data.get_total_buffer_size(), MAX_BATCH)
    # Offsets come as the caller wrote them: followed unseen, wrong ones lead outside of the batch.
    chunk.data.validate(full=True)
    if any(column.null_count for column in chunk.data.columns):
        raise ProtocolError("exchange with a payload that is null")
    return chunk


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in list(schema)[:MAX_NAME]) or "none"


class _SecretCheck(flight.ServerAuthHandler):  # type: ignore[misc]
    def __init__(self, secret: str) -> None:
        super().__init__()
        self._secret = secret.encode()

    def is_valid(self, token: bytes) -> bytes:
        """Called first of all for every call but a handshake; the token is empty if there is none."""
        if not self._secret or not hmac.compare_digest(token, self._secret):
            raise flight.FlightUnauthenticatedError(REFUSAL)
        return b""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """A handshake is refused unread: there is nothing to agree on."""
        raise flight.FlightUnauthenticatedError(REFUSAL)


def listen(service: Service, secret: str, path: Path, host: str | None) -> tuple[list[Listener], Address]:
    """Serve on a Unix socket only its user can open, and on TCP if a host is given."""
    check_host(host)
    listeners = [Listener(f"grpc+unix://{path}", service, secret)]
    path.chmod(0o600)
    tcp = None
    if host is not None:
        listeners.append(Listener(f"grpc+tcp://{host}:0", service, secret))
        tcp = f"grpc+tcp://{host}:{listeners[-1].port}"
    return listeners, Address(str(path), tcp, kernel())


def check_host(host: str | None) -> None:
    """Refuse a host that stands for every address of this machine."""
    if host is None:
        return
    if not host or any(is_every_address(str(found[4][0])) for found in socket.getaddrinfo(host, 0)):
        raise PlanError(
            f"host {host!r} is every address of this machine; set spark.driver.host to the one that executors use"
        )


def is_ours(path: str) -> bool:
    """Is this a socket that nobody but this user can have put there?

    Another's would be told the secret, and what it answers would be unpickled. A path may well be another's: on a
    machine where the service is not, whoever knows the name can take it.
    """
    try:
        folder, file = Path(path).parent.lstat(), Path(path).lstat()
    except OSError:
        return False
    private = stat.S_ISDIR(folder.st_mode) and not folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return private and stat.S_ISSOCK(file.st_mode) and folder.st_uid == file.st_uid == os.geteuid()


def is_near(address: Address) -> bool:
    """Is a service on this machine, with a socket for us?

    In a folder that machines share the socket is there on each, and on all but one it leads nowhere.
    """
    return address.kernel in ("", kernel()) and is_ours(address.unix)


@dataclass(slots=True)
class Connection:
    """A connection to one service, which has a thread and a file of its own."""

    client: Any
    users: int = 0
    """Calls under way."""
    used_s: float = 0.0
    """When the last call ended."""


class Caller:
    """Calls services with one secret; keeps a connection to each that it has called lately."""

    def __init__(self, secret: str, unix: bool = True) -> None:
        """Prefer Unix sockets where they are there, unless told not to."""
        self._headers = [(HEADER.encode(), secret.encode())]
        self.options = self._options(None)
        self.unix = unix
        self._connections: dict[str, Connection] = {}
        self._lock = threading.Lock()

    def _options(self, timeout_s: float | None) -> Any:
        return flight.FlightCallOptions(timeout=timeout_s, headers=self._headers)

    @contextmanager
    def client(self, address: Address) -> Iterator[Any]:
        """The client of a service; its connection stays open at least until the block ends."""
        connection = self._begin(self._location(address))
        self.close_idle()
        try:
            yield connection.client
        finally:
            self._end(connection)

    def call(self, address: Address, action: str, message: Any, answer: type[T], timeout_s: float | None = None) -> T:
        """Have a service carry out an action, and read its answer."""
        options = self.options if timeout_s is None else self._options(timeout_s)
        try:
            with self.client(address) as client:
                (result,) = client.do_action((action, dump(message)), options)
        except flight.FlightError as error:
            raise_own(error)
        try:
            return load(result.body.to_pybytes(), answer)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"answer to action {action!r} is malformed: {error}") from None

    def close_idle(self) -> None:
        """Close the connections without a call for `IDLE_S`: workers come and go, and each would cost a thread."""
        before = time.monotonic() - IDLE_S
        with self._lock:
            idle = [where for where, one in self._connections.items() if not one.users and one.used_s < before]
            closed = [self._connections.pop(where) for where in idle]
        for connection in closed:
            connection.client.close()

    def _location(self, address: Address) -> str:
        near = (self.unix or address.tcp is None) and is_near(address)
        if not near and address.tcp is None:
            raise WorkerLost(f"no answer: {address.unix} is not a socket of this user's own")
        return f"grpc+unix://{address.unix}" if near else str(address.tcp)

    def _begin(self, location: str) -> Connection:
        with self._lock:
            connection = self._connections.get(location)
            if connection is None:
                # Without a limit: gRPC's own of 4 MiB is below one chunk of a bin. And straight to the service:
                # gRPC would hand the secret to a proxy that the environment names for the web.
                options = [("grpc.enable_http_proxy", 0)]
                client = flight.FlightClient(location, generic_options=options)
                connection = self._connections[location] = Connection(client)
            connection.users += 1
            return connection

    def _end(self, connection: Connection) -> None:
        with self._lock:
            connection.users -= 1
            connection.used_s = time.monotonic()


@contextmanager
def _telling(what: str) -> Iterator[None]:
    """Send an error on with its kind; one that nobody foresaw goes as a ProtocolError that says in what it happened."""
    try:
        yield
    except flight.FlightError:
        raise
    except MegaphoneError as error:
        raise _with_kind(error) from error
    except msgspec.MsgspecError as error:
        raise _with_kind(ProtocolError(f"{what} is malformed: {error}")) from error
    except Exception as error:
        fact = f"{what} failed: {type(error).__name__}: {error}".splitlines()[0]
        raise _with_kind(ProtocolError(f"{fact}\n{traceback.format_exc()}")) from error


def guarded_stream(stream: Iterator[T]) -> Iterator[T]:
    """A stream that sends an error on with its kind: it runs after the call that made it."""
    with _telling("stream"):
        yield from stream


def _with_kind(error: MegaphoneError) -> flight.FlightServerError:
    most = MAX_ERROR
    while len(told := _told(error, most)) > MAX_ERROR:
        most = most * 3 // 4
    first = str(error).splitlines()[0].encode(errors="replace")[:200].decode(errors="ignore")
    return flight.FlightServerError(first, extra_info=told)


def _told(error: MegaphoneError, most: int) -> bytes:
    kind = {"kind": type(error).__name__, "message": _short(str(error), most)}
    return json.dumps(kind, ensure_ascii=False).encode(errors="replace")


def _short(message: str, most: int) -> str:
    """The head, which says where, and the tail, which says what."""
    return message if len(message) <= most else f"{message[: most // 2]}\n...\n{message[-most // 2 :]}"


def raise_own(error: flight.FlightError) -> NoReturn:
    """Raise what the other side raised, as the kind it was there."""
    if isinstance(error, flight.FlightUnavailableError):
        raise WorkerLost(f"no answer: {error}") from error
    try:
        raw = json.loads(error.extra_info)
        kind, message = getattr(errors, raw["kind"]), raw["message"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise error from None
    raise kind(message) from None
