"""Ctrl-C without haste: the first one asks for an end, a second one does not wait for it.

Spark's own way, an exception out of whatever goes on, may come in the middle of a call to the JVM, which then is not
answered any more.  Neighbours: command.py looks whether an end was asked for.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class Interruption:
    """Has an end been asked for, and by which signal?"""

    signal: int = 0

    def listen(self) -> None:
        """Be told of every signal that asks for an end."""
        for number in SIGNALS:
            signal.signal(number, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

    @property
    def exit_code(self) -> int:
        """As a shell has it."""
        return 128 + self.signal if self.signal else 0


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Nobody listens yet: until there is something to end, a signal does what it always does."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield Interruption()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
