"""Open auctions of all of a worker's bins, in one table: what Q4 and Q6 keep.

An auction stays at its place until it closes; the place is then free for another. It is found by its id, since ids are
close together, and closed by a notificator, when its time comes. So an epoch costs what comes and what expires, however
many auctions are open.
Neighbours: closing.py.
"""

import numpy as np
import pyarrow as pa

from megaphone.bins import BinArray, BinId
from megaphone.dataflow.joint import Joint
from megaphone.dataflow.notificator import Notificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries.bulk import Array, ByBin, Dense, Int64s, Places
from megaphone.progress import END, Time

OPEN = np.dtype([(name, np.int64) for name in ("id", "opened", "expires", "reserve", "of", "price")])
"""An open auction: `of` is whose average it counts for, `price` what is bid so far."""
NO_BID = -1
NOBODY = -1
"""The id at a place that is free."""
FEW = 4096
"""Places that there are in any case."""
SHARE = 64
"""All are sorted by bin again when one in so many has come since."""

NO_PLACES = ByBin(np.empty(0, np.intp), np.empty(0, np.uint32))


class Auctions(Joint):
    """The open auctions of all bins.

    >>> auctions = Auctions(bins=4)
    >>> opened = np.array([(7, 10, 90, 5, 1, NO_BID), (8, 20, 50, 0, 2, NO_BID)], OPEN)
    >>> auctions.open(opened, np.array([3, 2], np.uint32))
    >>> auctions.bid(np.array([7, 8, 9]), prices=np.array([4, 4, 4]), times=np.array([30, 30, 30]))
    >>> auctions.close(np.full(4, 60))[["id", "price"]].tolist(), auctions.get(3)[["id", "price"]].tolist()
    ([(8, 4)], [(7, -1)])
    """

    def __init__(self, bins: int) -> None:
        """None."""
        super().__init__(bins)
        self._rows = np.empty(0, OPEN)
        self._owners: BinArray = np.empty(0, np.uint32)
        self._free: list[Places] = []
        self._many: Int64s = np.zeros(bins, np.int64)
        """How many each bin has."""
        self._places = Dense()
        """By id, the place of an auction and one more: zero is for those that are not open."""
        self._ends = Notificator()
        """All of them, and some that have left, by when they expire."""
        self._by_bin = self._fresh_by_bin = NO_PLACES
        self._fresh: list[Places] = []
        """What has come since they were sorted by bin."""

    def open(self, rows: Array, owners: BinArray) -> None:
        """Take in auctions, and wake their bins when they expire."""
        if not len(rows):
            return
        at = self._taken(len(rows))
        self._rows[at], self._owners[at] = rows, owners
        self._places.put(rows["id"], at + 1)
        self._ends.push(_ends(rows, owners, at))
        self._fresh.append(at)
        self._fresh_by_bin = NO_PLACES
        np.add.at(self._many, owners, 1)
        np.minimum.at(self.due, owners, rows["expires"])

    def bid(self, auctions: Int64s, prices: Int64s, times: Int64s) -> None:
        """Judge some bids: the highest valid one is an auction's price."""
        at = self._places.of(auctions) - 1
        open = np.flatnonzero(at >= 0)
        at, prices, times = at[open], prices[open], times[open]
        rows = self._rows[at]
        valid = (prices >= rows["reserve"]) & (times >= rows["opened"]) & (times < rows["expires"])
        np.maximum.at(self._rows["price"], at[valid], prices[valid])

    def close(self, bounds: Int64s) -> Array:
        """Take out the auctions that expire before the bound of their bin."""
        passed = self.due < bounds
        if not passed.any():
            return self._rows[:0]
        closed = self._expired(bounds)
        # Those that are left do not expire before the bound; which is the next is only found out when time passes it.
        self.due[passed] = np.where(self._many > 0, bounds, END)[passed]
        return closed

    def get(self, bin: BinId) -> Array | None:
        """A bin's auctions, in memory of their own."""
        return self._rows[self._of(bin)] if self._many[bin] else None

    def _drop(self, bin: BinId) -> None:
        self._leave(self._of(bin))

    def _put(self, bin: BinId, state: Array) -> None:
        self.open(state, np.full(len(state), bin, np.uint32))

    def _expired(self, bounds: Int64s) -> Array:
        due = self._ends.drain(Time(int(bounds.max())))
        if due is None:
            return self._rows[:0]
        at = due.column("place")
        # One that has left with its bin is not there, or is there again and told twice.
        there = (self._rows["id"][at] == due.column("id")) & (self._owners[at] == due.bins)
        passed = due.times < bounds[due.bins]
        self._ends.push(due.where(there & ~passed))
        at = np.unique(at[there & passed])
        closed: Array = self._rows[at]
        self._leave(at)
        return closed

    def _leave(self, at: Places) -> None:
        self._places.put(self._rows["id"][at], 0)
        np.subtract.at(self._many, self._owners[at], 1)
        self._rows["id"][at] = NOBODY
        self._free.append(at)

    def _of(self, bin: BinId) -> Places:
        """Where a bin's auctions are."""
        self._sort()
        # A place may have been free meanwhile, and have been taken by another bin, or by this one again.
        at = np.unique(np.concatenate((self._by_bin.bin(bin), self._fresh_by_bin.bin(bin))))
        own: Places = at[(self._owners[at] == bin) & (self._rows["id"][at] != NOBODY)]
        return own

    def _sort(self) -> None:
        if sum(map(len, self._fresh)) > max(FEW, len(self._rows) // SHARE):
            here = np.flatnonzero(self._rows["id"] != NOBODY)
            self._by_bin, self._fresh = ByBin.of(here, self._owners[here]), []
        elif self._fresh and self._fresh_by_bin is NO_PLACES:
            fresh = np.concatenate(self._fresh)
            self._fresh_by_bin = ByBin.of(fresh, self._owners[fresh])

    def _taken(self, many: int) -> Places:
        """So many free places, which are free no more."""
        found: list[Places] = []
        while many:
            if not self._free:
                self._make_room(many)
            some = self._free.pop()
            found.append(some[:many])
            if len(some) > many:
                self._free.append(some[many:])
            many -= len(found[-1])
        return np.concatenate(found)

    def _make_room(self, many: int) -> None:
        places = len(self._rows)
        more = max(FEW, many, places)
        nobody = np.zeros(more, OPEN)
        nobody["id"] = NOBODY
        self._rows = np.concatenate((self._rows, nobody))
        self._owners = np.concatenate((self._owners, np.zeros(more, np.uint32)))
        self._free.append(np.arange(places, places + more))


def _ends(rows: Array, owners: BinArray, at: Places) -> Records:
    """A record for each auction, at the time when it expires."""
    data = pa.record_batch({"id": np.ascontiguousarray(rows["id"]), "place": at})
    return Records(owners, np.ascontiguousarray(rows["expires"]), data)
