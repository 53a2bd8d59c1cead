"""Whether a bin's state can travel, found out without packing it: it is pickled to nowhere.

Arrays and Arrow data, which travel as their own memory, are not even looked at.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from megaphone.dataflow.state import PROTOCOL, Pickler

ARROW = (pa.Table, pa.RecordBatch, pa.ChunkedArray, pa.Array)

MAX_REASON = 200
"""Characters of an error that are worth repeating."""

Pause = Callable[[], bool]


class Paused(Exception):
    """There is something better to do: ask again later."""


def never() -> bool:
    """Do not pause."""
    return False


def obstacle(state: Any, pause: Pause = never) -> str | None:
    """Why a state cannot travel; None if it can. Raises `Paused` soon after `pause` says so.

    >>> obstacle({"words": ["a", "b"]})
    >>> obstacle({"lines": (line for line in "ab")})
    "TypeError: cannot pickle 'generator' object"
    """
    try:
        # Memory that would travel beside the pickle is not copied.
        _Probe(_Nowhere(pause), protocol=PROTOCOL, buffer_callback=lambda buffer: None).dump(state)
    except (Paused, MemoryError):
        raise
    except Exception as error:
        return reason_of(error)
    return None


def reason_of(error: Exception) -> str:
    """An error in one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    # It is sent and written down, as UTF-8.
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}..."


class _Nowhere:
    """A file that keeps nothing; a pickle is written to it about 64 kB at a time."""

    def __init__(self, pause: Pause) -> None:
        self._pause = pause

    def write(self, data: Any) -> int:
        if self._pause():
            raise Paused
        return len(data)


class _Probe(Pickler):
    """Takes it for granted that Arrow data can travel: to write it would be to copy it."""

    def reducer_override(self, value: Any) -> Any:
        return (pa.null, ()) if isinstance(value, ARROW) else super().reducer_override(value)
