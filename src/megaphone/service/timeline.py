"""The timeline: the last ten minutes of a run, epoch by epoch, in few bytes.

How long an epoch took is what Spark says, from its trigger to its commit; idle time between two does not count.
Neighbours: the engine notes every epoch that is over; served under /timeline, drawn by the page.
"""

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from megaphone.control.epochs import EpochPlan, Epochs

SPAN_S = 600.0
"""How far back it goes."""

MOST = 6000
"""Epochs at most: ten a second are more than Spark does here."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """When Spark began an epoch, and how long it took until that was committed."""

    began_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Point:
    """One epoch that is over."""

    epoch: int
    began_s: float
    seconds: float | None
    """None if Spark did not say."""
    records: int
    """Applied, or late, on all operators."""
    lag: int | None
    """How far the output is behind the newest time seen, on the operator that is furthest behind."""
    bins_moved: int


class Timeline:
    """The last epochs of one run."""

    def __init__(self) -> None:
        """Begin with none."""
        self._points: deque[Point] = deque(maxlen=MOST)
        self._open: Point | None = None

    def opened(self, epochs: Epochs, plan: EpochPlan) -> Point | None:
        """An epoch was opened: the one before it, of which only Spark knows how long it took."""
        records = sum(operator.applied + operator.late for operator in epochs.operators.values())
        lags = [lag for operator in epochs.operators.values() if (lag := operator.lag) is not None]
        moved = {move.bin for operator in plan.operators.values() for move in operator.moves}
        before, self._open = self._open, Point(plan.epoch, time.time(), None, records, None, len(moved))
        if before is None:
            return None
        return replace(before, records=records - before.records, lag=max(lags, default=None))

    def add(self, point: Point, trigger: Trigger | None) -> None:
        """An epoch is over, and took as long as Spark says."""
        told = point if trigger is None else replace(point, began_s=trigger.began_s, seconds=trigger.seconds)
        self._points.append(told)
        while self._points and self._points[0].began_s < time.time() - SPAN_S:
            self._points.popleft()

    def since(self, epoch: int) -> dict[str, Any]:
        """The epochs after one, oldest first, as columns; and what time it is here."""
        points = [point for point in list(self._points) if point.epoch > epoch]
        return {
            "now_s": round(time.time(), 3),
            "epoch": [point.epoch for point in points],
            "began_s": [round(point.began_s, 3) for point in points],
            "seconds": [point.seconds for point in points],
            "records": [point.records for point in points],
            "lag": [point.lag for point in points],
            "bins_moved": [point.bins_moved for point in points],
        }
