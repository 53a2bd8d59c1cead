"""Progress: how the run is, in a line. On a terminal the line is written over; elsewhere there is one now and then.

Neighbours: course.py has what is told.  From: command.py.
"""

import os
import time
from typing import TextIO

from megaphone.harness.nexmark.course import Reading
from megaphone.harness.units import size
from megaphone.printing import printable

EVERY_S = 5.0
"""Between two lines where they are not written over."""

ERASE = "\r\x1b[2K"


class Line:
    """Says where things are."""

    def __init__(self, stream: TextIO, quiet: bool) -> None:
        """Say it on a stream, or, if it is to be quiet, to nobody."""
        self._stream = stream
        self._quiet = quiet
        self._rewrites = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._next_s = 0.0

    def say(self, text: str) -> None:
        """Something new, which is worth a line wherever it is read."""
        self._next_s = 0.0
        self.update(text)

    def update(self, text: str) -> None:
        """The same with other figures: where lines stay, only now and then."""
        if self._quiet:
            return
        text = printable(text)
        if self._rewrites:
            columns = os.get_terminal_size(self._stream.fileno()).columns
            self._write(ERASE + text[: columns - 1])
        elif time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + EVERY_S
            self._write(f"{text}\n")

    def clear(self) -> None:
        """Leave the terminal to whoever comes next."""
        if self._rewrites and not self._quiet:
            self._write(ERASE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def told(reading: Reading, holders: str = "workers") -> str:
    """A reading for people.

    >>> told(Reading(12.3, 1_200_000, 99_800.0, (210.0, 355.0), 190.0, 412_000_000, None))
    ' 12 s: 99,800 events/s, latency 210 ms (max 355), frontier 190 ms behind, 412 MB in workers'
    """
    median, most = reading.latency_ms
    parts = [f"{reading.rate:,.0f} events/s", f"latency {median:,.0f} ms (max {most:,.0f})"]
    if reading.lag_ms is not None:
        parts.append(f"frontier {reading.lag_ms:,.0f} ms behind")
    parts.append(f"{size(reading.memory)} in {holders}")
    if reading.migration is not None:
        parts.append(f"{reading.migration}, {size(reading.migration.bytes_moved)}")
    return f"{reading.second:3.0f} s: {', '.join(parts)}"
