"""Counts of bids by auction and slice of time, of all of a worker's bins: what Q5 keeps.

What came together stays together, as a chunk sorted by auction: old chunks are dropped whole when no window needs them
any more, and neighbours that are small are merged. A total for each auction tells at once which are worth a look.
Neighbours: q5.py.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from megaphone.bins import BinArray, BinId
from megaphone.dataflow.joint import Joint
from megaphone.dataflow.records import argsort
from megaphone.nexmark.queries.bulk import Dense, Int64s, Places, changes, tally

PARTS = 4
"""Of a window: a chunk spans no more than one of so many parts of it, unless it came so."""

Rows = tuple[Int64s, Int64s, Int64s]
"""Auction, slice, and how many bids it got in it."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Counts, sorted by auction, and whose bin each auction is in."""

    auctions: Int64s
    slices: Int64s
    bids: Int64s
    owners: BinArray
    span: tuple[int, int]
    """The first slice and the last."""

    @classmethod
    def tallied(cls, auctions: Int64s, slices: Int64s, bins: BinArray) -> "Chunk":
        """Count bids.

        >>> chunk = Chunk.tallied(np.array([7, 5, 7]), np.array([1, 1, 1]), np.array([0, 2, 0], np.uint32))
        >>> chunk.auctions.tolist(), chunk.bids.tolist(), chunk.owners.tolist()
        ([5, 7], [1, 2], [2, 0])
        """
        first, last, least = int(slices.min()), int(slices.max()), int(auctions.min())
        bits = (last - first).bit_length()
        both, many = tally(((auctions - least) << bits) | (slices - first))
        found = both >> bits
        owners: BinArray = np.empty(int(found[-1]) + 1, bins.dtype)
        owners[auctions - least] = bins
        return cls(found + least, (both & ((1 << bits) - 1)) + first, many, owners[found], (first, last))

    @classmethod
    def merged(cls, *chunks: "Chunk") -> "Chunk":
        """Several as one."""
        auctions = np.concatenate([chunk.auctions for chunk in chunks])
        order = auctions.argsort(kind="stable")
        slices = np.concatenate([chunk.slices for chunk in chunks])[order]
        bids = np.concatenate([chunk.bids for chunk in chunks])[order]
        owners = np.concatenate([chunk.owners for chunk in chunks])[order]
        span = min(chunk.span[0] for chunk in chunks), max(chunk.span[1] for chunk in chunks)
        return cls(auctions[order], slices, bids, owners, span)

    def __len__(self) -> int:
        return len(self.auctions)

    @cached_property
    def starts(self) -> Places:
        """Where the counts of each auction begin."""
        return changes(self.auctions)

    def totals(self) -> Int64s:
        """Of each auction its bids in all slices."""
        return np.add.reduceat(self.bids, self.starts)

    def find(self, auctions: Int64s) -> tuple[Places, Rows]:
        """The counts of some auctions: which of them each is of, and the count."""
        starts, stops = self.auctions.searchsorted(auctions), self.auctions.searchsorted(auctions, "right")
        many = stops - starts
        which: Places = np.arange(len(many)).repeat(many)
        return which, self._rows(np.arange(len(which)) + (starts - (many.cumsum() - many))[which])

    def without(self, gone: npt.NDArray[np.bool_]) -> "Chunk":
        """Without the counts of some bins."""
        here = np.flatnonzero(~gone[self.owners])
        return Chunk(*self._rows(here), self.owners[here], self.span)

    def of_bin(self, bin: BinId) -> Rows:
        """The counts of one bin; the first to ask for one has them sorted for all."""
        order, owners = self._by_bin
        start, stop = owners.searchsorted((bin, bin + 1))
        return self._rows(order[start:stop])

    @cached_property
    def _by_bin(self) -> tuple[Places, BinArray]:
        order = argsort(self.owners)
        return order, self.owners[order]

    def _rows(self, at: Places) -> Rows:
        return self.auctions[at], self.slices[at], self.bids[at]


class Counts(Joint):
    """The counts of all bins.

    >>> counts = Counts(bins=4)
    >>> counts.put(Chunk.tallied(np.array([7, 5, 7]), np.array([1, 1, 2]), np.array([3, 2, 3], np.uint32)), 60, -60)
    >>> [column.tolist() for column in counts.get(3)], counts.totals(np.array([5, 6, 7])).tolist()
    ([[7, 7], [1, 2], [1, 1]], [1, 0, 2])
    """

    def __init__(self, bins: int) -> None:
        """No bids."""
        super().__init__(bins)
        self._chunks: list[Chunk] = []
        self._totals = Dense()
        self._came: list[Chunk] = []
        """Of bins that have just come."""
        self._gone: npt.NDArray[np.bool_] = np.zeros(bins, np.bool_)
        """Bins that have left, and whose counts are still here."""

    def totals(self, auctions: Int64s) -> Int64s:
        """How many bids are known of some auctions: as many as in any window, or more."""
        self._tidy()
        return self._totals.of(auctions)

    def find(self, auctions: Int64s) -> list[tuple[Places, Rows]]:
        """The counts of some auctions, chunk by chunk: which of them each is of, and the count."""
        self._tidy()
        return [chunk.find(auctions) for chunk in self._chunks]

    def put(self, chunk: Chunk, slices: int, past: int) -> None:
        """Keep new counts; those of a slice up to `past` are not needed any more. A window has so many slices."""
        self._tidy()
        for old in [old for old in self._chunks if old.span[1] <= past]:
            self._chunks.remove(old)
            self._count(old, -1)
        self._count(chunk, 1)
        self._chunks.append(chunk)
        while len(self._chunks) > 1 and _may_merge(self._chunks[-2], self._chunks[-1], slices // PARTS):
            self._chunks[-2:] = [Chunk.merged(*self._chunks[-2:])]

    def get(self, bin: BinId) -> Rows | None:
        """A bin's counts, in memory of their own."""
        if self._gone[bin]:
            return None
        self._settle()
        parts = [rows for chunk in self._chunks if len((rows := chunk.of_bin(bin))[0])]
        if not parts:
            return None
        auctions, slices, bids = map(np.concatenate, zip(*parts, strict=True))
        return auctions, slices, bids

    def _drop(self, bin: BinId) -> None:
        self._gone[bin] = True

    def _put(self, bin: BinId, state: Rows) -> None:
        if self._gone[bin]:
            self._tidy()
        auctions, slices, bids = state
        owners = np.full(len(auctions), bin, np.uint32)
        self._came.append(Chunk(auctions, slices, bids, owners, (int(slices.min()), int(slices.max()))))

    def _tidy(self) -> None:
        """Forget the bins that have left, and take in those that have come."""
        if self._gone.any():
            before, self._chunks = self._chunks, [chunk.without(self._gone) for chunk in self._chunks]
            self._chunks = [chunk for chunk in self._chunks if len(chunk)]
            self._gone[:] = False
            if before:
                self._totals = Dense()
                for chunk in self._chunks:
                    self._count(chunk, 1)
        self._settle()

    def _settle(self) -> None:
        if self._came:
            chunk, self._came = Chunk.merged(*self._came), []
            self._count(chunk, 1)
            self._chunks.insert(0, chunk)

    def _count(self, chunk: Chunk, sign: int) -> None:
        self._totals.add(chunk.auctions[chunk.starts], sign * chunk.totals())


def _may_merge(old: Chunk, new: Chunk, slices: int) -> bool:
    """Are they of about the same size, and do they span little together?"""
    first, last = min(old.span[0], new.span[0]), max(old.span[1], new.span[1])
    return len(old) < 2 * len(new) and last - first <= slices
