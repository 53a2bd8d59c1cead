"""Q3, local item suggestion: who in Oregon, Idaho or California sells in category 10, and what?

A Spark user filters both streams and joins them, without a watermark: then Spark keeps both sides for ever, as the
question asks, and no row is late. Pairs are told when the second of the two comes.
"""

from typing import TYPE_CHECKING

from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(streams: Streams, windows: Windows) -> "DataFrame":
    """One join."""
    persons = streams["person"].where("state IN ('OR', 'ID', 'CA')").selectExpr("id AS seller", "name", "city", "state")
    auctions = streams["auction"].where("category = 10").selectExpr("seller", "id AS auction")
    return persons.join(auctions, "seller").select("name", "city", "state", "auction")
