"""Balance: the same load on every worker, by moving as little state as will do.

Greedy: from the busiest worker to the idlest, the bin that brings the most for its bytes. Nothing moves as long as the
busiest is within the tolerance; once something must, it is moved until the busiest is within half of it. So a load
that merely wavers brings no bin back.
Neighbours: load.py has the weights, targets.py does the same for numbers of bins.
"""

import numpy as np
import numpy.typing as npt

from megaphone.configuration import Assignment
from megaphone.control.targets import Weights

TOLERANCE = 0.2
"""How much more than its share the busiest worker may have: an epoch is as long as its slowest worker."""

Loads = npt.NDArray[np.float64]


def even(current: Assignment, load: Weights, sizes: Weights, workers: int, tolerance: float = TOLERANCE) -> Assignment:
    """The load even over workers 0 to workers-1; workers beyond them end empty.

    >>> load, sizes = np.array([8.0, 1.0, 1.0, 7.0]), np.array([10, 10, 10, 10])
    >>> even(Assignment([0, 0, 1, 0]), load, sizes, workers=2)
    Assignment([1, 0, 1, 0])
    >>> even(Assignment([1, 0, 1, 0]), load, sizes, workers=2)
    Assignment([1, 0, 1, 0])
    """
    scale = _Scale(current, load, sizes, workers)
    scale.empty_strangers()
    if scale.busiest > 1 + tolerance:
        scale.level(1 + tolerance / 2)
        scale.undo_the_needless(1 + tolerance / 2)
    return Assignment(scale.owners)


def imbalance(current: Assignment, load: Weights, workers: int) -> float:
    """The busiest worker's load over the mean; 1 is even."""
    return _Scale(current, load, np.zeros(len(current)), workers).busiest


class _Scale:
    """Bins on workers, while they are being levelled."""

    def __init__(self, current: Assignment, load: Weights, sizes: Weights, workers: int) -> None:
        self.owners = current.owners.copy()
        self._before = current.owners
        self._load = np.asarray(load, np.float64)
        self._bytes = np.asarray(sizes, np.float64) + 1.0
        self._workers = workers
        ours = self.owners < workers
        self._loads: Loads = np.zeros(workers)
        np.add.at(self._loads, self.owners[ours], self._load[ours])
        self._mean = float(self._load.sum()) / workers

    @property
    def busiest(self) -> float:
        """The busiest worker's load over the mean."""
        return float(self._loads.max()) / self._mean if self._mean > 0 else 1.0

    def empty_strangers(self) -> None:
        """Bins of workers that are to go, the heaviest first, each to the idlest."""
        bins = np.flatnonzero(self.owners >= self._workers)
        for bin in bins[np.argsort(-self._load[bins], kind="stable")]:
            self._loads[target := int(self._loads.argmin())] += self._load[bin]
            self.owners[bin] = target

    def level(self, enough: float) -> None:
        """Move bins until the busiest is within `enough` of the mean, or no move from it helps.

        Every move makes the sum of the squares of the loads smaller, so this ends.
        """
        while self.busiest > enough:
            bin = self._best(int(self._loads.argmax()), int(self._loads.argmin()))
            if bin is None:
                return
            self._put(bin, int(self._loads.argmin()))

    def undo_the_needless(self, enough: float) -> None:
        """Take back the moves that turn out not to be needed, the largest first; only of a result that is level."""
        if self.busiest > enough:
            return
        # A bin that goes back makes room where it was: another one may fit there now.
        while [bin for bin in self._moved() if self._goes_back(bin, enough * self._mean)]:
            continue

    def _moved(self) -> list[int]:
        moved = np.flatnonzero((self.owners != self._before) & (self._before < self._workers))
        bins: list[int] = moved[np.argsort(-self._bytes[moved], kind="stable")].tolist()
        return bins

    def _goes_back(self, bin: int, limit: float) -> bool:
        """Put a bin back where it was, if that worker's load stays within a limit."""
        before = int(self._before[bin])
        fits = bool(self._loads[before] + self._load[bin] <= limit)
        if fits:
            self._put(bin, before)
        return fits

    def _best(self, busiest: int, idlest: int) -> int | None:
        """The bin that takes most off the busiest for its bytes, and leaves the idlest below where the busiest was."""
        bins = np.flatnonzero(self.owners == busiest)
        load = self._load[bins]
        # Not by a hair: rounding could have a bin go to and fro for ever.
        helping = (load > 1e-9 * self._mean) & (load < (1 - 1e-9) * (self._loads[busiest] - self._loads[idlest]))
        bins, load = bins[helping], load[helping]
        if not len(bins):
            return None
        need = min(self._loads[busiest] - self._mean, self._mean - self._loads[idlest])
        price = self._bytes[bins] / np.minimum(load, need)
        return int(bins[np.lexsort((bins, np.abs(load - need), price))[0]])

    def _put(self, bin: int, worker: int) -> None:
        self._loads[self.owners[bin]] -= self._load[bin]
        self._loads[worker] += self._load[bin]
        self.owners[bin] = worker
