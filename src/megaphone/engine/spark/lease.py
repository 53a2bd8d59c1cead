"""The lease: a connection that lives as long as a worker is wanted.

The coordinator holds one end, the worker the other; each notices at once when the other is gone, because the kernel
closes what a dead process held. No heartbeat, no timeout to tune.
"""

import contextlib
import hmac
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from megaphone.engine.spark.messages import Address

MAX_MESSAGE = 1 << 16
"""A join message is a few hundred bytes; more is not one."""


def hold_lease(address: Address, secret: str, message: bytes) -> None:
    """Introduce oneself, then block until the other end lets go."""
    with _connect(address) as connection:
        connection.sendall(_frame(secret.encode()) + _frame(message))
        while connection.recv(1):
            pass


class LeaseOffice:
    """The coordinator's end: accepts workers, and tells when one is gone."""

    def __init__(
        self, path: Path, host: str | None, secret: str, joined: Callable[[bytes, socket.socket], Callable[[], None]]
    ) -> None:
        """Listen; `joined` gets a newcomer's message and its connection, and says what to do when it is gone."""
        self._secret = secret.encode()
        self._joined = joined
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix.bind(str(path))
        path.chmod(0o600)
        self._listeners = [unix]
        tcp = None
        if host is not None:
            self._listeners.append(socket.create_server((host, 0)))
            tcp = f"{host}:{self._listeners[-1].getsockname()[1]}"
        self.address = Address(str(path), tcp)
        for listener in self._listeners:
            listener.listen(64)
            threading.Thread(target=self._accept, args=(listener,), daemon=True, name="lease").start()

    def close(self) -> None:
        """Accept nobody any more."""
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
                return
            threading.Thread(target=self._attend, args=(connection,), daemon=True, name="lease").start()

    def _attend(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(10)
                if not hmac.compare_digest(_read_frame(connection), self._secret):
                    return
                gone = self._joined(_read_frame(connection), connection)
                connection.settimeout(None)
            except (OSError, ValueError):
                return
            try:
                while connection.recv(1):
                    pass
            except OSError:
                pass
            finally:
                gone()


def _connect(address: Address) -> socket.socket:
    if address.tcp is None or Path(address.unix).exists():
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(address.unix)
        return connection
    host, port = address.tcp.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    # A machine that vanishes sends no farewell: ask after 5 s of silence, give up after 15.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 2)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection


def _frame(message: bytes) -> bytes:
    return len(message).to_bytes(4, "little") + message


def _read_frame(connection: socket.socket) -> bytes:
    size = int.from_bytes(_read_exactly(connection, 4), "little")
    if size > MAX_MESSAGE:
        raise ValueError(f"a message of {size} bytes")
    return _read_exactly(connection, size)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise OSError("closed in the middle of a message")
        data += part
    return data
