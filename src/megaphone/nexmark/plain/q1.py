"""Q1, currency conversion: what is each bid in euros?

A Spark user projects; `div` is whole, and prices are not negative, so it rounds down. No shuffle, and no waiting.
"""

from typing import TYPE_CHECKING

from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(streams: Streams, windows: Windows) -> "DataFrame":
    """Stateless."""
    return streams["bid"].selectExpr("auction", "bidder", "price * 89 div 100 AS price", "date_time")
