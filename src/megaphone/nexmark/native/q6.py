"""Q6, native: what did the last ten closed auctions of each seller fetch on average?"""

from typing import TYPE_CHECKING, Any

from megaphone.dataflow.native import Waiting
from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.native.closing import closed_auctions
from megaphone.nexmark.queries.q6 import OUTPUT, averages
from megaphone.nexmark.queries.query import Streams, Windows
from megaphone.nexmark.queries.shelves import Shelves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class Average:
    """The last prices of a worker's sellers."""

    def __init__(self) -> None:
        """None."""
        self.prices, self.early = Shelves(), Waiting()

    def step(self, closed: Records, *, bound: int) -> dict[str, Any]:
        """In the order in which auctions expire."""
        due = self.early.due(closed, bound)
        return averages(due, self.prices, due.column("seller"))


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    closed = closed_auctions(control, streams, windows, "seller", "q6_closed")
    return operators.native(control, [closed], ["seller"], Average, OUTPUT, time="expires", name="q6")
