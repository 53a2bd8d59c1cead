"""Closed auctions, of which Q4 and Q6 both take averages: what did each auction fetch that has ended?

A bid is valid if it is as high as the reserve and comes while the auction is open. The highest wins; which one of
equals does not matter, since only the price goes on. An auction without a valid bid says nothing.
Neighbours: q4.py, q6.py.  Paper: the evaluation, NEXMark, Q4.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import megaphone
from megaphone.bins import BinArray
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries.bulk import (
    Array,
    Int64s,
    Places,
    alarms,
    arrived,
    bins_of,
    gather,
    locate,
    micros,
    scatter,
    table,
)
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


def close(
    column: str,
    bids: Records,
    auctions: Records,
    states: States,
    _bids: VectorNotificator,
    notificator: VectorNotificator,
) -> dict[str, Any]:
    """Open the new auctions, judge the bids, close what has expired."""
    bins, fresh, bounds = bins_of(bids, auctions), arrived(auctions), notificator.bounds
    known, known_owners = gather(states, bins, OPEN)
    rows, owners = np.concatenate((known, opened(fresh, column))), np.concatenate((known_owners, fresh.bins))
    rows["price"] = price = highest_bids(rows, bids)
    expired = rows["expires"] < bounds[owners]
    left, left_owners = rows[~expired], owners[~expired]
    scatter(states, bins, left, left_owners)
    before, after = _next_to_expire(known, known_owners, len(bounds)), _next_to_expire(left, left_owners, len(bounds))
    # A bin is woken when the next of its auctions expires, bids or no bids; if that is the same one still, it will be.
    woken = bins[(after != before)[bins] & (after != END)[bins]]
    notificator.notify_at(alarms(auctions.data.schema, woken, after[woken]))
    won = rows[expired & (price != NO_BID)]
    return {"auction": won["id"], column: won["of"], "price": won["price"], "expires": won["expires"]}


def _next_to_expire(rows: Array, owners: BinArray, bins: int) -> Int64s:
    times: Int64s = np.full(bins, END)
    np.minimum.at(times, owners, rows["expires"])
    return times


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
        state=partial(np.empty, 0, OPEN),
        time="date_time",
        lateness=windows.lateness,
        name=name,
    )
