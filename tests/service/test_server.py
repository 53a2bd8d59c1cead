"""Would catch a stranger or a web page of somebody else's that gets through, and another address that is served."""

import http.client
import json

import pytest

from megaphone.service.answers import Answer, Refusal
from megaphone.service.place import resolve
from megaphone.service.server import Server

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


def test_refusal_is_one_sentence_with_its_status(served):
    assert call(served, path="/refused") == (409, {"error": "not now", "kind": "refused"})
    assert call(served, path="/broken") == (500, {"error": "RuntimeError: no luck", "kind": "failed"})
    assert call(served)[0] == 200


def test_answer_may_be_a_stream(served):
    assert call(served, path="/stream") == (200, b"0\n1\n2\n")


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
