"""Time and frontier: what can still arrive.

A time is a 64-bit integer. A frontier is the least time that may still arrive; the paper's antichain has at
most one element here, because our times are totally ordered (decisions/0002).
Neighbours: everything.  Paper: progress tracking.
"""

from dataclasses import dataclass
from typing import NewType

Time = NewType("Time", int)

BEGIN = Time(-(2**63))
"""Before every time: the frontier of an input that has not spoken."""

END = Time(2**63 - 1)
"""Past every time. No record may bear it, so that "all times before END" means all times."""


@dataclass(frozen=True, slots=True, order=True)
class Frontier:
    """The times that may still arrive: those at or after `bound`.

    >>> five = Frontier(Time(5))
    >>> five.less_equal(Time(6)), five.less_equal(Time(5)), five.less_equal(Time(4))
    (True, True, False)
    >>> five.less_than(Time(5)), CLOSED.less_equal(Time(2**62))
    (False, False)
    """

    bound: Time

    def less_equal(self, time: Time) -> bool:
        """Is `time` in advance of this frontier: may it still arrive?"""
        return self.bound <= time and self.bound != END

    def less_than(self, time: Time) -> bool:
        """May a time strictly before `time` still arrive?"""
        return self.bound < time

    @property
    def closed(self) -> bool:
        """Can nothing arrive any more?"""
        return self.bound == END

    def __str__(self) -> str:
        return "closed" if self.closed else "open" if self.bound == BEGIN else str(self.bound)


OPEN = Frontier(BEGIN)
CLOSED = Frontier(END)
