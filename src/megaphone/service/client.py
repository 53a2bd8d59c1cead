"""The other end of server.py: asks a control that is served on this machine.

Neighbours: directory.py knows them all, console.py is who asks.
"""

import http.client
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from megaphone.errors import MegaphoneError
from megaphone.service.answers import FAILED, NO_QUERY, REFUSED
from megaphone.service.directory import Entry

PATIENCE_S = 180.0
"""A rescale answers when its new workers are there, for which the control waits two minutes."""


class Gone(MegaphoneError):
    """Nobody answers there any more."""


class Refused(MegaphoneError):
    """It was understood, and will not be done."""


class NoSuchQuery(MegaphoneError):
    """No query of that name runs."""


class Failed(MegaphoneError):
    """It was tried, and could not be done."""


KINDS = {NO_QUERY: NoSuchQuery, REFUSED: Refused, FAILED: Failed}


def ask(entry: Entry, method: str, path: str, body: Mapping[str, Any] | None = None, **options: Any) -> bytes:
    """The answer to a request."""
    address = urlsplit(entry.address)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)
    given = {name: value for name, value in options.items() if value is not None}
    headers = {"Authorization": f"Bearer {entry.token}", "Content-Type": "application/json"}
    try:
        connection.request(
            method,
            f"{path}?{urlencode(given)}" if given else path,
            None if body is None else msgspec.json.encode(body),
            headers,
        )
        answer = connection.getresponse()
        return _read(answer.status, answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise Gone(f"control {entry.control} of process {entry.pid} does not answer: {error}") from error
    finally:
        connection.close()


def ask_for(entry: Entry, method: str, path: str, body: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """The answer to a request, read."""
    return msgspec.json.decode(ask(entry, method, path, body, **options))


def _read(status: int, body: bytes) -> bytes:
    if status < 300:
        return body
    try:
        refusal = msgspec.json.decode(body, type=dict[str, str])
    except msgspec.MsgspecError:
        raise Gone(f"an answer that is not Megaphone's, of status {status}") from None
    raise KINDS.get(refusal["kind"], Refused)(refusal["error"])
