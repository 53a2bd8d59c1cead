"""Structured logs: what happens to a query, as events with fields.

They go to Python's own logging, under `megaphone`; nothing is set up for you. Text handlers show a line a person can
read, and a handler with `JsonLines` one JSON object a line. docs/operations.md has the events name by name.
Neighbours: everybody in the driver tells; chronicle.py has the lines of progress, under `megaphone.progress`.
"""

import json
import logging
import time
from typing import Any

from megaphone.printing import LOGGER as LOGGER
from megaphone.service.encoding import clean

PROGRESS = logging.getLogger("megaphone.progress")


MINUTE_S = 60.0


class Minutely:
    """Whether it is time again for a line that could be written in every epoch.

    >>> minutely = Minutely()
    >>> [minutely.due(second) for second in (0.0, 0.1, 59.9, 60.0, 60.1)]
    [True, False, False, True, False]
    """

    def __init__(self) -> None:
        self._last_s = -MINUTE_S

    def due(self, now_s: float) -> bool:
        """True if a minute has passed since it last was."""
        due = now_s - self._last_s >= MINUTE_S
        if due:
            self._last_s = now_s
        return due


def tell(event: str, **fields: Any) -> None:
    """Something has happened."""
    if LOGGER.isEnabledFor(logging.INFO):
        words = clean(", ".join(f"{name} {value}" for name, value in fields.items()))
        LOGGER.info("%s: %s", event, words, extra={"fields": {"event": event, **fields}})


class JsonLines(logging.Formatter):
    """One JSON object a line: when, how bad, what, and the fields of an event.

    >>> record = logging.LogRecord("megaphone", logging.INFO, "", 0, "worker joined: worker 3", None, None)
    >>> record.created, record.fields = 0.25, {"event": "worker joined", "worker": 3}
    >>> print(JsonLines().format(record))
    {"time": "1970-01-01T00:00:00.250Z", "level": "INFO", "logger": "megaphone", "message": "worker joined: worker 3",
     "event": "worker joined", "worker": 3}
    """

    def format(self, record: logging.LogRecord) -> str:
        """A record as a line."""
        line = {
            "time": iso(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(clean(line), default=str)


def iso(seconds: float) -> str:
    """A time as Spark writes it in its progress.

    >>> iso(1_700_000_000.5)
    '2023-11-14T22:13:20.500Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03}Z"
