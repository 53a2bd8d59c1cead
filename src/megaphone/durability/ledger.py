"""The ledger: for every bin on a worker, what is safe of it and what only the log has.

A bin's line travels with it when it moves, so that moving writes nothing.
Neighbours: snapshots.py brings bins up to date, the engine reports from which epoch on the log is needed.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NEVER = -1

Lines = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Line:
    """One bin's line."""

    since: int = NEVER
    """After this epoch it was as in its snapshot: later ones are needed to redo it."""
    touched: int = NEVER
    """The last epoch that changed it."""


class Ledger:
    """A line for every bin; bins that are elsewhere have blank ones."""

    def __init__(self, bins: int) -> None:
        """Start with blank bins."""
        self.since: Lines = np.full(bins, NEVER)
        self.touched: Lines = np.full(bins, NEVER)

    @property
    def dirty(self) -> npt.NDArray[np.bool_]:
        """The bins that have changed since their snapshot."""
        return self.touched > self.since

    def touch(self, bins: npt.NDArray[np.bool_], epoch: int) -> None:
        """An epoch has changed some bins, or brought records for them."""
        first = bins & ~self.dirty
        self.since[first] = epoch - 1
        self.touched[bins] = epoch

    def kept(self, bin: int, epoch: int) -> None:
        """There is a snapshot of a bin as it was after an epoch."""
        self.since[bin] = max(self.since[bin], epoch)

    def needed_from(self, epoch: int) -> int:
        """The first epoch that is needed to redo any of the bins, all epochs up to `epoch` being done."""
        return int(self.since[self.dirty].min(initial=epoch)) + 1

    def take(self, bin: int) -> Line:
        """A bin leaves, and its line with it."""
        line = Line(int(self.since[bin]), int(self.touched[bin]))
        self.since[bin] = self.touched[bin] = NEVER
        return line

    def put(self, bin: int, line: Line) -> None:
        """A bin arrives; records may have come before it."""
        if self.touched[bin] > self.since[bin] and line.touched > line.since:
            self.since[bin] = min(self.since[bin], line.since)
        elif self.touched[bin] <= self.since[bin]:
            self.since[bin] = line.since
        self.touched[bin] = max(self.touched[bin], line.touched)
