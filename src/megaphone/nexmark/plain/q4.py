"""Q4, average price for a category: what have closed auctions of each category fetched on average, so far?

A Spark user closes auctions (closing.py) and keeps a sum and a count for each category. Spark's aggregations tell one
row for each key; a row for each auction, with the average up to it, is for `transformWithState`. An epoch closes the
auctions that expire between two watermarks, so those of a later epoch expire later, and it is enough to sort each
epoch's: the averages are ours.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from megaphone.nexmark.plain import closing
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


TOLD = Row("category", "average", "auction", "expires")
OUTPUT = "category long, average long, auction long, expires long"


class Average(StatefulProcessor):
    """Of one category, what its auctions have fetched so far, and how many they are."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark's set-up."""
        self._so_far = handle.getValueState("so_far", "total long, many long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """The auctions of an epoch, in the order they expire in."""
        total, many = self._so_far.get() or (0, 0)
        for auction in sorted(rows, key=closing.order):
            total, many = total + auction.price, many + 1
            yield TOLD(*key, total // many, auction.auction, auction.expires)
        self._so_far.update((total, many))

    def close(self) -> None:
        """Nothing to release."""


def build(streams: Streams, windows: Windows) -> "DataFrame":
    """A session aggregation, then a state of our own."""
    closed = closing.closed_auctions(streams, windows, "category")
    averages = closed.groupBy("category").transformWithState(Average(), OUTPUT, "Append", "None")
    return closing.with_timestamps(averages)
