"""Closed auctions, of which Q4 and Q6 both take averages: what did each auction fetch that has ended?

A bid is valid if it is as high as the reserve and comes while the auction is open. The highest wins; which one of
equals does not matter, since only the price goes on. An auction without a valid bid says nothing.
Neighbours: q4.py, q6.py.  Paper: the evaluation, NEXMark, Q4.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import megaphone
from megaphone.bins import BinArray, BinId
from megaphone.dataflow.folds import VectorNotificator
from megaphone.dataflow.joint import Joint
from megaphone.dataflow.records import Records, argsort
from megaphone.nexmark.queries.bulk import Array, Int64s, Places, locate, micros, table
from megaphone.nexmark.queries.query import Streams, Windows
from megaphone.progress import END

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLOSED = """
    SELECT auction.id AS auction, category, seller, expires, max(price) AS price
    FROM auction JOIN bid ON bid.auction = auction.id
    WHERE price >= reserve AND bid.date_time >= auction.date_time AND bid.date_time < expires
    GROUP BY ALL
"""
"""What is right, as a subquery."""

DEPARTS = """\
An open auction keeps its highest valid bid, not all of them. A bid on an auction that is not open counts for nothing
and is not kept: when all events before a time are in, an auction that is still unknown begins later than its bids. The
authors keep such bids for ever. A bin is woken when its next auction expires; the authors post-date them all."""

INPUTS = {
    "bid": ("auction", "price", "date_time"),
    "auction": ("id", "date_time", "expires", "reserve"),
}

OPEN = np.dtype([(name, np.int64) for name in ("id", "opened", "expires", "reserve", "of", "price")])
"""An open auction: `of` is whose average it counts for, `price` what is bid so far."""
NO_BID = -1


class Auctions(Joint):
    """The open auctions of all bins."""

    def __init__(self, bins: int) -> None:
        """None."""
        super().__init__(bins)
        self._rows = np.empty(0, OPEN)
        self._owners: BinArray = np.empty(0, np.uint32)
        self._came: list[tuple[BinId, Array]] = []
        self._gone: npt.NDArray[np.bool_] = np.zeros(bins, np.bool_)
        """Bins that have left, and whose rows are still here."""
        self._ends: Places | None = None
        """If the rows are sorted by bin: where each bin's end."""

    def rows(self) -> tuple[Array, BinArray]:
        """All of them, and whose they are."""
        if self._came or self._gone.any():
            here = ~self._gone[self._owners]
            states = [state for _, state in self._came]
            owners = np.repeat(np.array([bin for bin, _ in self._came], np.uint32), list(map(len, states)))
            self.keep(np.concatenate((self._rows[here], *states)), np.concatenate((self._owners[here], owners)))
        return self._rows, self._owners

    def keep(self, rows: Array, owners: BinArray) -> None:
        """Have these and no others; a bin is woken when its next auction expires."""
        self._rows, self._owners, self._ends = rows, owners, None
        self._gone[:] = False
        self._came = []
        self.due[:] = END
        np.minimum.at(self.due, owners, rows["expires"])

    def get(self, bin: BinId) -> Array | None:
        """A bin's auctions."""
        if self._came:
            self.rows()
        own = self._of(bin)
        return None if self._gone[bin] or own.start == own.stop else self._rows[own].copy()

    def _of(self, bin: BinId) -> slice:
        if self._ends is None:
            order = argsort(self._owners)
            self._rows, self._owners = self._rows[order], self._owners[order]
            self._ends = np.bincount(self._owners, minlength=len(self.due)).cumsum()
        return slice(int(self._ends[bin - 1]) if bin else 0, int(self._ends[bin]))

    def _drop(self, bin: BinId) -> None:
        self._gone[bin] = True

    def _put(self, bin: BinId, state: Array) -> None:
        if self._gone[bin]:
            self.rows()
        self._came.append((bin, state))
        self.due[bin] = state["expires"].min()


def close(
    column: str,
    bids: Records,
    auctions: Records,
    states: Auctions,
    _bids: VectorNotificator,
    notificator: VectorNotificator,
) -> dict[str, Any]:
    """Open the new auctions, judge the bids, close what has expired."""
    known, known_owners = states.rows()
    rows = np.concatenate((known, opened(auctions, column)))
    owners = np.concatenate((known_owners, auctions.bins))
    rows["price"] = price = highest_bids(rows, bids)
    expired = rows["expires"] < notificator.bounds[owners]
    states.keep(rows[~expired], owners[~expired])
    won = rows[expired & (price != NO_BID)]
    return {"auction": won["id"], column: won["of"], "price": won["price"], "expires": won["expires"]}


def opened(auctions: Records, column: str) -> Array:
    return table(
        id=auctions.column("id"),
        opened=auctions.times,
        expires=micros(auctions, "expires"),
        reserve=auctions.column("reserve"),
        of=auctions.column(column),
        price=np.full(len(auctions), NO_BID),
    )


def highest_bids(rows: Array, bids: Records) -> Int64s:
    """Of each auction the highest valid bid so far."""
    auctions = {name: np.ascontiguousarray(rows[name]) for name in OPEN.names or ()}
    at: Places = locate(auctions["id"], bids.column("auction"))
    open = np.flatnonzero(at >= 0)
    at, prices, times = at[open], bids.column("price")[open], bids.times[open]
    valid = prices >= auctions["reserve"][at]
    valid &= (times >= auctions["opened"][at]) & (times < auctions["expires"][at])
    price: Int64s = auctions["price"]
    np.maximum.at(price, at[valid], prices[valid])
    return price


def closed_auctions(
    control: "megaphone.Control", streams: Streams, windows: Windows, column: str, name: str
) -> "DataFrame":
    """Each closed auction, with the column that its average goes by, at the time it expires."""
    return megaphone.binary(
        control,
        streams["bid"],
        streams["auction"],
        "auction",
        "id",
        megaphone.vectorised(partial(close, column), ordered=False),
        f"auction long, {column} long, price long, expires timestamp",
        state=Auctions,
        time="date_time",
        lateness=windows.lateness,
        name=name,
    )
