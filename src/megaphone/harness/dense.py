"""Key counts: dense keys, a bin's state a plain array; small ones are rows of one table that has room for every bin.

So an epoch is one addition, however many bins there are. The room is virtual: a row that was never written takes no
memory, and that of a bin that has left is given back. A bin of megabytes is an array by itself: it comes and goes
without a copy.
Neighbours: counting.py counts with them, hashes.py is for keys that are not dense.
"""

import mmap
from typing import Protocol

import numpy as np

from megaphone.bins import BinId
from megaphone.dataflow.joint import Joint
from megaphone.dataflow.records import runs
from megaphone.harness.hashes import PLACES, WIDTH, Counts

LARGE_BYTES = 1 << 20
"""From so many on a bin is an array by itself."""
PAGE = mmap.PAGESIZE


class Rows(Protocol):
    """The counts of the bins that are here; when a bin's first record comes, each of its keys counts as seen once."""

    def add(self, bins: Counts, at: Counts, times: Counts) -> Counts:
        """Add to the counts at distinct places, sorted by bin, and return what they are now."""

    def get(self, bin: int) -> Counts | None:
        """A bin's counts, in memory of their own."""

    def put(self, bin: int, counts: Counts) -> None:
        """A bin has come."""

    def drop(self, bin: int) -> None:
        """A bin has left."""


class Table:
    """Small bins, each a row of its own pages."""

    def __init__(self, length: int, bins: int) -> None:
        """None is here yet."""
        self._here = np.zeros(bins, np.bool_)
        # Rows that are smaller than a page share some, and give none back.
        self._row_bytes = 8 * length if 8 * length < PAGE else -(-8 * length // PAGE) * PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, bins * self._row_bytes, flags=flags)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            # A huge page would be there as soon as one of the bins in it is.
            self._memory.madvise(mmap.MADV_NOHUGEPAGE)
        self._counts = np.frombuffer(self._memory, np.int64)
        self._rows = self._counts.reshape(bins, -1)[:, :length]

    def add(self, bins: Counts, at: Counts, times: Counts) -> Counts:
        """In one go."""
        if not self._here[bins].all():
            new = np.unique(bins[~self._here[bins]])
            self._rows[new], self._here[new] = 1, True
        places = bins * (self._row_bytes // 8) + at
        counts: Counts = self._counts[places] + times
        self._counts[places] = counts
        return counts

    def get(self, bin: int) -> Counts | None:
        """A copy of its row."""
        return self._rows[bin].copy() if self._here[bin] else None

    def put(self, bin: int, counts: Counts) -> None:
        """Into its row."""
        self._rows[bin], self._here[bin] = counts, True

    def drop(self, bin: int) -> None:
        """Its pages are given back."""
        self._here[bin] = False
        if self._row_bytes >= PAGE:
            self._memory.madvise(mmap.MADV_DONTNEED, bin * self._row_bytes, self._row_bytes)


class Arrays:
    """Large bins, each an array."""

    def __init__(self, length: int) -> None:
        """None is here yet."""
        self._length = length
        self._counts: dict[int, Counts] = {}

    def add(self, bins: Counts, at: Counts, times: Counts) -> Counts:
        """Bin by bin."""
        counts: Counts = np.empty(len(at), np.int64)
        for start, stop in runs(bins):
            bin, places = int(bins[start]), at[start:stop]
            if bin not in self._counts:
                self._counts[bin] = np.ones(self._length, np.int64)
            counts[start:stop] = now = self._counts[bin][places] + times[start:stop]
            self._counts[bin][places] = now
        return counts

    def get(self, bin: int) -> Counts | None:
        """The very array."""
        return self._counts.get(bin)

    def put(self, bin: int, counts: Counts) -> None:
        """As it is."""
        self._counts[bin] = counts

    def drop(self, bin: int) -> None:
        """Who has it keeps it."""
        del self._counts[bin]


class KeyBins(Joint):
    """The key counts of all bins."""

    def __init__(self, length: int, bins: int, large_bytes: int = LARGE_BYTES) -> None:
        """So many keys in a bin; no bin is here yet."""
        super().__init__(bins)
        self._rows: Rows = Arrays(length) if 8 * length >= large_bytes else Table(length, bins)

    def add(self, places: Counts, times: Counts) -> Counts:
        """Add to the counts at sorted, distinct places, of a bin and in it, and return what they are now."""
        return self._rows.add(places >> WIDTH, places & PLACES, times)

    def get(self, bin: BinId) -> Counts | None:
        """A bin's counts."""
        return self._rows.get(bin)

    def _drop(self, bin: BinId) -> None:
        self._rows.drop(bin)

    def _put(self, bin: BinId, state: Counts) -> None:
        self._rows.put(bin, state)
