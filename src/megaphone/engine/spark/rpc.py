"""Calls between processes: Arrow Flight with a shared secret, on a Unix socket or TCP.

A service offers named actions (small messages) and streams (Arrow batches). Callers without the secret are refused
before anything of theirs is read. Errors keep their kind across the call.
"""

import hmac
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pyarrow.flight as flight

from megaphone import errors
from megaphone.engine.spark.messages import Address, dump, load
from megaphone.errors import MegaphoneError, ProtocolError, WorkerLost

T = TypeVar("T")

HEADER = "authorization"

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
        """A stream in, a stream out."""
        raise ProtocolError(f"no exchange for a command of {len(command)} bytes")


class Listener(flight.FlightServerBase):  # type: ignore[misc]
    """One listening socket of a service."""

    def __init__(self, location: str, service: Service, secret: str) -> None:
        """Listen; the caller runs `serve` or relies on the server's own threads."""
        super().__init__(location, middleware={"secret": _SecretCheck(secret)})
        self._service = service

    def do_action(self, context: Any, action: Any) -> Any:
        """Carry out a named action."""
        handler = self._service.actions.get(action.type)
        if handler is None:
            raise flight.FlightServerError(f"no action named {action.type!r}")
        return [_guarded(handler, action.body.to_pybytes())]

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Serve a stream."""
        return _guarded(self._service.get, ticket.ticket)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Serve a stream for a stream."""
        _guarded(self._service.exchange, descriptor.command, reader, writer)


class _SecretCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def start_call(self, info: Any, headers: Any) -> None:
        given = headers.get(HEADER, [""])[0]
        given = given if isinstance(given, bytes) else given.encode()
        if not hmac.compare_digest(given, self._secret):
            raise flight.FlightUnauthenticatedError("wrong or no secret")


def listen(service: Service, secret: str, path: Path, host: str | None) -> tuple[list[Listener], Address]:
    """Serve on a Unix socket only its user can open, and on TCP if a host is given."""
    listeners = [Listener(f"grpc+unix://{path}", service, secret)]
    path.chmod(0o600)
    tcp = None
    if host is not None:
        listeners.append(Listener(f"grpc+tcp://{host}:0", service, secret))
        tcp = f"grpc+tcp://{host}:{listeners[-1].port}"
    return listeners, Address(str(path), tcp)


class Caller:
    """Calls services with one secret; keeps a connection to each."""

    def __init__(self, secret: str, unix: bool = True) -> None:
        """Prefer Unix sockets where they are there, unless told not to."""
        self.options = flight.FlightCallOptions(headers=[(HEADER.encode(), secret.encode())])
        self._unix = unix
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def client(self, address: Address) -> Any:
        """The connection to a service."""
        near = address.tcp is None or (self._unix and Path(address.unix).exists())
        location = f"grpc+unix://{address.unix}" if near else str(address.tcp)
        with self._lock:
            if location not in self._clients:
                # Without a limit: gRPC's own of 4 MiB is below one chunk of a bin.
                self._clients[location] = flight.FlightClient(location)
            return self._clients[location]

    def call(self, address: Address, action: str, message: Any, answer: type[T]) -> T:
        """Have a service carry out an action, and read its answer."""
        try:
            (result,) = self.client(address).do_action((action, dump(message)), self.options)
        except flight.FlightError as error:
            raise_own(error)
        return load(result.body.to_pybytes(), answer)


def _guarded(handler: Callable[..., T], *arguments: Any) -> T:
    """Call, and send one of our own errors on with its kind."""
    try:
        return handler(*arguments)
    except MegaphoneError as error:
        raise _with_kind(error) from error


def guarded_stream(stream: Iterator[T]) -> Iterator[T]:
    """A stream that sends one of our own errors on with its kind: it runs after the call that made it."""
    try:
        yield from stream
    except MegaphoneError as error:
        raise _with_kind(error) from error


def _with_kind(error: MegaphoneError) -> flight.FlightServerError:
    kind = {"kind": type(error).__name__, "message": _short(str(error))}
    return flight.FlightServerError(str(error).splitlines()[0][:200], extra_info=json.dumps(kind).encode())


def _short(message: str, most: int = 5000) -> str:
    """What gRPC lets through: the head, which says where, and the tail, which says what."""
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
