"""Closed auctions, of which Q4 and Q6 both take averages: what did each auction fetch that has ended?

A bid is valid if it is as high as the reserve and comes while the auction is open. The highest wins; which one of
equals does not matter, since only the price goes on. An auction without a valid bid says nothing.
Neighbours: auctions.py keeps those that are open; q4.py, q6.py.  Paper: the evaluation, NEXMark, Q4.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import megaphone
from megaphone.bins import BinArray
from megaphone.dataflow.folds import Bounds, VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries.auctions import NO_BID, Auctions
from megaphone.nexmark.queries.bulk import Array, micros, table
from megaphone.nexmark.queries.query import Streams, Windows

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


def close(
    column: str,
    bids: Records,
    auctions: Records,
    states: Auctions,
    _bids: VectorNotificator,
    notificator: VectorNotificator,
) -> dict[str, Any]:
    """Open the new auctions, judge the bids, close what has expired."""
    return closed(column, bids, auctions, auctions.bins, states, notificator.bounds)


def closed(
    column: str, bids: Records, auctions: Records, owners: BinArray, known: Auctions, bounds: Bounds
) -> dict[str, Any]:
    """Of each auction that has expired with a valid bid, what it fetched."""
    known.open(opened(auctions, column), owners)
    known.bid(bids.column("auction"), bids.column("price"), bids.times)
    expired = known.close(bounds)
    won = expired[expired["price"] != NO_BID]
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
