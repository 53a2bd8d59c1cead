"""What a worker knows of whether its bins can travel: whether their states can be turned into bytes.

A bin that has arrived, was kept or was weighed has been turned into bytes. Of others it is found out when asked for.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from megaphone.control.travel import Stuck
from megaphone.durability.ledger import NEVER

LATELY = 64
"""Epochs for which it stands that a bin could travel, if there is no time to find out whether it still can."""

TOLD = 100
"""Bins that cannot travel of which a worker tells: more of them would say no more."""

Bins = npt.NDArray[np.int64]


class Travel:
    """Which bins of one operator on one worker can travel."""

    def __init__(self, bins: int) -> None:
        """Know of none."""
        self._could: Bins = np.full(bins, NEVER)
        self._stuck: dict[int, str] = {}
        self._told: tuple[Stuck, ...] | None = None

    def could(self, bins: Sequence[int], epoch: int) -> None:
        """As they were after an epoch, these bins could travel."""
        self._could[list(bins)] = epoch
        for bin in bins if self._stuck else ():
            self._stuck.pop(bin, None)

    def could_not(self, bin: int, reason: str) -> None:
        """A bin cannot travel as it is."""
        self._could[bin] = NEVER
        self._stuck[bin] = reason

    def forget(self, bin: int) -> None:
        """A bin has left."""
        self._could[bin] = NEVER
        self._stuck.pop(bin, None)

    def obstacle(self, bin: int) -> str | None:
        """Why a bin could not travel when it was last looked at; None if it could, or was not looked at."""
        return self._stuck.get(bin)

    def could_lately(self, bin: int, epoch: int) -> bool:
        """Could a bin travel not long before an epoch?"""
        return bool(self._could[bin] > max(NEVER, epoch - LATELY))

    def unknown(self, bins: Bins, touched: Bins) -> Bins:
        """Those of some bins that have changed since they could travel."""
        return bins[self._could[bins] < touched[bins]]

    def news(self) -> tuple[Stuck, ...] | None:
        """The bins that cannot travel; None if they are those that were told of last."""
        # Bins may leave meanwhile.
        known = dict(self._stuck)
        stuck = tuple(Stuck(bin, known[bin]) for bin in sorted(known)[:TOLD])
        if stuck == self._told:
            return None
        self._told = stuck
        return stuck
