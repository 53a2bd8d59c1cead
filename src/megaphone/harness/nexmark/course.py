"""The course of a run: its epochs, how far its frontier is behind, what its processes hold.

Latency counts from when an event was due, by its number and the rate, until the outputs of its epoch were committed to
the sink. An event is done when every stream of the query has come past its number, whichever kind it is. The events
that come first, all at once, were not due at any time, and do not count.
Neighbours: job.py fills it, progress.py and summary.py tell it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from megaphone.control.controller import Migration
from megaphone.harness.observe import Progress, done_ns
from megaphone.harness.schedule import SECOND_NS, Schedule
from megaphone.harness.timeline import Epoch, Timeline

LATELY_NS = 5 * SECOND_NS
"""A rate is that of the last so many seconds."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known at a moment."""

    second: float
    """Since events have been due."""
    events: int
    """Done."""
    rate: float
    """Events done in a second, lately."""
    latency_ms: tuple[float, float]
    """Of the last epoch: the median, and the most."""
    lag_ms: float | None
    """How long ago the events at the frontier, before which all is done, were due."""
    memory: int
    """Bytes."""
    migration: Migration | None
    """The one under way."""


@dataclass(slots=True)
class Course:
    """Everything that happened since events have been due."""

    schedule: Schedule
    preload: int
    """Events that came before."""
    epochs: list[Epoch] = field(default_factory=list)
    """Those that had events."""
    events: int = 0
    readings: list[Reading] = field(default_factory=list)

    @classmethod
    def empty(cls, rate: float) -> "Course":
        """Of a run that was ended before an event was due."""
        return cls(Schedule(time.time_ns(), rate), 0)

    @classmethod
    def begun(cls, progress: Progress, rate: float, preload: int) -> "Course | None":
        """Begin with the first epoch that has a schedule."""
        # Streams begin some milliseconds apart. By the earliest, no latency is told as less than it was.
        starts = [offset["start_ns"] for offset in offsets(progress) if offset["start_ns"]]
        return cls(Schedule(min(starts), rate), preload) if starts else None

    def take(self, progress: Progress) -> None:
        """Take in an epoch."""
        reached = min(offset["event"] for offset in offsets(progress)) - self.preload
        if reached > self.events:
            self.epochs.append(Epoch(self.events, reached, done_ns(progress)))
            self.events = reached

    def timeline(self) -> Timeline:
        """The latency of every event that is done."""
        timeline = Timeline(self.schedule)
        for epoch in self.epochs:
            timeline.add(epoch)
        return timeline

    def rate(self, now_ns: int) -> float:
        """Events done in a second, lately."""
        since = max(now_ns - LATELY_NS, self.schedule.start_ns)
        done = sum(epoch.last - epoch.first for epoch in self._since(since))
        return done * SECOND_NS / (now_ns - since) if now_ns > since else 0.0

    def latency_ms(self) -> tuple[float, float]:
        """Of the last epoch: the median, and the most. Events are due evenly, so its middle and its first one tell."""
        if not self.epochs:
            return 0.0, 0.0
        last = self.epochs[-1]
        median, most = (last.done_ns - self.schedule.due_ns(at) for at in ((last.first + last.last) / 2, last.first))
        return median / 1e6, most / 1e6

    def _since(self, begin_ns: int) -> Sequence[Epoch]:
        first = len(self.epochs)
        while first and self.epochs[first - 1].done_ns >= begin_ns:
            first -= 1
        return self.epochs[first:]


def offsets(progress: Progress) -> list[dict[str, int]]:
    """How far each stream of events came."""
    found = [source["endOffset"] for source in progress["sources"]]
    return [offset for offset in found if isinstance(offset, dict) and "event" in offset]
