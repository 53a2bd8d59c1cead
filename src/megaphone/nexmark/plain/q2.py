"""Q2, selection: what was bid on some auctions, every 123rd?

A Spark user filters, where the bids are read. Ours sends all through the exchange first, as the paper's does.
"""

from typing import TYPE_CHECKING

from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(streams: Streams, windows: Windows) -> "DataFrame":
    """Stateless."""
    return streams["bid"].where("auction % 123 = 0").select("auction", "price")
