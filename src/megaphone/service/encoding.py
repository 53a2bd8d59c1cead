"""Text and JSON that can always be sent: what is no Unicode in a name or a message does not cost the whole answer.

A lone surrogate can be in any string of Python's, from JSON's escapes or from a file name that is not UTF-8, and has no
form in UTF-8. It is shown as its escape, as a terminal would. What a terminal takes for an order is escaped in JSON, as
JSON allows for any character.
"""

import struct
from collections.abc import Mapping
from typing import Any

import msgspec

DELETE = b"\x7f"


def encode_json(value: Any) -> bytes:
    """A value as JSON.

    >>> encode_json({"text": "fluid", "bins": 2})
    b'{"text":"fluid","bins":2}'
    >>> encode_json(["\\ud800", {"\\udcff": 1}])
    b'["\\\\\\\\ud800",{"\\\\\\\\udcff":1}]'
    >>> encode_json("\\x9b2J \\u202e ü")
    b'"\\\\u009b2J \\\\u202e \\xc3\\xbc"'
    """
    try:
        raw = msgspec.json.encode(value)
    except UnicodeEncodeError:
        raw = msgspec.json.encode(clean(value))
    if raw.isascii() and DELETE not in raw:
        return raw
    # Only strings have such characters.
    return "".join(c if c.isprintable() else _escape(c) for c in raw.decode()).encode()


def _escape(character: str) -> str:
    r"""A character as JSON may have it: in the units of UTF-16.

    >>> _escape("\x7f"), _escape("\U000e0001")
    ('\\u007f', '\\udb40\\udc01')
    """
    return "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", character.encode("utf-16-be")))


def encode_text(text: str) -> bytes:
    """Text as UTF-8."""
    return text.encode(errors="backslashreplace")


def clean(value: Any) -> Any:
    """A value in which all text is Unicode all through.

    >>> clean({"a": ("\\ud800", 1)})
    {'a': ['\\\\ud800', 1]}
    """
    if isinstance(value, str):
        return encode_text(value).decode()
    if isinstance(value, Mapping):
        return {clean(name): clean(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(entry) for entry in value]
    return value
