"""Scales: how many bytes each bin of a worker has, as far as that is known for next to nothing.

A bin that arrives or is kept has been turned into bytes anyway. Another is weighed while the worker would be idle, in a
hundredth of its time, and again when it may have doubled.
Neighbours: tenancy.py reports what is new here, control/load.py remembers it.
"""

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from megaphone.bins import BinId
from megaphone.control.load import Tally
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.state import pack
from megaphone.dataflow.travel import reason_of

SHARE = 0.01
"""Of the time, the part that may go into weighing: it brings no record forward."""

MOST_S = 1.0
"""Time that is saved up for a large bin, at most."""

RECORD = 64
"""Bytes that a record may add to a bin: after as many records as fit into it, it may have doubled."""

RECORDS = 1 << 14
"""A bin that is small for the records it has had, or has no state at all, is weighed again after so many at the latest,
and after as many as it has had."""

UNWEIGHED = -1


class Scales:
    """The sizes of one operator's bins on one worker."""

    def __init__(self, bins: int) -> None:
        """Know none."""
        self.weighed: list[int] = []
        """Bins of the last round."""
        self.refused: list[tuple[int, str]] = []
        """Bins of the last round whose state cannot be pickled, and why."""
        self._records: npt.NDArray[np.int64] = np.zeros(bins, np.int64)
        self._weigh_at: npt.NDArray[np.int64] = np.full(bins, UNWEIGHED)
        self._fresh: dict[int, int] = {}
        self._saved_s = 0.0
        self._last_s = time.monotonic()

    def count(self, applied: npt.NDArray[np.int64]) -> None:
        """So many records more were applied to each bin."""
        self._records += applied

    def note(self, sizes: Iterable[tuple[int, int]]) -> None:
        """Some bins were turned into bytes, so many each."""
        for bin, size in sizes:
            self._fresh[bin] = size
            had = int(self._records[bin])
            self._weigh_at[bin] = had + max(size // RECORD, min(had, RECORDS))

    def read(self) -> Tally:
        """What is known since it was last read."""
        fresh, self._fresh = self._fresh, {}
        return Tally.of(list(fresh), list(fresh.values()))

    def weigh(self, host: Host, staying: AbstractContextManager[Any]) -> None:
        """Weigh bins while there is time; nothing may be applied meanwhile, and within `staying` none leaves."""
        now = time.monotonic()
        self._saved_s = min(MOST_S, self._saved_s + SHARE * (now - self._last_s))
        self._last_s = now
        self.weighed, self.refused = [], []
        for bin in self._due(host):
            if self._saved_s <= 0:
                return
            begin = time.monotonic()
            with staying:
                if host.resident[bin]:
                    self._weigh(host, bin)
            self._saved_s -= time.monotonic() - begin

    def _due(self, host: Host) -> Iterable[BinId]:
        """The bins whose size is not known any more, those that were never weighed first."""
        due = np.flatnonzero(host.resident & (self._records > self._weigh_at))
        return [BinId(int(bin)) for bin in due[np.argsort(self._weigh_at[due], kind="stable")]]

    def _weigh(self, host: Host, bin: BinId) -> None:
        self._weigh_at[bin] = 2 * self._records[bin]
        try:
            self.note([(bin, sum(pack(host.copy(bin)).sizes))])
            self.weighed.append(bin)
        except Exception as error:
            # Its size stays unknown.
            self.refused.append((bin, reason_of(error)))
