"""A connection: requests are read from it line by line, within limits, and answers are sent.

Nothing is read before it is needed. At most a line that is not complete and one piece more are held in memory.
"""

import asyncio
import contextlib
import re
import socket
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

from megaphone.service.answers import Answer, Refusal
from megaphone.service.head import MAX_BODY, MAX_FIELDS, MAX_HEAD, MAX_LINE, Head, add_field, body_size, parse_first
from megaphone.service.threads import in_thread

PIECE = 16 << 10

SEND_S = 30.0
"""For an answer, or a piece of a stream, to be taken: 3 MB at 1 Mbit/s."""

LINGER_S = 1.0
"""For the other end to read a refusal: with the connection closed it could not, if it is still sending."""

SAFE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}

_CONTROL = re.compile(rb"[^\t\x20-\x7e\x80-\xff\r]")


class Connection:
    """Our end of a connection."""

    def __init__(self, of: socket.socket) -> None:
        of.setblocking(False)
        # Otherwise a small piece is held back until the other end has confirmed the one before.
        of.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = asyncio.get_running_loop()
        self._socket = of
        self._received = bytearray()
        self._version = "1.1"
        self._is_head = False
        self.persists = False
        """Whether the last request lets another one follow."""

    def close(self) -> None:
        """End it at once."""
        self._socket.close()

    async def begins(self, patience_s: float) -> bool:
        """Wait for the first bytes of a request; false if none comes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                return bool(self._received) or await self._more()
        return False

    async def head(self) -> Head:
        """Read a request up to its body."""
        first = await self._next_line(MAX_LINE, *_TOO_LONG)
        # Its answer has no body, not even if it is refused.
        self._is_head = first.startswith(b"HEAD ")
        method, target, self._version = parse_first(first)
        fields: dict[str, str] = {}
        room = MAX_HEAD - len(first)
        for _ in range(MAX_FIELDS + 1):
            line = await self._next_line(room, *_TOO_LARGE)
            if not line:
                head = Head(method, target, self._version, fields, body_size(method, fields))
                self.persists = head.persists
                return head
            room -= len(line)
            add_field(fields, line)
        raise Refusal(*_TOO_LARGE)

    async def body(self, head: Head) -> bytes:
        """Read what follows."""
        if head.expects_word:
            await self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(self._received) < head.size:
            await self._need_more()
        body = bytes(self._received[: head.size])
        del self._received[: head.size]
        return body

    async def send(self, answer: Answer, last: bool) -> None:
        """Send an answer, and say so if it is the last one; a stream's pieces are made in threads."""
        if isinstance(answer.body, bytes):
            body = b"" if self._is_head else answer.body
            await self._send(self._head_of(answer, last, {"Content-Length": str(len(answer.body))}) + body)
        else:
            await self._send_pieces(answer, answer.body, last)

    async def _send_pieces(self, answer: Answer, pieces: Iterable[bytes], last: bool) -> None:
        # In HTTP/1.0 a stream ends with the connection, which does not persist.
        chunked = self._version != "1.0"
        await self._send(self._head_of(answer, last, {"Transfer-Encoding": "chunked"} if chunked else {}))
        coming = iter(pieces)
        while (piece := await in_thread(lambda: next(coming, None))) is not None:
            if piece:
                await self._send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            await self._send(b"0\r\n\r\n")

    def _head_of(self, answer: Answer, last: bool, framing: dict[str, str]) -> bytes:
        headers = {"Date": formatdate(usegmt=True), "Content-Type": answer.kind, **SAFE, **answer.headers, **framing}
        if last:
            headers["Connection"] = "close"
        lines = [f"HTTP/1.1 {int(answer.status)} {HTTPStatus(answer.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def linger(self) -> None:
        """Send the end, and drop what still arrives for a moment: if it stayed unread, the answer would be lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                self._socket.shutdown(socket.SHUT_WR)
                dropped = 0
                while dropped <= MAX_BODY and (piece := await self._receive()):
                    dropped += len(piece)

    async def _next_line(self, room: int, status: int, fact: str) -> bytes:
        """The next line, without its end."""
        while (end := self._received.find(b"\n", 0, room + 2)) < 0:
            if len(self._received) >= room + 2:
                raise Refusal(status, fact)
            # Another protocol, such as TLS, may never send the end of a line.
            if _CONTROL.search(self._received):
                raise Refusal(*_NOT_HTTP)
            await self._need_more()
        if end == 0 or self._received[end - 1] != ord("\r"):
            raise Refusal(*_NOT_HTTP)
        line = bytes(self._received[: end - 1])
        del self._received[: end + 1]
        return line

    async def _need_more(self) -> None:
        if not await self._more():
            raise Refusal(HTTPStatus.BAD_REQUEST, "a request that ends in the middle; send all of it")

    async def _more(self) -> bool:
        # However fast this connection is, the others have their turn.
        await asyncio.sleep(0)
        piece = await self._receive()
        self._received += piece
        return bool(piece)

    async def _receive(self) -> bytes:
        return await self._loop.sock_recv(self._socket, PIECE)

    async def _send(self, data: bytes) -> None:
        async with asyncio.timeout(SEND_S):
            await self._loop.sock_sendall(self._socket, data)


_TOO_LONG = (HTTPStatus.REQUEST_URI_TOO_LONG, f"a first line of more than {MAX_LINE} bytes; send a shorter one")

_TOO_LARGE = (
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    f"headers of more than {MAX_HEAD} bytes, or more than {MAX_FIELDS} of them; send fewer",
)

_NOT_HTTP = (HTTPStatus.BAD_REQUEST, "a request that is none of HTTP/1.1; end each line with CR and LF")
