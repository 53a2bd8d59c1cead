"""The lease: a connection that lives as long as a worker is wanted.

The coordinator holds one end, the worker the other; each notices at once when the other is gone, because the kernel
closes what a dead process held. A process that is there and does nothing, stopped or cut off, is noticed by its pulse:
the coordinator sends a byte a second, the worker sends it back. A stranger gets a few seconds, a few bytes and no
answer.
"""

import contextlib
import hmac
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from megaphone.engine.spark.memory import kernel
from megaphone.engine.spark.messages import Address
from megaphone.engine.spark.rpc import check_host, is_near

MAX_MESSAGE = 1 << 16
"""A join message is a few hundred bytes; more is not one."""

PULSE_S = 1.0

QUIET_S = 5.0
"""How long a worker hears no beat before it asks whether anybody is there: a busy coordinator may be that slow."""

LOST_S = 10.0
"""How long what a worker sends may stay unacknowledged: a machine that has vanished sends no farewell."""

INTRODUCTION_S = 10.0
"""For secret and message together: a worker sends both at once."""

MAX_STRANGERS = 64
"""Connections that have not shown the secret yet; without a bound, they could use up the driver's files."""


def hold_lease(address: Address, secret: str, message: bytes) -> None:
    """Introduce oneself, then block until the other end lets go."""
    with _connect(address) as connection:
        connection.sendall(_frame(secret.encode()) + _frame(message))
        # It may let go between a beat and its echo, or be cut off.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            while beat := _hear(connection):
                connection.sendall(beat)


class LeaseOffice:
    """The coordinator's end: accepts workers, and tells when one is gone."""

    def __init__(
        self,
        path: Path,
        host: str | None,
        secret: str,
        joined: Callable[[bytes, socket.socket], Callable[[], None]],
        silence_s: float = 30.0,
    ) -> None:
        """Listen; `joined` gets a newcomer's message and its connection, and says what to do when it is gone.

        Gone is also who has been silent for `silence_s`.
        """
        self._silence_s = silence_s
        self._secret = secret.encode()
        self._joined = joined
        self._closed = threading.Event()
        self._strangers = threading.BoundedSemaphore(MAX_STRANGERS)
        check_host(host)
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix.bind(str(path))
        path.chmod(0o600)
        self._listeners = [unix]
        tcp = None
        if host is not None:
            self._listeners.append(socket.create_server((host, 0)))
            tcp = f"{host}:{self._listeners[-1].getsockname()[1]}"
        self.address = Address(str(path), tcp, kernel())
        for listener in self._listeners:
            listener.listen(64)
            threading.Thread(target=self._accept, args=(listener,), daemon=True, name="lease").start()

    def close(self) -> None:
        """Accept nobody any more."""
        self._closed.set()
        for listener in self._listeners:
            # Closing alone would not wake the thread that waits in accept.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                # Closed; or no file is left for the newcomer, and one may be in a moment.
                if self._closed.wait(0.1):
                    return
                continue
            if self._strangers.acquire(blocking=False):
                threading.Thread(target=self._attend, args=(connection,), daemon=True, name="lease").start()
            else:
                connection.close()

    def _attend(self, connection: socket.socket) -> None:
        with connection:
            gone = self._introduce(connection)
            if gone is None:
                return
            try:
                self._feel_pulse(connection)
            except OSError:
                pass
            finally:
                gone()

    def _feel_pulse(self, connection: socket.socket) -> None:
        """Return, or raise, when the other end is gone or has been silent for too long."""
        heard = time.monotonic()
        while time.monotonic() - heard < self._silence_s:
            connection.sendall(b".")
            until = time.monotonic() + PULSE_S
            # To the end of the beat, answered or not: so its end is noticed at once.
            while (left := until - time.monotonic()) > 0:
                connection.settimeout(left)
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(64):
                        return
                    heard = time.monotonic()

    def _introduce(self, connection: socket.socket) -> Callable[[], None] | None:
        """Hear who it is; none if it is a stranger, or not wanted."""
        deadline = time.monotonic() + INTRODUCTION_S
        try:
            if not hmac.compare_digest(_read_frame(connection, len(self._secret), deadline), self._secret):
                return None
            gone = self._joined(_read_frame(connection, MAX_MESSAGE, deadline), connection)
            connection.settimeout(None)
            return gone
        except (OSError, ValueError):
            return None
        finally:
            self._strangers.release()


def _hear(connection: socket.socket) -> bytes:
    """The next beat; or, when none comes, one of our own to send, which tells whether the other end is there."""
    connection.settimeout(QUIET_S)
    try:
        return connection.recv(1)
    except TimeoutError:
        return b"."


def _connect(address: Address) -> socket.socket:
    if is_near(address):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(address.unix)
        return connection
    if address.tcp is None:
        raise OSError(f"{address.unix} is not a socket of this user's own")
    host, port = address.tcp.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # The system's own limit is a quarter of an hour. Keep-alive would not do: it waits while a beat of ours is on
        # its way, and does not count what could not even leave this machine.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(LOST_S * 1000))
    return connection


def _frame(message: bytes) -> bytes:
    return len(message).to_bytes(4, "little") + message


def _read_frame(connection: socket.socket, most: int, deadline: float) -> bytes:
    size = int.from_bytes(_read_exactly(connection, 4, deadline), "little")
    if size > most:
        raise ValueError(f"a message of {size} bytes")
    return _read_exactly(connection, size, deadline)


def _read_exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        # For all parts together: who sends a byte now and then is never silent for long.
        left = deadline - time.monotonic()
        if left <= 0:
            raise OSError("too slow")
        connection.settimeout(left)
        part = connection.recv(size - len(data))
        if not part:
            raise OSError("closed in the middle of a message")
        data += part
    return data
