"""Q2, native: what was bid on some auctions, every 123rd?"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.queries.q2 import OUTPUT
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class Select:
    """Keeps nothing."""

    def step(self, bids: Records, *, bound: int) -> dict[str, Any]:
        """The bids that are asked for."""
        chosen = pa.array(np.flatnonzero(bids.column("auction") % 123 == 0))
        return {name: bids.data.column(name).take(chosen) for name in ("auction", "price")}


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    return operators.native(control, [streams["bid"]], ["auction"], Select, OUTPUT, time="date_time", name="q2")
