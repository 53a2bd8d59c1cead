"""The stopwatch: how long each bin of a host takes.

A fold that goes bin by bin says when it is through with one. All other time, of one that takes all bins at once too,
belongs to the bins by their records.
Neighbours: hosting.py starts and stops it, folds.py takes the laps.
"""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from megaphone.bins import BinId

Nanoseconds = npt.NDArray[np.int64]


class Stopwatch:
    """Nanoseconds for each bin, until somebody wipes them away.

    >>> clock = iter([0, 100, 110, 190, 300])
    >>> watch = Stopwatch(3, lambda: next(clock))
    >>> watch.start(); watch.begin_laps(); watch.lap(BinId(0)); watch.lap(BinId(2))
    >>> watch.stop(records=np.array([1, 0, 3]))
    >>> watch.spent.tolist()
    [62, 0, 237]
    """

    def __init__(self, bins: int, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """Begin with no time spent."""
        self.spent: Nanoseconds = np.zeros(bins, np.int64)
        self._laps: Nanoseconds = np.zeros(bins, np.int64)
        self._clock = clock
        self._began = self._lap_began = 0

    def start(self) -> None:
        """From now on time counts."""
        self._laps[:] = 0
        self._began = self._clock()

    def begin_laps(self) -> None:
        """A fold is about to go bin by bin."""
        self._lap_began = self._clock()

    def lap(self, bin: BinId) -> None:
        """It is through with a bin, and goes on with the next."""
        now = self._clock()
        self._laps[bin] += now - self._lap_began
        self._lap_began = now

    def stop(self, records: npt.NDArray[np.int64]) -> None:
        """That was it, with so many records of each bin."""
        rest = self._clock() - self._began - int(self._laps.sum())
        total = int(records.sum())
        if total:
            self.spent += self._laps + (records * (rest / total)).astype(np.int64)
