"""The head of a request, read in one way or not at all.

A server in front of this one may send requests of several callers over one connection. If it saw the end of a request
elsewhere than this one does, the rest of a stranger's request would become the beginning of another caller's, and be
followed with that caller's token. So a request that can be read in two ways is refused, as is a GET with a body, and a
refusal ends the connection.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl

from megaphone.service.answers import Refusal

MAX_LINE = 8 << 10
"""Bytes of the first line."""

MAX_HEAD = 16 << 10
"""Bytes of all lines."""

MAX_FIELDS = 100

MAX_BODY = 4 << 20
"""A plan that moves a hundred thousand bins has fewer bytes."""

METHODS = ("GET", "POST")

VERSIONS = ("1.0", "1.1")

_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_FIRST = re.compile(rb"(%s) ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])" % _NAME)
_FIELD = re.compile(rb"(%s):([\t\x20-\x7e\x80-\xff]*)" % _NAME)

SINGLE = frozenset(("host", "origin", "authorization", "content-type", "content-length", "transfer-encoding", "expect"))
"""Fields that are looked at, and may be there once. Of the others only `Connection` is, which is a list."""


@dataclass(frozen=True, slots=True)
class Head:
    """A request without its body."""

    method: str
    target: str
    version: str
    fields: Mapping[str, str]
    """By their names in lower case."""
    size: int
    """Bytes of the body."""

    @property
    def path(self) -> str:
        """The target without its options."""
        return self.target.partition("?")[0]

    @property
    def persists(self) -> bool:
        """Does the caller let another request follow?"""
        said = self.fields.get("connection", "").lower().split(",")
        return self.version != "1.0" and "close" not in (word.strip() for word in said)

    @property
    def expects_word(self) -> bool:
        """Does the caller wait for 100 Continue before it sends the body?"""
        return self.fields.get("expect", "").lower() == "100-continue" and self.version != "1.0" and self.size > 0


def parse_first(line: bytes) -> tuple[str, str, str]:
    """Method, target and version of the first line.

    >>> parse_first(b"GET /status?query=a HTTP/1.1")
    ('GET', '/status?query=a', '1.1')
    """
    found = _FIRST.fullmatch(line)
    if found is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "a first line that is none of HTTP/1.1; send 'GET /status HTTP/1.1'")
    method, target, version = (part.decode("ascii") for part in found.groups())
    if version not in VERSIONS:
        raise Refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, f"HTTP/{version}; send HTTP/1.1")
    if method not in METHODS:
        allow = ", ".join(METHODS)
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"method {method}; send {allow}", headers={"Allow": allow})
    if not target.startswith("/") or "#" in target:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"'{target}' is no path; send one that begins with /, as in /status")
    return method, target, version


def parse_field(line: bytes) -> tuple[str, str]:
    """A field's name in lower case, and its value.

    >>> parse_field(b"Host: 127.0.0.1:4040 ")
    ('host', '127.0.0.1:4040')
    """
    found = _FIELD.fullmatch(line)
    if found is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "a header that is no header; send each as one line, 'Name: value'")
    name, value = found.groups()
    return name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")


def add_field(fields: dict[str, str], line: bytes) -> None:
    """Check a field, and keep it if it is looked at."""
    name, value = parse_field(line)
    if name == "connection":
        fields[name] = f"{fields.get(name, '')},{value}"
    elif name in SINGLE:
        if name in fields:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"two headers '{name}'; send one")
        fields[name] = value


def body_size(method: str, fields: Mapping[str, str]) -> int:
    """How many bytes follow the head; refused if that is not said, said in two ways, or too many."""
    said, coded = fields.get("content-length"), "transfer-encoding" in fields
    if said is not None and (coded or not (said.isascii() and said.isdecimal())):
        raise Refusal(HTTPStatus.BAD_REQUEST, "a body of unclear size; send one Content-Length, in digits")
    if method == "GET":
        if coded or (said or "").strip("0"):
            raise Refusal(HTTPStatus.BAD_REQUEST, "a GET with a body; send none")
        return 0
    if said is None:
        raise Refusal(HTTPStatus.LENGTH_REQUIRED, "a body of unknown size; send Content-Length")
    if len(said) > 12 or int(said) > MAX_BODY:
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body of {said[:12]} bytes; send at most {MAX_BODY}")
    return int(said)


def check_kind(fields: Mapping[str, str]) -> None:
    """Refuse what is not JSON: a form of a web page cannot send that."""
    kind = fields.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a body of type '{kind}'; send application/json")


def options_of(target: str) -> dict[str, str]:
    """What the part after the question mark says.

    >>> options_of("/history?number=3&query=a%20b")
    {'number': '3', 'query': 'a b'}
    """
    try:
        said = parse_qsl(target.partition("?")[2], keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise Refusal(HTTPStatus.BAD_REQUEST, "an option that is no text; send UTF-8") from None
    options = dict(said)
    if len(options) < len(said):
        raise Refusal(HTTPStatus.BAD_REQUEST, "an option that is there twice; send each once")
    return options
