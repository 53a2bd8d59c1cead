"""The page: the files of the dashboard, and its address.

The files are the same for everybody and tell nothing, so whoever asks gets them. What they show needs the token, which
is in the part of the address that a browser keeps to itself: it is in no request line and in no log.
Neighbours: server.py hands the files out, office.py and console.py tell the address.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from urllib.parse import urlencode

from megaphone.service.answers import Answer

KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

HEADERS = {
    # Nothing from elsewhere and nothing in line: whatever a name or a host may contain, it stays text.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@cache
def page() -> Mapping[str, Answer]:
    """What anybody may have, by path."""
    found = {}
    for file in (files("megaphone") / "dashboard").iterdir():
        kind = KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            found[path] = Answer(file.read_bytes(), kind=kind, headers=HEADERS)
    return found


def page_address(address: str, token: str, query: str | None = None) -> str:
    """Where a browser finds the page.

    >>> page_address("http://127.0.0.1:4040", "secret", "aaaa-1111")
    'http://127.0.0.1:4040/#token=secret&query=aaaa-1111'
    """
    given = {"token": token} if query is None else {"token": token, "query": query}
    return f"{address}/#{urlencode(given)}"
