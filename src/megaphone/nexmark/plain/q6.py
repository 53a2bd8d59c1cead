"""Q6, average selling price by seller: what did the last ten closed auctions of each seller fetch on average?

A Spark user closes auctions (closing.py) and keeps each seller's last ten prices, as in Q4 with `transformWithState`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from megaphone.nexmark.plain import closing
from megaphone.nexmark.queries.q6 import LAST
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


TOLD = Row("seller", "average", "auction", "expires")
OUTPUT = "seller long, average long, auction long, expires long"


class Average(StatefulProcessor):
    """Of one seller, what the last auctions have fetched."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark's set-up."""
        self._last = handle.getValueState("last", "prices array<long>")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """The auctions of an epoch, in the order they expire in."""
        (prices,) = self._last.get() or ([],)
        for auction in sorted(rows, key=closing.order):
            prices = [*prices, auction.price][-LAST:]
            yield TOLD(*key, sum(prices) // len(prices), auction.auction, auction.expires)
        self._last.update((prices,))

    def close(self) -> None:
        """Nothing to release."""


def build(streams: Streams, windows: Windows) -> "DataFrame":
    """A session aggregation, then a state of our own."""
    closed = closing.closed_auctions(streams, windows, "seller")
    averages = closed.groupBy("seller").transformWithState(Average(), OUTPUT, "Append", "None")
    return closing.with_timestamps(averages)
