"""Load: what each bin of an operator gets to do, how long that takes, and how many bytes it holds, by workers' reports.

Rates fade: what happened a half-life ago counts half. Sizes are the last that were measured, when a bin was kept,
moved or weighed; of a bin that was not, the mean of the others is assumed, and said to be.
Neighbours: epochs.py passes the reports on, targets.py and forecast.py go by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from megaphone.bins import WorkerId

HALF_LIFE_S = 15.0
"""Long enough that a burst of a few epochs does not look like a change, short enough to notice one within a minute."""

UNKNOWN = -1

Numbers = npt.NDArray[np.int64]
Rates = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tally:
    """A number for some of the bins, in few bytes: those that were touched, not all there are.

    >>> bins, numbers = Tally.of([7, 300], [1, 2]).read()
    >>> bins.tolist(), numbers.tolist()
    ([7, 300], [1, 2])
    """

    bins: bytes = b""
    numbers: bytes = b""

    @classmethod
    def of(cls, bins: Sequence[int] | npt.NDArray[Any], numbers: Sequence[int] | npt.NDArray[Any]) -> "Tally":
        """Numbers for bins."""
        return cls(np.asarray(bins, np.uint32).tobytes(), np.asarray(numbers, np.int64).tobytes())

    @classmethod
    def of_all(cls, numbers: Numbers) -> "Tally":
        """Those of a number for every bin that are not 0."""
        bins = np.flatnonzero(numbers)
        return cls.of(bins, numbers[bins])

    def read(self) -> tuple[npt.NDArray[np.uint32], Numbers]:
        """Bins, each once, and their numbers."""
        return np.frombuffer(self.bins, np.uint32), np.frombuffer(self.numbers, np.int64)


NOTHING = Tally()


@dataclass(frozen=True, slots=True)
class Done:
    """What a worker has done since the query was started: records applied, and the time that went into epochs."""

    records: int = 0
    busy_ns: int = 0

    def plus(self, records: int, busy_ns: int) -> "Done":
        """And so much more."""
        return Done(self.records + records, self.busy_ns + busy_ns)


class Load:
    """One operator's load, bin by bin and worker by worker."""

    def __init__(self, bins: int) -> None:
        """Know nothing yet."""
        self.bytes: Numbers = np.full(bins, UNKNOWN)
        """Of each bin's state and pending records, when last measured."""
        self.applied: Numbers = np.zeros(bins, np.int64)
        """Records of each bin since the query was started."""
        self._fresh: Numbers = np.zeros(bins, np.int64)
        self._records: Rates = np.zeros(bins)
        self._fresh_spent: Numbers = np.zeros(bins, np.int64)
        self._spent: Rates = np.zeros(bins)
        self.done: dict[WorkerId, Done] = {}
        self._fresh_busy: dict[WorkerId, int] = {}
        self._busy: dict[WorkerId, float] = {}
        self._seconds = 0.0
        self._last_s: float | None = None
        self._came = 0.0
        self._came_s = 0.0

    def hear(self, worker: WorkerId, applied: Tally, sizes: Tally, busy_ns: int, spent: Tally = NOTHING) -> None:
        """What a worker did in an epoch, how long it took for each bin, and what it has learnt of its bins' sizes."""
        bins, numbers = applied.read()
        self._fresh[bins] += numbers
        self.applied[bins] += numbers
        self.done[worker] = self.done.get(worker, Done()).plus(int(numbers.sum()), busy_ns)
        bins, numbers = spent.read()
        self._fresh_spent[bins] += numbers
        bins, numbers = sizes.read()
        self.bytes[bins] = numbers
        self._fresh_busy[worker] = self._fresh_busy.get(worker, 0) + busy_ns

    def pass_time(self, seconds: float) -> None:
        """An epoch is over: what was heard of it happened in so many seconds."""
        kept = 0.5 ** (seconds / HALF_LIFE_S)
        self._came, self._came_s = self._came * kept, self._came_s * kept
        if self._last_s is not None:
            # What an epoch has to do came while the one before it was on.
            self._came, self._came_s = self._came + self._fresh.sum(), self._came_s + self._last_s
        self._last_s = seconds
        self._seconds = self._seconds * kept + seconds
        self._records = self._records * kept + self._fresh
        self._spent = self._spent * kept + self._fresh_spent / 1e9
        self._fresh[:] = self._fresh_spent[:] = 0
        for worker in self._busy.keys() | self._fresh_busy.keys():
            self._busy[worker] = self._busy.get(worker, 0.0) * kept + self._fresh_busy.get(worker, 0) / 1e9
        self._fresh_busy.clear()

    @property
    def rates(self) -> Rates:
        """Records a second for each bin."""
        return self._records / self._seconds if self._seconds else np.zeros(len(self._records))

    @property
    def work(self) -> Rates:
        """Seconds of a worker's time that each bin takes in a second."""
        return self._spent / self._seconds if self._seconds else np.zeros(len(self._spent))

    @property
    def arrived(self) -> float:
        """Records a second that come in: more than are applied while the operator falls behind."""
        return float(self._came / self._came_s) if self._came_s else float(self.rates.sum())

    def faded(self, seconds: float) -> float:
        """What is left of a rate after so long without an epoch, as a part of it."""
        kept = self._seconds * 0.5 ** (seconds / HALF_LIFE_S)
        return kept / (kept + seconds) if kept else 0.0

    def busy(self, worker: WorkerId) -> float:
        """The part of its time that a worker spends on this operator, from 0 to 1."""
        return min(1.0, self._busy.get(worker, 0.0) / self._seconds) if self._seconds else 0.0

    @property
    def sizes(self) -> Numbers:
        """Bytes of each bin; where nobody has measured, the mean of those measured, or 0 if none was."""
        known = self.bytes[self.bytes != UNKNOWN]
        mean = int(known.mean()) if len(known) else 0
        return np.where(self.bytes == UNKNOWN, mean, self.bytes)
