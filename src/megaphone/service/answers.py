"""What is exchanged over HTTP: a request, its answer, and the refusal of one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from megaphone.service.encoding import encode_json

REFUSED, NO_QUERY, FAILED = "refused", "no such query", "failed"
"""Kinds of refusals: the request was wrong, it is for a query that does not run, or it could not be carried out."""

MAX_SENTENCE = 500
"""Characters of what an error says, of which Java's has a line for every caller."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request with the token."""

    method: str
    path: str
    options: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What to send back: in one piece, or as a stream of pieces as long as there are any."""

    body: bytes | Iterable[bytes]
    status: int = HTTPStatus.OK
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> "Answer":
        """A value as JSON."""
        return cls(encode_json(value) + b"\n", status, headers=headers or {})


class Refusal(Exception):
    """A request that is not followed: a status of HTTP, a sentence, and what kind of refusal it is."""

    def __init__(
        self, status: int, sentence: str, kind: str = REFUSED, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.kind = kind
        self.headers = headers

    @classmethod
    def after(cls, error: BaseException) -> "Refusal":
        """What is said of an error that nobody expected: its name and the first line of its text.

        >>> str(Refusal.after(OSError("no luck\\n  at line 1\\n  at line 2")))
        'OSError: no luck'
        """
        first = next(iter(str(error).splitlines()), "")
        name = type(error).__name__
        sentence = f"{name}: {first}" if first else name
        return cls(HTTPStatus.INTERNAL_SERVER_ERROR, sentence[:MAX_SENTENCE], FAILED)

    def answer(self) -> Answer:
        """What the caller gets."""
        return Answer.of({"error": str(self), "kind": self.kind}, self.status, self.headers)


Desk = Callable[[Request], Answer]
