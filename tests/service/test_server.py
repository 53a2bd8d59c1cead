"""Would catch a stranger, a web page of somebody else's, or a malformed or oversized request that gets through.

And a server that a caller who hangs, lies or goes away can bring down.
"""

import http.client
import json
import socket
import time

import pytest

from megaphone.service import server as module
from megaphone.service.place import resolve
from megaphone.service.server import MAX_BODY, Answer, Refusal, Server

TOKEN = "correct-horse"


class Counting:
    """Answers with what it was asked, and counts how often anything came through."""

    def __init__(self):
        self.seen = []

    def __call__(self, request):
        self.seen.append(request)
        if request.path == "/broken":
            raise RuntimeError("no luck")
        if request.path == "/refused":
            raise Refusal(409, "not now")
        if request.path == "/stream":
            return Answer((f"{n}\n".encode() for n in range(3)), kind="text/plain")
        return Answer.of([request.method, request.path, dict(request.options), request.body.decode()])


@pytest.fixture
def desk():
    return Counting()


@pytest.fixture
def served(desk):
    server = Server(desk, TOKEN)
    yield server
    server.close()


def port_of(served):
    return int(served.address.rsplit(":", 1)[1])


def call(served, method="GET", path="/x", body=None, at="127.0.0.1", **headers):
    """A status and an answer; a header that is None is left out."""
    port = port_of(served)
    given = {"Host": f"127.0.0.1:{port}", "Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection(at, port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    if body is not None and "Content-Length" not in given:
        given["Content-Length"] = str(len(body))
    for name, value in given.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if answer.getheader("Content-Type") == "application/json" else text


def test_who_has_the_token_is_answered(served):
    assert call(served, path="/a?b=c&d=1") == (200, ["GET", "/a", {"b": "c", "d": "1"}, ""])
    assert call(served, "POST", body=b'{"n": 1}') == (200, ["POST", "/x", {}, '{"n": 1}'])


STRANGERS = {
    "no token": ({"Authorization": None}, 401),
    "empty token": ({"Authorization": "Bearer "}, 401),
    "wrong token": ({"Authorization": "Bearer wrong"}, 401),
    "token in another scheme": ({"Authorization": f"Basic {TOKEN}"}, 401),
    "token that is longer": ({"Authorization": f"Bearer {TOKEN}x"}, 401),
    "token that is not ascii": ({"Authorization": "Bearer \xff"}, 401),
    "no host": ({"Host": None}, 421),
    "name that somebody else's server gave us": ({"Host": "evil.example"}, 421),
    "our address without the port": ({"Host": "127.0.0.1"}, 421),
    "page of somebody else's": ({"Origin": "https://evil.example"}, 403),
    "page without a home": ({"Origin": "null"}, 403),
}


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_stranger_is_sent_away_before_anybody_looks(served, desk, stranger, method):
    headers, status = STRANGERS[stranger]
    found, answer = call(served, method, body=b"{}" if method == "POST" else None, **headers)
    assert (found, sorted(answer)) == (status, ["error", "kind"])
    assert TOKEN not in json.dumps(answer)
    assert desk.seen == []


def test_our_own_page_may_ask(served):
    assert call(served, Origin=served.address)[0] == 200
    assert call(served, Host=f"localhost:{port_of(served)}")[0] == 200


BODIES = {
    "form of a web page": (b"a=1", {"Content_Type": "application/x-www-form-urlencoded"}, 415),
    "plain text": (b"{}", {"Content_Type": "text/plain"}, 415),
    "no type": (b"{}", {"Content_Type": None}, 415),
    "no length": (None, {}, 411),
    "length that is none": (b"{}", {"Content-Length": "two"}, 411),
    "length below zero": (b"{}", {"Content-Length": "-1"}, 411),
    "unknown length": (None, {"Transfer-Encoding": "chunked"}, 411),
    "too large": (b"{}", {"Content-Length": str(MAX_BODY + 1)}, 413),
    "absurdly large": (b"{}", {"Content-Length": "9" * 100}, 413),
}


@pytest.mark.parametrize("bad", BODIES)
def test_bad_body_is_refused_unread(served, desk, bad):
    body, headers, status = BODIES[bad]
    found, answer = call(served, "POST", body=body, **headers)
    assert (found, "; send " in answer["error"]) == (status, True)
    assert desk.seen == []


def test_body_that_ends_early_is_refused(served, desk, monkeypatch):
    with socket.create_connection(("127.0.0.1", port_of(served))) as line:
        head = f"POST /x HTTP/1.1\r\nHost: 127.0.0.1:{port_of(served)}\r\nAuthorization: Bearer {TOKEN}\r\n"
        line.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{{}}".encode())
        line.shutdown(socket.SHUT_WR)
        assert b" 400 " in line.recv(4096).split(b"\r\n")[0]
    assert desk.seen == []


def test_what_was_refused_is_not_taken_for_another_request(served, desk):
    inner = f"GET /hidden HTTP/1.1\r\nHost: 127.0.0.1:{port_of(served)}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port_of(served)), timeout=10) as line:
        head = f"POST /x HTTP/1.1\r\nHost: evil\r\nContent-Length: {len(inner)}\r\n\r\n"
        line.sendall((head + inner).encode())
        answer = b""
        try:
            while part := line.recv(4096):
                answer += part
        except ConnectionResetError:
            # It hung up on what it had not read.
            pass
    assert answer.count(b"HTTP/1.1") <= 1
    assert desk.seen == []


def test_refusal_is_one_sentence_with_its_status(served):
    assert call(served, path="/refused") == (409, {"error": "not now", "kind": "refused"})
    assert call(served, path="/broken") == (500, {"error": "RuntimeError: no luck", "kind": "failed"})
    assert call(served)[0] == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_not_there(served, desk, method):
    assert call(served, method)[0] == 501
    assert desk.seen == []


def test_answer_may_be_a_stream(served):
    assert call(served, path="/stream") == (200, b"0\n1\n2\n")


def test_callers_who_only_hang_do_not_keep_others_out_for_ever(served, monkeypatch):
    monkeypatch.setattr(module, "CROWDED_S", 0.05)
    hanging = [socket.create_connection(("127.0.0.1", port_of(served))) for _ in range(module.MAX_CALLERS + 8)]
    time.sleep(0.5)
    for line in hanging:
        line.close()
    deadline = time.monotonic() + 20
    while True:
        try:
            assert call(served)[0] == 200
            return
        except OSError:
            assert time.monotonic() < deadline


def test_nobody_is_answered_after_the_end(desk):
    server = Server(desk, TOKEN)
    call(server)
    server.close()
    with pytest.raises(ConnectionRefusedError):
        call(server)


def test_it_listens_on_the_loopback_address_alone(served):
    assert served.address.startswith("http://127.0.0.1:")


def test_another_address_is_served_under_its_own_name_alone(desk):
    server = Server(desk, TOKEN, resolve("127.0.0.2"))
    port = port_of(server)
    assert server.address == f"http://127.0.0.2:{port}"
    assert call(server, at="127.0.0.2", Host=f"127.0.0.2:{port}")[0] == 200
    assert call(server, at="127.0.0.2", Host=f"localhost:{port}")[0] == 421
    assert call(server, at="127.0.0.2", Host=f"127.0.0.2:{port}", Authorization=None)[0] == 401
    with pytest.raises(ConnectionRefusedError):
        call(server)
    server.close()
