"""Key counts: dense keys, a bin's state a plain array; small ones of neighbouring bins stand together in a block.

An epoch goes through the blocks, not through thousands of bins. A bin that is a block by itself is an array by itself:
it comes and goes without a copy.
Neighbours: counting.py counts with them, hashes.py is for keys that are not dense.
"""

from itertools import pairwise

import numpy as np

from megaphone.bins import BinId
from megaphone.dataflow.joint import Joint
from megaphone.harness.hashes import PLACES, WIDTH, Counts

BLOCK_BYTES = 2 << 20
"""About what a block has at most: it is copied when a bin leaves or comes, and each costs an epoch microseconds."""
SPARE = 8
"""A block has room for one row more for so many, and gets rid of as many that are free."""
NOWHERE = -1


class Block:
    """The counts of some neighbouring bins: a row for each that is here."""

    def __init__(self, bins: int, length: int) -> None:
        """None is here yet; as soon as one is, each of its keys counts as seen once."""
        self._row: Counts = np.full(bins, NOWHERE)
        self._rows: Counts = np.empty((0, length), np.int64)
        self._free: list[int] = []

    def add(self, bins: Counts, at: Counts, times: Counts) -> Counts:
        """Add to the counts at distinct places, and return what they are now."""
        rows = self._row[bins]
        if rows.min() == NOWHERE:
            self._begin(np.unique(bins[rows == NOWHERE]))
            rows = self._row[bins]
        places, flat = rows * self._rows.shape[1] + at, self._rows.reshape(-1)
        counts: Counts = flat[places] + times
        flat[places] = counts
        return counts

    def get(self, bin: int) -> Counts | None:
        """A bin's counts; of one that is a block by itself, the very array."""
        row = int(self._row[bin])
        if row == NOWHERE:
            return None
        counts: Counts = self._rows[row]
        return counts if len(self._row) == 1 else counts.copy()

    def put(self, bin: int, counts: Counts) -> None:
        """A bin has come."""
        if len(self._row) == 1:
            self._rows, self._row[0] = counts.reshape(1, -1), 0
        else:
            (row,) = self._take(1)
            self._row[bin], self._rows[row] = row, counts

    def drop(self, bin: int) -> None:
        """A bin has left."""
        self._free.append(int(self._row[bin]))
        self._row[bin] = NOWHERE
        if len(self._free) * SPARE >= len(self._rows):
            here = np.flatnonzero(self._row != NOWHERE)
            self._rows, self._free = self._rows[self._row[here]], []
            self._row[here] = np.arange(len(here))

    def _begin(self, bins: Counts) -> None:
        self._row[bins] = rows = self._take(len(bins))
        self._rows[rows] = 1

    def _take(self, many: int) -> list[int]:
        """Rows that nobody has."""
        short, there = many - len(self._free), len(self._rows)
        if short > 0:
            more = max(short, min(there // SPARE, len(self._row) - there))
            rows = np.empty((there + more, self._rows.shape[1]), np.int64)
            rows[:there] = self._rows
            self._rows = rows
            self._free += range(there, there + more)
        taken, self._free = self._free[:many], self._free[many:]
        return taken


class KeyBins(Joint):
    """The key counts of all bins."""

    def __init__(self, length: int, bins: int, block_bytes: int = BLOCK_BYTES) -> None:
        """So many keys in a bin; no bin is here yet."""
        super().__init__(bins)
        self._each = min(bins, max(1, block_bytes // (8 * length)))
        self._blocks = [Block(self._each, length) for _ in range(-(-bins // self._each))]
        self._edges: Counts = np.arange(len(self._blocks) + 1) * self._each << WIDTH

    def add(self, places: Counts, times: Counts) -> Counts:
        """Add to the counts at sorted, distinct places, of a bin and in it, and return what they are now."""
        counts: Counts = np.empty(len(places), np.int64)
        bins, at = (places >> WIDTH) % self._each, places & PLACES
        ends = places.searchsorted(self._edges).tolist()
        for block, (start, stop) in zip(self._blocks, pairwise(ends), strict=True):
            if start < stop:
                counts[start:stop] = block.add(bins[start:stop], at[start:stop], times[start:stop])
        return counts

    def get(self, bin: BinId) -> Counts | None:
        """A bin's counts."""
        return self._blocks[bin // self._each].get(bin % self._each)

    def _drop(self, bin: BinId) -> None:
        self._blocks[bin // self._each].drop(bin % self._each)

    def _put(self, bin: BinId, state: Counts) -> None:
        self._blocks[bin // self._each].put(bin % self._each, state)
