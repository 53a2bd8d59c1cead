"""Observing a query: which records each epoch had, and when it was done.

From Spark's own progress events: an epoch is done when its output has been committed to the sink.
Neighbours: source.py counts the records, timeline.py takes the epochs.
"""

import json
import time
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from megaphone.harness.schedule import Schedule
from megaphone.harness.timeline import Epoch, Timeline

Progress = dict[str, Any]
"""What Spark says of an epoch."""


class Observer:
    """Turns the progress of a query over generated keys, or events, into a timeline."""

    def __init__(self, query: StreamingQuery, rate: float, preload: int, unit: str = "record") -> None:
        """Begin before the first epoch; the timeline begins with the first record after the preload.

        `unit` is what offsets of the source count.
        """
        self._query = query
        self._rate = rate
        self._preload = preload
        self._unit = unit
        self._seen = -1
        self.timeline: Timeline | None = None
        self.last_epoch_ms = 0.0
        self.done = 0
        """Records of the schedule, up to the last that is done."""
        self.skipped = 0
        """Records that no epoch had: a query that is rescaled offline may leave some out."""

    def follow(self, query: StreamingQuery) -> None:
        """Go on with the query that was started in the place of the last."""
        self.look()
        self._query = query

    def look(self) -> None:
        """Take in the epochs that ended since the last look."""
        for progress in progress_after(self._query, self._seen):
            self._seen = progress["batchId"]
            self._take(progress)

    def _take(self, raw: Progress) -> None:
        # A query may read several kinds of events, all in step.
        source = next(source for source in raw["sources"] if self._unit in (source["endOffset"] or {}))
        start, end = (source["startOffset"] or {}).get(self._unit, 0), source["endOffset"]
        last = end[self._unit]
        if not end["start_ns"] or last <= max(self._preload, start):
            return
        if self.timeline is None:
            self.timeline = Timeline(Schedule(end["start_ns"], self._rate))
        self.last_epoch_ms = raw["durationMs"]["triggerExecution"]
        first = max(0, start - self._preload)
        self.skipped += first - self.done
        self.done = last - self._preload
        self.timeline.add(Epoch(first, self.done, done_ns(raw)))

    def close(self, end_s: float) -> int:
        """Count as done now what was due before a moment and is not done: it is at least that late. How many?"""
        if self.timeline is None:
            return 0
        due = self.timeline.schedule.due_by(int(end_s * 1e9))
        late, first = max(0, due - self.done), self.done
        if late:
            self.done = due
            self.timeline.add(Epoch(first, due, time.time_ns()))
        return late


def progress_after(query: StreamingQuery, epoch: int) -> list[Progress]:
    """What Spark says of the epochs that ended after an epoch, the oldest first."""
    found: list[Progress] = []
    # From the last one back: Spark keeps a hundred, and to ask for each of them at every look would cost.
    recent = query._jsq.recentProgress()
    for place in reversed(range(len(recent))):
        progress = json.loads(recent[place].json())
        if progress["batchId"] <= epoch:
            break
        # Without it Spark only says that it waits for data.
        if "addBatch" in progress["durationMs"]:
            found.append(progress)
    return found[::-1]


def done_ns(progress: Progress) -> int:
    """When an epoch's output was committed to the sink, by the wall clock."""
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    took_ms = progress["durationMs"]["triggerExecution"] - progress["durationMs"].get("commitOffsets", 0)
    return int((began + took_ms / 1000) * 1e9)
