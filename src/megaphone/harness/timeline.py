"""Timeline: latency per interval of the schedule, with the migrations marked.

A sample belongs to the interval in which its record was due, so a stall shows where it began.
Neighbours: latency.py, report.py draws it.  Paper: latency every 250 ms.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from megaphone.harness.latency import Histogram, Summary
from megaphone.harness.schedule import SECOND_NS, Schedule

INTERVAL_NS = 250_000_000


@dataclass(frozen=True, slots=True)
class Epoch:
    """Records first to last of the schedule, done at one moment."""

    first: int
    last: int
    done_ns: int


@dataclass(slots=True)
class Timeline:
    """Histograms of latency by the interval in which records were due."""

    schedule: Schedule
    intervals: dict[int, Histogram] = field(default_factory=dict)

    def add(self, epoch: Epoch) -> None:
        """The latency of every record of an epoch."""
        after = (np.arange(epoch.first, epoch.last) * (SECOND_NS / self.schedule.rate)).astype(np.int64)
        due, numbers = self.schedule.start_ns + after, after // INTERVAL_NS
        edges = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1)).tolist()
        for start, stop in zip(edges, [*edges[1:], len(due)], strict=True):
            histogram = self.intervals.setdefault(int(numbers[start]), Histogram())
            histogram.record(epoch.done_ns - due[start:stop])

    def between(self, begin_ns: int, end_ns: int) -> Histogram:
        """All samples of records due in a span of time."""
        return Histogram().merge(
            histogram
            for number, histogram in self.intervals.items()
            if begin_ns <= self.schedule.start_ns + number * INTERVAL_NS < end_ns
        )

    def rows(self) -> Iterator[Summary]:
        """Seconds since the start, and the percentiles and the maximum in milliseconds, interval by interval."""
        for number, histogram in sorted(self.intervals.items()):
            yield {"second": number * INTERVAL_NS / 1e9, **histogram.summary()}
