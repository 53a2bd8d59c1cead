"""Q5, native: which auction had the most bids in the last minute?

A worker counts the bids of the window that ends next, auction by auction: at the end of a slice its bids are added and
those of the slice that leaves the window are taken away. It tells its hottest auction; one worker tells that of all.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from megaphone.dataflow.native import Waiting
from megaphone.dataflow.records import Records, argsort, runs
from megaphone.engine.spark import operators
from megaphone.nexmark.queries.bulk import Dense, Int64s
from megaphone.nexmark.queries.q5 import OUTPUT, most
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class Count:
    """Bids by auction: in each slice of the window, and in the window."""

    def __init__(self, windows: Windows) -> None:
        """No bids."""
        self.windows = windows
        self.slices: dict[int, list[Int64s]] = {}
        """The auctions that were bid on."""
        self.window = Dense()
        """How often each was, in the window."""
        self.ended: int | None = None
        """The first slice that has not ended."""

    def step(self, bids: Records, *, bound: int) -> dict[str, Any]:
        """Sort bids into slices, and end the slices that are over."""
        slices, auctions = bids.times // self.windows.slice, bids.column("auction")
        if len(bids):
            order = argsort(slices - slices.min())
            slices, auctions = slices[order], auctions[order]
        for start, stop in runs(slices):
            # A copy: a view would keep the whole epoch.
            self.slices.setdefault(int(slices[start]), []).append(auctions[start:stop].copy())
        told = list(self._end(bound))
        ends, hottest, most_bids = np.array(told, np.int64).reshape(-1, 3).T
        return {"window_end": ends, "auction": hottest, "bids": most_bids}

    def _end(self, bound: int) -> Any:
        if not self.slices:
            return
        length, back = self.windows.slice, self.windows.slices
        begin = min(self.slices) if self.ended is None else self.ended
        for slice in range(begin, min(bound // length, max(self.slices) + back)):
            self._count(self.slices.get(slice, ()), 1)
            self._count(self.slices.pop(slice - back, ()), -1)
            self.ended = slice + 1
            at = int(self.window.numbers.argmax())
            if self.window.numbers[at]:
                yield (slice + 1) * length, self.window.first + at, int(self.window.numbers[at])

    def _count(self, bids: "list[Int64s] | tuple[()]", sign: int) -> None:
        for auctions in bids:
            self.window.make_room(int(auctions.min()), int(auctions.max()) + 1)
            counts = np.bincount(auctions - self.window.first)
            self.window.numbers[: len(counts)] += sign * counts


class Hottest:
    """What workers have said of windows that have not ended for all of them."""

    def __init__(self) -> None:
        """Nothing."""
        self.early = Waiting()

    def step(self, said: Records, *, bound: int) -> dict[str, Any]:
        """The most of all, once time has passed a window's end."""
        due = self.early.due(said, bound)
        return most(due.times, due.column("auction"), due.column("bids"))


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    late = windows.lateness
    count = partial(Count, windows)
    bids = [streams["bid"]]
    said = operators.native(
        control, bids, ["auction"], count, OUTPUT, time="date_time", lateness=late, name="q5_counts"
    )
    return operators.native(control, [said], ["window_end"], Hottest, OUTPUT, time="window_end", name="q5")
