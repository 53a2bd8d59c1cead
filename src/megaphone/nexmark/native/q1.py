"""Q1, native: what is each bid in euros?"""

from typing import TYPE_CHECKING, Any

from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.queries.q1 import OUTPUT
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class Convert:
    """Keeps nothing."""

    def step(self, bids: Records, *, bound: int) -> dict[str, Any]:
        """Every bid with another price."""
        same = {name: bids.data.column(name) for name in ("auction", "bidder", "date_time")}
        return {**same, "price": bids.column("price") * 89 // 100}


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    return operators.native(control, [streams["bid"]], ["auction"], Convert, OUTPUT, time="date_time", name="q1")
