"""Closed auctions, of which Q4 and Q6 both take averages: what did each auction fetch that has ended?

A Spark user thinks of a join first: bids with auctions, where the bid comes while the auction is open. But Spark drops
what it has joined by constant bounds only ("at most an hour later"), and an auction ends when it says so itself: one of
the two sides would be kept for ever, or all answers come late by the longest auction there may be. (With auctions cut
into slots of time, by which both sides are joined and dropped, it can be done: it was tried, and is half as fast.)
What fits is a session window with a gap of each row's own: an auction is a session that opens with its own row and
lasts until it expires, and a bid, a moment long, falls into it or does not. Spark tells a session, and drops it, when
the watermark passes its end. A bid outside of every auction is a session by itself, and nobody asks for it.

Spark also merges sessions that only touch, so moments must not: the time of these sessions runs twice as fast, and a
bid at t lasts from 2t to 2t + 1. An auction lasts from 2t to 2 expires - 1. The watermark is in this time too.
The highest bid wins, if it is as high as the reserve: the highest of all that came in time will do.
Neighbours: q4.py, q6.py.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from megaphone.nexmark.plain.watermark import delay_ms
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

TWICE = 2

MOMENT = "make_interval(0, 0, 0, 0, 0, 0, 0.000001)"
LIFE = f"""
    make_interval(0, 0, 0, 0, 0, 0,
        CAST({TWICE} * (unix_micros(expires) - unix_micros(date_time)) - 1 AS DECIMAL(18, 0)) * 0.000001)
"""


def closed_auctions(streams: Streams, windows: Windows, column: str) -> "DataFrame":
    """Each closed auction: the column that its average goes by, its price, and when it expired in microseconds."""
    at, nothing = f"timestamp_micros({TWICE} * unix_micros(date_time)) AS at", "CAST(NULL AS BIGINT)"
    auctions = streams["auction"].selectExpr(
        "id AS auction",
        at,
        f"{LIFE} AS lasts",
        column,
        "reserve",
        "unix_micros(expires) AS expires",
        f"{nothing} AS price",
    )
    bids = streams["bid"].selectExpr(
        "auction",
        at,
        f"{MOMENT} AS lasts",
        *(f"{nothing} AS {name}" for name in (column, "reserve", "expires")),
        "price",
    )
    delay = f"{delay_ms(TWICE * windows.lateness)} milliseconds"
    events = bids.withWatermark("at", delay).union(auctions.withWatermark("at", delay).select(bids.columns))
    sessions = events.groupBy("auction", sf.session_window("at", sf.col("lasts"))).agg(
        *(sf.max(name).alias(name) for name in (column, "reserve", "expires", "price"))
    )
    return sessions.where("price >= reserve").select(column, "auction", "price", "expires")


def order(closed: "Row") -> tuple[int, int]:
    """Auctions are averaged in the order they expire in, and by their ids where that is the same."""
    return closed.expires, closed.auction


def with_timestamps(averages: "DataFrame") -> "DataFrame":
    """The time as a timestamp: in Python it was a number, which no time zone can bend."""
    return averages.withColumn("expires", sf.timestamp_micros("expires"))
