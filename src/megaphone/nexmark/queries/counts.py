"""Counts of bids by slice of time and auction, of all of a worker's bins: what Q5 keeps.

What came together stays together, as a chunk sorted by slice and auction: old chunks are dropped whole when no window
needs them any more, and neighbours that are small are merged. A total for each auction tells at once which are worth a
look. Auctions are close together, and in a slice even closer: so they are counted, not sorted.
Neighbours: q5.py.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from megaphone.bins import BinArray, BinId
from megaphone.dataflow.joint import Joint
from megaphone.nexmark.queries.bulk import ByBin, Dense, Int64s, Places, among, changes, tally

PARTS = 4
"""Of a window: a chunk spans no more than one of so many parts of it, unless it came so."""

AUCTION_BITS = 40
"""Of a number that has something and an auction in it: the auction's."""

AUCTIONS = 1 << AUCTION_BITS
"""More than there are."""

NO_SLICE = -AUCTIONS

Rows = tuple[Int64s, Int64s, Int64s]
"""Auction, slice, and how many bids it got in it."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Counts, sorted by slice and auction, and whose bin each auction is in."""

    keys: Int64s
    """Slice and auction, as one number."""
    bids: Int64s
    owners: BinArray

    @classmethod
    def tallied(cls, auctions: Int64s, slices: Int64s, bins: BinArray) -> "Chunk":
        """Count bids.

        >>> chunk = Chunk.tallied(np.array([7, 5, 7]), np.array([1, 1, 1]), np.array([0, 2, 0], np.uint32))
        >>> chunk.auctions.tolist(), chunk.bids.tolist(), chunk.owners.tolist()
        ([5, 7], [1, 2], [2, 0])
        """
        some, which = among(slices)
        lowest, highest = np.full(len(some), AUCTIONS), np.full(len(some), -1)
        np.minimum.at(lowest, which, auctions)
        np.maximum.at(highest, which, auctions)
        # Each slice has places for the auctions that were bid on in it, and those between them, and no others.
        stops = np.maximum(highest - lowest + 1, 0).cumsum()
        shifts = stops - (highest + 1)
        places, bids = tally(auctions + shifts.take(which))
        many = np.diff(places.searchsorted(stops), prepend=0)
        found = places - shifts.repeat(many)
        least = int(auctions.min())
        owners: BinArray = np.empty(int(auctions.max()) - least + 1, bins.dtype)
        owners[auctions - least] = bins
        return cls((some << AUCTION_BITS).repeat(many) | found, bids, owners.take(found - least))

    @classmethod
    def merged(cls, *chunks: "Chunk") -> "Chunk":
        """Several as one."""
        keys = np.concatenate([chunk.keys for chunk in chunks])
        order = keys.argsort(kind="stable")
        starts = changes(keys[order])
        bids = np.concatenate([chunk.bids for chunk in chunks])[order]
        owners = np.concatenate([chunk.owners for chunk in chunks])[order]
        return cls(keys[order][starts], np.add.reduceat(bids, starts), owners[starts])

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def auctions(self) -> Int64s:
        """Of each count."""
        return self.keys & (AUCTIONS - 1)

    @property
    def slices(self) -> Int64s:
        """Of each count."""
        return self.keys >> AUCTION_BITS

    @property
    def span(self) -> tuple[int, int]:
        """The first slice and the last."""
        return int(self.keys[0] >> AUCTION_BITS), int(self.keys[-1] >> AUCTION_BITS)

    @cached_property
    def starts(self) -> Places:
        """Where the counts of each slice begin."""
        return changes(self.slices)

    @cached_property
    def totals(self) -> tuple[int, Int64s]:
        """The first auction, and how many bids it and each after it got in all slices."""
        auctions = self.auctions
        first = int(auctions.min())
        return first, np.bincount(auctions - first, self.bids).astype(np.int64)

    def lives(self, first: int, many: int) -> tuple[Places, Int64s, Int64s]:
        """Which of the auctions from the first on are here, and of each the first slice and the last."""
        at, slices = self.auctions - first, self.slices
        firsts, lasts = np.empty(many, np.int64), np.full(many, NO_SLICE)
        # Slice by slice, there and back: the last to be written stays.
        lasts[at] = slices
        firsts[at[::-1]] = slices[::-1]
        there = np.flatnonzero(lasts != NO_SLICE)
        return there, firsts[there], lasts[there]

    def find(self, auctions: Int64s) -> tuple[Places, Rows]:
        """The counts of some auctions: which of them each is of, and the count; slice by slice."""
        some = np.flatnonzero((auctions >= self._auctions[0]) & (auctions <= self._auctions[1]))
        wanted = (self.slices[self.starts, None] << AUCTION_BITS) | auctions[some]
        at = self.keys.searchsorted(wanted)
        slices, which = np.nonzero(self.keys.take(at, mode="clip") == wanted)
        return some[which], self._rows(at[slices, which])

    @cached_property
    def _auctions(self) -> tuple[int, int]:
        """The first and the last."""
        return int(self.auctions.min()), int(self.auctions.max())

    def without(self, gone: npt.NDArray[np.bool_]) -> "Chunk":
        """Without the counts of some bins."""
        here = np.flatnonzero(~gone[self.owners])
        return Chunk(self.keys[here], self.bids[here], self.owners[here])

    def of_bin(self, bin: BinId) -> Rows:
        """The counts of one bin; the first to ask for one has them sorted for all."""
        return self._rows(self._by_bin.bin(bin))

    @cached_property
    def _by_bin(self) -> ByBin:
        return ByBin.of(np.arange(len(self)), self.owners)

    def _rows(self, at: Places) -> Rows:
        return self.keys[at] & (AUCTIONS - 1), self.keys[at] >> AUCTION_BITS, self.bids[at]


class Counts(Joint):
    """The counts of all bins.

    >>> counts = Counts(bins=4)
    >>> counts.put(Chunk.tallied(np.array([7, 5, 7]), np.array([1, 1, 2]), np.array([3, 2, 3], np.uint32)), 60, -60)
    >>> [column.tolist() for column in counts.get(3)], counts.totals(5, 3).tolist()
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

    def totals(self, first: int, many: int) -> Int64s:
        """How many bids are known of each auction from the first on: as many as in any window, or more."""
        self._tidy()
        return self._totals.of(np.arange(first, first + many))

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
        self._came.append(Chunk((slices << AUCTION_BITS) | auctions, bids, np.full(len(bids), bin, np.uint32)))

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
        first, bids = chunk.totals
        self._totals.add(first, sign * bids)


def _may_merge(old: Chunk, new: Chunk, slices: int) -> bool:
    """Are they of about the same size, and do they span little together?"""
    first, last = min(old.span[0], new.span[0]), max(old.span[1], new.span[1])
    return len(old) < 2 * len(new) and last - first <= slices
