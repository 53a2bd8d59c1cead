"""Hash counts: keys looked up in sorted arrays, those of a worker's bins in a few groups of neighbours.

A key's place is its bin and the key in one number, so a bin's keys lie together: they are cut out of their group when
it leaves, and put in when it comes. An epoch goes through the groups, not through thousands of bins.
Neighbours: counting.py counts with them.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from megaphone.bins import BinId
from megaphone.dataflow.joint import Joint

Counts = npt.NDArray[np.int64]

WIDTH = 42
"""Bits for a key, or for its place within a bin: 4 tera keys. Above it there is room for a bin more than 2^20."""
PLACES = (1 << WIDTH) - 1
GROUPS = 32


class HashCounts:
    """Keys, sorted, and how often each was seen.

    >>> counts = HashCounts()
    >>> counts.add(np.array([3, 5]), np.array([1, 2])).tolist(), counts.add(np.array([4, 5]), np.array([1, 1])).tolist()
    ([1, 2], [1, 3])
    >>> [column.tolist() for column in counts.cut(4, 6)], counts.cut(0, 9)[0].tolist()
    ([[4, 5], [1, 3]], [3])
    """

    __slots__ = ("counts", "keys")

    END = np.iinfo(np.int64).max
    """A key that none has, behind the last: a search then always ends at a key."""

    def __init__(self) -> None:
        """No key was seen."""
        self.keys: Counts = np.array([self.END])
        self.counts: Counts = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return len(self.keys) - 1

    def add(self, found: Counts, times: Counts) -> Counts:
        """Add to the counts of sorted, distinct keys, and return what they are now."""
        at = self.keys.searchsorted(found)
        known = self.keys[at] == found
        if not known.all():
            self._insert(found[~known])
            at = self.keys.searchsorted(found)
        self.counts[at] += times
        return self.counts[at]

    def between(self, first: int, last: int) -> slice:
        """Where keys from `first` to before `last` are."""
        start, stop = self.keys.searchsorted((first, last)).tolist()
        return slice(start, stop)

    def cut(self, first: int, last: int) -> tuple[Counts, Counts]:
        """Take out keys from `first` to before `last`, with their counts."""
        own = self.between(first, last)
        taken = self.keys[own].copy(), self.counts[own].copy()
        self.keys, self.counts = np.delete(self.keys, own), np.delete(self.counts, own)
        return taken

    def _insert(self, new: Counts) -> None:
        at = self.keys.searchsorted(new)
        self.keys = np.insert(self.keys, at, new)
        self.counts = np.insert(self.counts, at, 0)


class HashBins(Joint):
    """The hash counts of all bins."""

    def __init__(self, bins: int) -> None:
        """No key was seen."""
        super().__init__(bins)
        self._per_group = -(-bins // GROUPS)
        self._groups = [HashCounts() for _ in range(-(-bins // self._per_group))]
        self._edges: Counts = np.arange(len(self._groups) + 1) * self._per_group << WIDTH

    def __len__(self) -> int:
        return sum(map(len, self._groups))

    def add(self, places: Counts, times: Counts) -> Counts:
        """Add to the counts at sorted, distinct places, and return what they are now."""
        counts = np.empty(len(places), np.int64)
        ends = places.searchsorted(self._edges).tolist()
        for group, (start, stop) in zip(self._groups, pairwise(ends), strict=True):
            if start < stop:
                counts[start:stop] = group.add(places[start:stop], times[start:stop])
        return counts

    def get(self, bin: BinId) -> tuple[Counts, Counts] | None:
        """A bin's keys and their counts."""
        group = self._groups[bin // self._per_group]
        own = group.between(*_span(bin))
        return (group.keys[own] & PLACES, group.counts[own].copy()) if own.start < own.stop else None

    def _drop(self, bin: BinId) -> None:
        self._groups[bin // self._per_group].cut(*_span(bin))

    def _put(self, bin: BinId, state: tuple[Counts, Counts]) -> None:
        keys, counts = state
        self._groups[bin // self._per_group].add(keys | (int(bin) << WIDTH), counts)


def _span(bin: BinId) -> tuple[int, int]:
    return int(bin) << WIDTH, int(bin) + 1 << WIDTH
