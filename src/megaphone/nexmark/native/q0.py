"""Q0, native: every event crosses to a worker and comes back as it is."""

from typing import TYPE_CHECKING

import pyarrow as pa

from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.queries.q0 import OUTPUT
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class PassOn:
    """Keeps nothing."""

    def step(self, events: Records, *, bound: int) -> pa.RecordBatch:
        """The events as they are."""
        return events.data


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    return operators.native(
        control, [streams["event"]], [["id", "auction"]], PassOn, OUTPUT, time="date_time", name="q0"
    )
