"""Q5, hot items: which auction had the most bids in the last minute? Told every second.

A Spark user counts by auction in a sliding window, and takes the largest count of each: two aggregations, chained in
append mode, so that a window is told in the epoch that ends it. Of equal counts it is the smallest auction's, as in
ours: the least of (-bids, auction).
A bid is in sixty windows, and so is every count that Spark keeps. To count slices first and add them up makes fewer
rows of bids, but none less in the store, which is what takes the time: it was tried, and is slower. A window goes by
its last microsecond, which Spark knows to be event time too, since that is a shorter key than start and end.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from megaphone.nexmark.plain.watermark import micros, watermarked
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(streams: Streams, windows: Windows) -> "DataFrame":
    """Counts, and the largest."""
    window = sf.window("date_time", micros(windows.slice * windows.slices), micros(windows.slice))
    bids = watermarked(streams["bid"], windows).select("auction", window)
    counts = bids.groupBy(sf.window_time("window").alias("last"), "auction").agg(sf.count("*").alias("bids"))
    hottest = counts.groupBy("last").agg(sf.min(sf.expr("struct(-bids AS short, auction)")).alias("hottest"))
    return hottest.selectExpr(
        "timestamp_micros(unix_micros(last) + 1) AS window_end", "hottest.auction", "-hottest.short AS bids"
    )
