"""Bytes in, answers out, over real sockets.

Would catch a request whose end a server in front of this one could see elsewhere, so that a stranger's bytes become
somebody else's request; a caller who shuts others out, holds what they need, or takes memory; and an answer to a
malformed request that is not ours: without the headers that keep browsers safe, or with a traceback.
"""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import tracemalloc

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.service import connection as connection_module
from megaphone.service import server as module
from megaphone.service.answers import Answer, Refusal
from megaphone.service.head import (
    MAX_BODY,
    MAX_FIELDS,
    MAX_HEAD,
    MAX_LINE,
    add_field,
    body_size,
    options_of,
    parse_first,
)
from megaphone.service.server import Server

TOKEN = "correct-horse"
HOST = b"Host: NAME"
OURS = b"Authorization: Bearer correct-horse"
JSON = b"Content-Type: application/json"


def request(first, *fields, body=b""):
    return b"".join(line + b"\r\n" for line in (first, *fields, b"")) + body


def get(*fields, target=b"/x", version=b"HTTP/1.1", body=b""):
    return request(b"GET %b %b" % (target, version), HOST, OURS, *fields, body=body)


def post(*fields, body=b"{}"):
    return request(b"POST /x HTTP/1.1", HOST, OURS, JSON, *fields, body=body)


class Counting:
    """Answers with what it was asked, once it may."""

    def __init__(self):
        self.seen = []
        self.begun = threading.Semaphore(0)
        self.may = threading.Event()

    def __call__(self, asked):
        self.seen.append((asked.method, asked.path, dict(asked.options), asked.body))
        if asked.path == "/wait":
            self.begun.release()
            assert self.may.wait(30)
        if asked.path == "/large":
            return Answer(bytes(32 << 20))
        if asked.path == "/stream":
            return Answer((b"%d\n" % n for n in range(3)), kind="text/plain")
        if asked.path == "/broken-stream":
            return Answer((b"%d\n" % (1 // n) for n in (1, 0)), kind="text/plain")
        if asked.path == "/exit":
            raise SystemExit("An error occurred:\n\tat line 1\n\tat line 2")
        return Answer.of("done")


@pytest.fixture
def desk():
    return Counting()


@pytest.fixture
def serve(desk):
    servers = []

    def serve():
        servers.append(Server(desk, TOKEN, public={"/": Answer(b"page", kind="text/html")}))
        return servers[-1]

    yield serve
    desk.may.set()
    for server in servers:
        server.close()


@pytest.fixture
def served(serve):
    return serve()


class Line:
    """A caller's end of a connection."""

    def __init__(self, server):
        self.name = server.address.removeprefix("http://").encode()
        self.socket = socket.create_connection(self.name.decode().split(":"), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def send(self, raw):
        self.socket.sendall(raw.replace(b"NAME", self.name))

    def answer(self, headless=False):
        """Status, headers and body of the next answer; none at the end."""
        first = self.file.readline()
        if not first:
            return None
        fields = dict(line.decode().rstrip().split(": ", 1) for line in iter(self.file.readline, b"\r\n"))
        size = 0 if headless else int(fields.get("Content-Length", "0"))
        return int(first.split()[1]), fields, self.file.read(size)

    def ended(self):
        return self.file.read() == b""


def ask(server, raw=None):
    with Line(server) as line:
        line.send(raw or get())
        return line.answer()[0]


BEGUN = b"POST /pause HTTP/1.1\r\n%b\r\nContent-Length: 0\r\nA: " % JSON
"""The rest is somebody else's request, with the token."""

REFUSED = {
    "nothing of HTTP": (b"hello\r\n\r\n", 400),
    "the beginning of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "an empty line first": (b"\r\n" + get(), 400),
    "a first line of two words": (b"GET /x\r\n", 400),
    "two spaces": (request(b"GET  /x HTTP/1.1", HOST, OURS), 400),
    "a tab for a space": (request(b"GET\t/x HTTP/1.1", HOST, OURS), 400),
    "a space at the end": (request(b"GET /x HTTP/1.1 ", HOST, OURS), 400),
    "a space within the path": (get(target=b"/x y"), 400),
    "a path that is not ASCII": (get(target=b"/\xc3\xa4"), 400),
    "a version with a letter": (get(version=b"HTTP/1.x"), 400),
    "a version in lower case": (get(version=b"http/1.1"), 400),
    "an old version": (get(version=b"HTTP/0.9"), 505),
    "a new version": (get(version=b"HTTP/1.2"), 505),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "an address that is none": (get(target=b"http://["), 400),
    "an address, not a path": (get(target=b"http://NAME/x"), 400),
    "somebody else's address": (get(target=b"http://evil.example/x"), 400),
    "all of the server": (get(target=b"*"), 400),
    "a path without its beginning": (get(target=b"x"), 400),
    "a part of a page": (get(target=b"/x#y"), 400),
    "HEAD": (request(b"HEAD /x HTTP/1.1", HOST, OURS), 405),
    "OPTIONS": (request(b"OPTIONS * HTTP/1.1", HOST, OURS), 405),
    "PUT": (request(b"PUT /x HTTP/1.1", HOST, OURS, b"Content-Length: 2", body=b"{}"), 405),
    "DELETE": (request(b"DELETE /x HTTP/1.1", HOST, OURS), 405),
    "TRACE": (request(b"TRACE /x HTTP/1.1", HOST, OURS), 405),
    "CONNECT": (request(b"CONNECT NAME HTTP/1.1", HOST, OURS), 405),
    "a method in lower case": (request(b"get /x HTTP/1.1", HOST, OURS), 405),
    "a method of its own": (request(b"M-SEARCH /x HTTP/1.1", HOST, OURS), 405),
    "lines that end in LF": (get().replace(b"\r\n", b"\n"), 400),
    "a header that ends in LF": (get(b"A: b\nC: d"), 400),
    "a header that ends in CR": (get(b"A: b\rC: d"), 400),
    "NUL in a header": (get(b"A: b\0"), 400),
    "NUL in the first line": (get(target=b"/x\0"), 400),
    "an escape in a header": (get(b"A: \x1b[2J"), 400),
    "a header over two lines": (get(b"A: b", b" c"), 400),
    "a continued line first": (request(b"GET /x HTTP/1.1", b" A: b", HOST, OURS), 400),
    "a space before the colon": (get(b"A : b"), 400),
    "a header without a name": (get(b": b"), 400),
    "a header without a colon": (get(b"A"), 400),
    "a name that is not ASCII": (get(b"\xc3\xa4: b"), 400),
    "two hosts": (get(HOST), 400),
    "two other hosts": (get(b"Host: evil.example"), 400),
    "two tokens": (get(OURS), 400),
    "two lengths": (post(b"Content-Length: 2", b"Content-Length: 2"), 400),
    "two other lengths": (post(b"Content-Length: 2", b"Content-Length: 40"), 400),
    "two lengths in one": (post(b"Content-Length: 2, 2"), 400),
    "length with a sign": (post(b"Content-Length: +2"), 400),
    "length below zero": (post(b"Content-Length: -2"), 400),
    "length in hexadecimal": (post(b"Content-Length: 0x2"), 400),
    "length with an underscore": (post(b"Content-Length: 0_2"), 400),
    "length with a point": (post(b"Content-Length: 2.0"), 400),
    "length in other digits": (post("Content-Length: ٢".encode()), 400),
    "length in superscript": (post("Content-Length: ²".encode("latin-1")), 400),
    "length of no digit": (post(b"Content-Length: "), 400),
    "length and pieces": (post(b"Content-Length: 2", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400),
    "pieces and length": (post(b"Transfer-Encoding: chunked", b"Content-Length: 2", body=b"0\r\n\r\n"), 400),
    "pieces": (post(b"Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n\r\n"), 411),
    "pieces under another name": (post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), 411),
    "no length": (post(), 411),
    "no length, of the older version": (post().replace(b"HTTP/1.1", b"HTTP/1.0"), 411),
    "a body that is too large": (post(b"Content-Length: %d" % (MAX_BODY + 1)), 413),
    "a body that is absurd": (post(b"Content-Length: " + b"9" * 4301), 413),
    "GET with a body": (get(b"Content-Length: 2", body=b"{}"), 400),
    "GET in pieces": (get(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400),
    "GET with a length that is none": (get(b"Content-Length: x"), 400),
    "the page, with a body": (request(b"GET / HTTP/1.1", HOST, b"Content-Length: 2", body=b"{}"), 400),
    "a stranger's GET that begins another request": (
        request(b"GET / HTTP/1.1", HOST, b"Content-Length: %d" % len(BEGUN), body=BEGUN),
        400,
    ),
    "a first line that is too long": (get(target=b"/" + b"x" * MAX_LINE), 414),
    "a first line without an end": (b"GET /" + b"x" * MAX_LINE * 2, 414),
    "a method without an end": (b"G" * (MAX_LINE + 9), 414),
    "a header that is too large": (get(b"A: " + b"b" * MAX_HEAD), 431),
    "a header without an end": (get()[:-2] + b"A: " + b"b" * MAX_HEAD, 431),
    "headers that are too large": (get(*[b"A%d: %b" % (n, b"b" * 400) for n in range(50)]), 431),
    "headers that are too many": (get(*[b"A%d: b" % n for n in range(MAX_FIELDS)]), 431),
    "another kind of body": (post(b"Content-Length: 2").replace(b"application/json", b"text/plain"), 415),
    "no host": (request(b"GET /x HTTP/1.1", OURS), 421),
    "somebody else's name": (request(b"GET /x HTTP/1.1", b"Host: evil.example", OURS), 421),
    "a name with an end": (get().replace(HOST, HOST + b"/"), 421),
    "somebody else's page": (get(b"Origin: http://evil.example"), 403),
    "a page without a scheme": (get(b"Origin: NAME"), 403),
    "an option that is no text": (get(target=b"/x?a=%ff"), 400),
    "an option twice": (get(target=b"/x?a=1&a=2"), 400),
    "no token": (request(b"GET /x HTTP/1.1", HOST), 401),
    "a stranger's body": (request(b"POST /x HTTP/1.1", HOST, JSON, b"Content-Length: 2", body=b"{}"), 401),
    "a stranger who asks first": (
        request(b"POST /x HTTP/1.1", HOST, JSON, b"Content-Length: 2", b"Expect: 100-continue"),
        401,
    ),
}


@pytest.mark.parametrize("bad", REFUSED)
def test_what_is_not_clear_is_refused_and_ends_the_connection(served, desk, bad):
    raw, status = REFUSED[bad]
    with Line(served) as line:
        # A server in front of this one sends the next caller's request over the same connection.
        line.send(raw + get())
        check_refusal(line, status, headless=raw.startswith(b"HEAD"))
    assert desk.seen == []


def check_refusal(line, status, headless=False):
    found, fields, body = line.answer(headless)
    assert found == status
    assert fields["Content-Type"] == "application/json"
    assert (fields["Connection"], fields["Cache-Control"]) == ("close", "no-store")
    assert (fields["X-Content-Type-Options"], fields["Referrer-Policy"]) == ("nosniff", "no-referrer")
    assert (fields.get("Allow"), fields.get("WWW-Authenticate")) == (
        "GET, POST" if status == 405 else None,
        "Bearer" if status == 401 else None,
    )
    if not headless:
        said = json.loads(body)
        assert sorted(said) == ["error", "kind"]
        assert TOKEN not in said["error"]
        assert "\n" not in said["error"]
    assert line.ended()


SHORT = [name for name, (raw, _) in REFUSED.items() if len(raw) < 200]


@pytest.mark.parametrize("bad", SHORT[::3])
def test_nor_is_it_clear_byte_by_byte(served, desk, bad):
    raw, status = REFUSED[bad]
    with Line(served) as line:
        with contextlib.suppress(OSError):
            for byte in raw.replace(b"NAME", line.name):
                line.socket.send(bytes([byte]))
        check_refusal(line, status, headless=raw.startswith(b"HEAD"))
    assert desk.seen == []


FOLLOWED = {
    "GET": (get(), ("GET", "/x", {}, b"")),
    "options": (get(target=b"/x?a=1%202&b=&c=%C3%A4+%00"), ("GET", "/x", {"a": "1 2", "b": "", "c": "ä \0"}, b"")),
    "a path that names a host": (get(target=b"//evil.example/x"), ("GET", "//evil.example/x", {}, b"")),
    "a path with escapes": (get(target=b"/%00%ff/../x"), ("GET", "/%00%ff/../x", {}, b"")),
    "GET with a body of nothing": (get(b"Content-Length: 0"), ("GET", "/x", {}, b"")),
    "a header in other letters": (get().replace(b"Host", b"hOST"), ("GET", "/x", {}, b"")),
    "spaces around a value": (get().replace(b": Bearer", b": \t Bearer"), ("GET", "/x", {}, b"")),
    "headers of others": (
        get(b"Cookie: a", b"Cookie: b", b"A: \xff", b"B:", b"Connection: keep-alive"),
        ("GET", "/x", {}, b""),
    ),
    "POST": (post(b"Content-Length: 2"), ("POST", "/x", {}, b"{}")),
    "POST of nothing": (post(b"Content-Length: 0", body=b""), ("POST", "/x", {}, b"")),
    "a large first line": (get(target=b"/" + b"x" * 8000), ("GET", "/" + "x" * 8000, {}, b"")),
    "a large body": (post(b"Content-Length: %d" % MAX_BODY, body=b" " * MAX_BODY), ("POST", "/x", {}, b" " * MAX_BODY)),
    "an expectation of nothing": (get(b"Expect: 100-continue"), ("GET", "/x", {}, b"")),
}


@pytest.mark.parametrize("good", FOLLOWED)
def test_what_is_clear_is_followed_and_the_connection_goes_on(served, desk, good):
    raw, asked = FOLLOWED[good]
    with Line(served) as line:
        for _ in range(2):
            line.send(raw)
            status, fields, _ = line.answer()
            assert (status, fields.get("Connection")) == (200, None)
    assert desk.seen == [asked, asked]


@pytest.mark.parametrize(
    "raw",
    [
        get(version=b"HTTP/1.0"),
        get(b"Connection: keep-alive", version=b"HTTP/1.0"),
        get(b"Connection: close"),
        get(b"Connection: TE, Close"),
        get(b"Connection: close", b"Connection: TE"),
    ],
)
def test_connection_ends_where_the_caller_means_it(served, desk, raw):
    with Line(served) as line:
        line.send(raw + get())
        status, fields, _ = line.answer()
        assert (status, fields["Connection"], line.ended()) == (200, "close", True)
    assert len(desk.seen) == 1


def test_requests_that_come_together_are_answered_in_turn(served, desk):
    with Line(served) as line:
        line.send(get(target=b"/1") + post(b"Content-Length: 2") + get(target=b"/3") + get(target=b"/4?a=%ff"))
        assert [line.answer()[0] for _ in range(4)] == [200, 200, 200, 400]
        assert line.ended()
    assert [path for _, path, *_ in desk.seen] == ["/1", "/x", "/3"]


def test_more_than_was_announced_is_the_next_request(served, desk):
    with Line(served) as line:
        line.send(post(b"Content-Length: 2", body=b"{}{}\r\n\r\n"))
        assert [line.answer()[0] for _ in range(2)] == [200, 400]
        assert line.ended()
    assert [body for *_, body in desk.seen] == [b"{}"]


def test_caller_is_told_to_send_a_large_body(served, desk):
    with Line(served) as line:
        line.send(post(b"Content-Length: 2", b"Expect: 100-Continue", body=b""))
        assert (line.file.readline(), line.file.readline()) == (b"HTTP/1.1 100 Continue\r\n", b"\r\n")
        line.send(b"{}")
        assert line.answer()[0] == 200
    assert desk.seen == [("POST", "/x", {}, b"{}")]


def test_refusal_arrives_while_the_body_is_still_sent(monkeypatch, served):
    monkeypatch.setattr(connection_module, "LINGER_S", 20.0)
    raw = request(b"POST /x HTTP/1.1", HOST, JSON, b"Content-Length: 2000000", body=b" " * 2_000_000)
    with Line(served) as line:
        line.send(raw)
        check_refusal(line, 401)


def test_stream_has_an_end_that_can_be_told_from_a_broken_one(served):
    with Line(served) as line:
        line.send(get(target=b"/stream"))
        assert line.answer()[1]["Transfer-Encoding"] == "chunked"
        whole = b"2\r\n0\n\r\n2\r\n1\n\r\n2\r\n2\n\r\n0\r\n\r\n"
        assert line.file.read(len(whole)) == whole
        line.send(get(target=b"/broken-stream"))
        assert line.answer()[0] == 200
        assert line.file.read() == b"2\r\n1\n\r\n"


def test_stream_ends_with_the_connection_for_the_older_version(served):
    with Line(served) as line:
        line.send(get(target=b"/stream", version=b"HTTP/1.0"))
        assert line.answer()[1]["Connection"] == "close"
        assert line.file.read() == b"0\n1\n2\n"


def test_error_is_one_sentence_whatever_it_is(served):
    with Line(served) as line:
        line.send(get(target=b"/exit"))
        status, _, body = line.answer()
    assert (status, json.loads(body)) == (500, {"error": "SystemExit: An error occurred:", "kind": "failed"})
    assert ask(served) == 200


@given(st.binary(), st.binary(), st.binary())
def test_any_bytes_are_read_or_refused(first, field, said):
    length = said.decode("latin-1")
    for read in (
        lambda: parse_first(first),
        lambda: parse_first(b"GET /" + first + b" HTTP/1.1"),
        lambda: add_field({}, field),
        lambda: add_field({}, b"Host:" + field),
        lambda: body_size("POST", {"content-length": length}),
        lambda: options_of("/?" + length),
    ):
        with contextlib.suppress(Refusal):
            read()


def drip(line, raw):
    """Send a byte now and then until something is said about it."""
    line.socket.settimeout(0.02)
    for byte in raw:
        with contextlib.suppress(TimeoutError):
            line.socket.recv(1, socket.MSG_PEEK)
            break
        line.socket.send(bytes([byte]))
    line.socket.settimeout(20)


@pytest.mark.parametrize(
    "raw", [b"GET /" + b"x" * 300, get()[:-2] + b"A: " + b"b" * 300, post(b"Content-Length: 300", body=b" " * 299)]
)
def test_request_has_a_deadline_in_all_however_often_a_byte_arrives(monkeypatch, serve, desk, raw):
    monkeypatch.setattr(module, "REQUEST_S", 0.2)
    with Line(serve()) as line:
        whole = raw.replace(b"NAME", line.name)
        line.send(whole[:-295])
        drip(line, whole[-295:])
        check_refusal(line, 408)
    assert desk.seen == []


def test_connection_without_a_request_ends(monkeypatch, served):
    with Line(served) as used:
        used.send(get())
        assert used.answer()[0] == 200
        monkeypatch.setattr(module, "IDLE_S", 0.1)
        used.send(get())
        assert used.answer()[0] == 200
        assert used.ended()
    with Line(served) as silent:
        assert silent.ended()


@pytest.mark.parametrize("sent", [b"", b"GET /x HTTP/1.1\r\nA: ", request(b"GET / HTTP/1.1", HOST)])
def test_strangers_keep_nobody_out(served, sent):
    """Whether they are silent, send a part of a request, or have got the page."""
    with contextlib.ExitStack() as strangers:
        for _ in range(300):
            strangers.enter_context(Line(served)).send(sent)
        assert ask(served) == 200


WITHOUT_FILES = """
import resource, sys
from megaphone.service.answers import Answer
from megaphone.service.server import Server
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
server = Server(lambda asked: Answer.of("done"), "correct-horse")
print(server.address, flush=True)
sys.stdin.read()
"""


class Elsewhere:
    """A server of another process."""

    def __init__(self, address):
        self.address = address


def test_strangers_keep_nobody_out_of_a_process_that_may_open_few_files():
    command = [sys.executable, "-c", WITHOUT_FILES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        server = Elsewhere(process.stdout.readline().strip())
        with contextlib.ExitStack() as strangers:
            for _ in range(100):
                strangers.enter_context(Line(server))
            assert ask(server) == 200
        process.stdin.close()


def test_strangers_end_no_request_and_no_connection_of_the_user(monkeypatch, serve, desk):
    monkeypatch.setattr(module, "IDLE_S", 60.0)
    served = serve()
    with Line(served) as used, Line(served) as waiting, contextlib.ExitStack() as strangers:
        used.send(get())
        assert used.answer()[0] == 200
        waiting.send(get(target=b"/wait"))
        assert desk.begun.acquire(timeout=20)
        for _ in range(300):
            strangers.enter_context(Line(served))
        used.send(get())
        assert used.answer()[0] == 200
        desk.may.set()
        assert waiting.answer()[0] == 200


def test_requests_beyond_the_places_are_refused_but_the_page_is_given(monkeypatch, serve, desk):
    monkeypatch.setattr(module, "MAX_CALLERS", 2)
    monkeypatch.setattr(module, "CROWDED_S", 0.05)
    server = serve()
    with Line(server) as first, Line(server) as second, Line(server) as third:
        for line in (first, second):
            line.send(get(target=b"/wait"))
            assert desk.begun.acquire(timeout=20)
        third.send(get())
        check_refusal(third, 503)
        assert ask(server, request(b"GET / HTTP/1.1", HOST)) == 200
        desk.may.set()
        assert [line.answer()[0] for line in (first, second)] == [200, 200]
        assert ask(server) == 200


def test_caller_who_takes_no_answer_keeps_no_place(monkeypatch, serve):
    monkeypatch.setattr(module, "MAX_CALLERS", 1)
    monkeypatch.setattr(module, "CROWDED_S", 20.0)
    monkeypatch.setattr(connection_module, "SEND_S", 0.1)
    server = serve()
    with Line(server) as slow:
        slow.send(get(target=b"/large"))
        assert slow.file.readline() == b"HTTP/1.1 200 OK\r\n"
        assert ask(server) == 200


def test_caller_who_hangs_up_harms_nobody(served):
    for sent in (b"GET /x HT", get(target=b"/large"), get(target=b"/stream"), post(b"Content-Length: 9")):
        with Line(served) as line:
            line.send(sent)
    assert ask(served) == 200


def test_heads_of_strangers_take_little_memory(served):
    head = b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %b\r\n" % (n, b"a" * 60_000) for n in range(50))
    tracemalloc.start()
    try:
        with contextlib.ExitStack() as strangers:
            for _ in range(48):
                line = strangers.enter_context(Line(served))
                line.socket.settimeout(0.01)
                with contextlib.suppress(OSError):
                    line.socket.sendall(head)
            assert ask(served) == 200
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def ours():
    """Threads of servers."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("megaphone-http")]


def test_end_leaves_no_thread_and_no_socket(serve):
    threads, files = ours(), psutil.Process().num_fds()
    server = serve()
    with Line(server) as used, Line(server) as half, Line(server) as silent:
        used.send(get())
        assert used.answer()[0] == 200
        half.send(b"GET /x")
        server.close()
        assert [line.ended() for line in (used, half, silent)] == [True, True, True]
    assert set(ours()) <= set(threads)
    assert psutil.Process().num_fds() <= files
    server.close()


def test_request_that_is_being_answered_at_the_end_gets_its_answer(serve, desk):
    others = ours()
    served = serve()
    with Line(served) as line:
        line.send(get(target=b"/wait"))
        assert desk.begun.acquire(timeout=20)
        served.close()
        with pytest.raises(ConnectionRefusedError):
            Line(served)
        desk.may.set()
        status, fields, _ = line.answer()
        assert (status, fields["Connection"], line.ended()) == (200, "close", True)
    for thread in set(ours()) - set(others):
        thread.join(20)
        assert not thread.is_alive()
