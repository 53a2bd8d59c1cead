"""Q4, native: what have closed auctions of each category fetched on average, so far?"""

from typing import TYPE_CHECKING, Any

from megaphone.dataflow.native import Waiting
from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.native.closing import closed_auctions
from megaphone.nexmark.queries.q4 import OUTPUT, averages
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class Average:
    """Sums and numbers of a worker's categories."""

    def __init__(self) -> None:
        """None."""
        self.so_far: dict[int, tuple[int, int]] = {}
        self.early = Waiting()

    def step(self, closed: Records, *, bound: int) -> dict[str, Any]:
        """In the order in which auctions expire."""
        return averages(self.early.due(closed, bound), lambda _: self.so_far)


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    closed = closed_auctions(control, streams, windows, "category", "q4_closed")
    return operators.native(control, [closed], ["category"], Average, OUTPUT, time="expires", name="q4")
