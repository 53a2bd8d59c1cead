"""A small HTTP server in the driver: who has the token may ask, everybody else is sent away.

It knows no verbs: it checks a request, hands it on, and sends the answer back. A request must come to this very
address (a web page of somebody else's cannot make a browser say so for long), carry the token in a header (which no
page of somebody else's can send), and be small. Only what is public, our own page, is given to who has no token.
Neighbours: the engine's desk answers; directory.py tells where we are and what the token is; page.py is public.
"""

import hmac
import threading
from collections.abc import Mapping
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from megaphone.service.answers import Answer, Desk, Refusal, Request
from megaphone.service.place import HOST, Place

MAX_BODY = 4 << 20
"""A plan that moves a hundred thousand bins has fewer bytes."""

PATIENCE_S = 10.0
"""For a request to arrive in full."""

MAX_CALLERS = 32
"""Requests at a time."""

CROWDED_S = 1.0
"""How long whoever comes beyond that waits for a place before he is sent away."""

NOTICE_S = 0.1
"""How long the server may take to notice that it is closed."""

SAFE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


class Server:
    """Serves until it is closed."""

    def __init__(
        self, desk: Desk, token: str, place: Place | None = None, public: Mapping[str, Answer] | None = None
    ) -> None:
        """Listen on the loopback address and on a free port unless told; `public` is what anybody may have, by path."""
        place = place or Place()
        self._http = _Http(place, _handler(desk, token, public or {}, place))
        self.address = f"http://{place.authority(self._http.server_address[1])}"
        threading.Thread(target=self._http.serve_forever, args=(NOTICE_S,), daemon=True, name="megaphone-http").start()

    def close(self) -> None:
        """Listen no more; who is being answered gets his answer."""
        self._http.shutdown()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, place: Place, handler: type[BaseHTTPRequestHandler]) -> None:
        self._callers = threading.BoundedSemaphore(MAX_CALLERS)
        self.address_family = place.family
        super().__init__(place.sockaddr, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._callers.acquire(timeout=CROWDED_S):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._callers.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up in the middle is no error of ours."""


def _handler(desk: Desk, token: str, public: Mapping[str, Answer], place: Place) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body are written one after the other: the second would wait for a word on the first.
        disable_nagle_algorithm = True
        server_version, sys_version = "megaphone", ""
        timeout = PATIENCE_S

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(None)

        def _answer(self, body: bytes | None) -> None:
            try:
                check_name(self.headers, place, self.server.server_port)  # type: ignore[attr-defined]
                answer = self._public() or self._for_desk(body)
            except Refusal as refusal:
                # What came with the request may still be on its way: it must not be taken for another request.
                self.close_connection = True
                answer = refusal.answer()
            except Exception as error:
                self.close_connection = True
                answer = Refusal.after(error).answer()
            self._send(answer)

        def _public(self) -> Answer | None:
            return public.get(urlsplit(self.path).path) if self.command == "GET" else None

        def _for_desk(self, body: bytes | None) -> Answer:
            check_token(self.headers, token)
            body = self._body() if body is None else body
            url = urlsplit(self.path)
            return desk(Request(self.command, url.path, dict(parse_qsl(url.query)), body))

        def _body(self) -> bytes:
            size = body_size(self.headers)
            body = self.rfile.read(size)
            if len(body) < size:
                raise Refusal(HTTPStatus.BAD_REQUEST, f"a body of {len(body)} bytes, but {size} were announced")
            return body

        def _send(self, answer: Answer) -> None:
            whole = answer.body if isinstance(answer.body, bytes) else None
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            for name, value in {**SAFE, **answer.headers}.items():
                self.send_header(name, value)
            if whole is None or self.close_connection:
                self.close_connection = True
                self.send_header("Connection", "close")
            if whole is not None:
                self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            for piece in [whole] if whole is not None else answer.body:
                self.wfile.write(piece)  # type: ignore[arg-type]
                self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody wants a line for every look."""

    return Handler


def check_name(headers: Message, place: Place, port: int) -> None:
    """Answer to nothing but our name, and to no page but our own."""
    name = place.authority(port)
    ours = {name, *([f"localhost:{port}"] if place.host == HOST else [])}
    if headers.get("Host") not in ours:
        raise Refusal(HTTPStatus.MISDIRECTED_REQUEST, f"this is {name}, and answers to no other name")
    origin = headers.get("Origin")
    if origin is not None and origin.removeprefix("http://") not in ours:
        raise Refusal(HTTPStatus.FORBIDDEN, "a request from a page of somebody else's")


def check_token(headers: Message, token: str) -> None:
    """Let nobody in without the token."""
    given = headers.get("Authorization", "").encode()
    if not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise Refusal(
            HTTPStatus.UNAUTHORIZED,
            "no token, or a wrong one; send a header 'Authorization: Bearer TOKEN'",
            headers={"WWW-Authenticate": "Bearer"},
        )


def body_size(headers: Message) -> int:
    """How many bytes of JSON follow; refused if that is not said, or too many."""
    kind = headers.get("Content-Type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a body of type '{kind}'; send application/json")
    size = headers.get("Content-Length", "")
    if "Transfer-Encoding" in headers or not size.isdecimal():
        raise Refusal(HTTPStatus.LENGTH_REQUIRED, "a body of unknown size; send Content-Length")
    if len(size) > 12 or int(size) > MAX_BODY:
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body of {size} bytes; send at most {MAX_BODY}")
    return int(size)
