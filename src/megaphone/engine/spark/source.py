"""The control stream as a Spark source: it starts a micro-batch when a migration needs one and no data comes.

It carries no records: what an epoch is to do is in its plan. In a bounded run it advances with every epoch, so that
there is one more after the data, in which the inputs are closed.
Neighbours: coordinator.py says when to ring; operators.py unions it in behind F.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from megaphone.dataflow.exchange import DDL, frontier_rows
from megaphone.engine.spark.messages import Address, Bell
from megaphone.engine.spark.process import leave_quietly, settle_in
from megaphone.engine.spark.rpc import Caller
from megaphone.progress import BEGIN

FORMAT = "megaphone-control"
OFFSET = "megaphone_bell"


class ControlSource(DataSource):
    """`format("megaphone-control")`, with the coordinator's address and secret as options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """The exchange schema: it joins the records behind F."""
        leave_quietly()
        return DDL

    def streamReader(self, schema: Any) -> "ControlReader":
        """Spark's way of asking for a reader."""
        return ControlReader(self.options)


class ControlReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Rings by moving its offset."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Remember where to ask."""
        leave_quietly()
        self._address = Address(options["unix"], options.get("tcp"))
        self._secret = options["secret"]
        self._control = options["control"]
        self._slots = int(options["slots"])
        self._bounded = False
        self._caller: Caller | None = None

    def initialOffset(self) -> dict[str, int]:
        """Before the first ring."""
        return {OFFSET: 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """The run is bounded."""
        self._bounded = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """One further if an epoch is wanted."""
        self._caller = self._caller or Caller(self._secret)
        bell = Bell(self._control, self._bounded)
        wanted = self._caller.call(self._address, "bell", bell, bool)
        return {OFFSET: start[OFFSET] + int(wanted)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One, and only when it rings: then there may be no F to speak to the slots."""
        return [InputPartition(0)] if end != start else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """No records, only a word to each slot."""
        settle_in()
        yield from frontier_rows(self._slots, 0, BEGIN)
