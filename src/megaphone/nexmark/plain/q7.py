"""Q7, highest bid: which bid was the highest in each window of ten seconds?

A Spark user takes the least of (-price, date_time, auction, bidder) in a tumbling window: of equally high bids the
earliest, and then by their ids, as ours does.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from megaphone.nexmark.plain.watermark import micros, watermarked
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(streams: Streams, windows: Windows) -> "DataFrame":
    """One aggregation."""
    bids = watermarked(streams["bid"], windows)
    rank = sf.expr("struct(-price AS short, date_time, auction, bidder)")
    highest = bids.groupBy(sf.window("date_time", micros(windows.highest))).agg(sf.min(rank).alias("bid"))
    return highest.selectExpr(
        "window.end AS window_end", "bid.auction", "bid.bidder", "-bid.short AS price", "bid.date_time"
    )
