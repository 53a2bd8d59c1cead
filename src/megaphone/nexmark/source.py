"""NEXMark as a Spark source: `format("nexmark")`, as a stream and as a batch of the same events.

Offsets are event numbers, of all kinds: streams of different kinds that are given the same options keep in step, and a
replay, or a batch, has the same rows. Options: options.py.
As a stream, by `rate`: open loop, event n is due n / rate seconds after the start, a preload coming before it and not
counted, and comes in the first epoch after that; with `rows` instead, every epoch has as many events, whatever the
clock says. Event times are the generator's in both cases: `dilation` seconds to a second of that schedule.
Neighbours: generator.py, harness/schedule.py.  Paper: the evaluation's harness.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from megaphone.engine.spark.process import leave_quietly, settle_in
from megaphone.errors import PlanError
from megaphone.harness.schedule import Schedule
from megaphone.nexmark.memory import keep_memory
from megaphone.nexmark.options import Options

FORMAT = "nexmark"
BATCH_ROWS = 1 << 16
BATCH_EVENTS = 1 << 20
"""What a batch of a rare kind is searched in, at most."""
PRELOAD_EVENTS = 20_000_000
"""How many events of a preload come in an epoch, at most: the JVM has to have room for them."""

Offset = dict[str, int]


class NexmarkSource(DataSource):
    """People, auctions and bids, or all of them."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """As Spark has it; wrong options are refused here, when the source is named."""
        return from_arrow_schema(Options.of(self.options).schema)

    def reader(self, schema: StructType) -> "NexmarkReader":
        """Of a batch."""
        return NexmarkReader(_projected(Options.of(self.options), schema))

    def streamReader(self, schema: StructType) -> "NexmarkStreamReader":
        """Of a stream."""
        return NexmarkStreamReader(_projected(Options.of(self.options), schema))


@dataclass
class Share(InputPartition):
    """Events from a number on and before another."""

    first: int
    last: int


class NexmarkReader(DataSourceReader):
    """All events at once."""

    def __init__(self, options: Options) -> None:
        """Take what was said."""
        if options.last is None:
            raise PlanError("a batch of events has an end; say with the option events after how many")
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Equal shares."""
        assert self._options.last is not None
        return _shares(self._options, self._options.first, self._options.last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a share."""
        return _read(self._options, partition)


class NexmarkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets say when the schedule began as well: a restarted query goes on with the same one."""

    def __init__(self, options: Options) -> None:
        """Take what was said."""
        self._options = options
        self._schedule_holds = options.rows is None

    def initialOffset(self) -> Offset:
        """Before the first event."""
        return {"event": self._options.first, "start_ns": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Everything is available now: nobody waits for the schedule."""
        if self._options.last is None:
            raise PlanError("an endless stream cannot end by itself; say with the option events after how many")
        self._schedule_holds = False

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """All events due by now, or a fixed number more, or all that are left."""
        leave_quietly()
        if self._schedule_holds:
            return self._due(start, time.time_ns())
        options = self._options
        target = options.last if options.rows is None else self._within(options.after(start["event"]))
        assert target is not None
        return start | {"event": max(start["event"], target)}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Equal shares."""
        return _shares(self._options, start["event"], end["event"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a share."""
        return _read(self._options, partition)

    def _due(self, start: Offset, now_ns: int) -> Offset:
        ahead, rate = self._within(self._options.first + self._options.preload), self._options.nexmark.rate
        if start["event"] < ahead:
            return start | {"event": min(ahead, start["event"] + PRELOAD_EVENTS)}
        # It begins with the first epoch after a preload, or, where events came without one, as if it had been kept.
        start_ns = start["start_ns"] or now_ns - Schedule(0, rate).due_ns(start["event"] - ahead)
        due = self._within(ahead + Schedule(start_ns, rate).due_by(now_ns))
        return {"event": max(start["event"], due), "start_ns": start_ns}

    def _within(self, number: int) -> int:
        last = self._options.last
        return number if last is None else min(number, last)


def _projected(options: Options, schema: StructType) -> Options:
    """The columns a user's own schema names, as with any Spark source; the types are ours."""
    chosen = replace(options, columns=tuple(schema.names))
    for given, ours in zip(schema, from_arrow_schema(chosen.schema), strict=True):
        if given.dataType != ours.dataType or not given.nullable:
            raise PlanError(f"column {given.name} is {ours.dataType.simpleString()} and nullable; declare it so")
    return chosen


def _shares(options: Options, first: int, last: int) -> list[InputPartition]:
    cuts = [first + (last - first) * part // options.partitions for part in range(options.partitions + 1)]
    return [Share(start, stop) for start, stop in pairwise(cuts) if stop > start]


def _read(options: Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, Share):
        # A batch without events: Spark makes a partition of its own for it.
        return
    settle_in()
    keep_memory()
    step = min(BATCH_EVENTS, int(BATCH_ROWS / options.nexmark.share(options.kind)))
    for first in range(partition.first, partition.last, step):
        last = min(first + step, partition.last)
        yield options.nexmark.records(options.kind, first, last, options.columns)
