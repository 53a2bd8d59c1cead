"""The state of a stopped query as a DataFrame: operator, bin, key, state.

`read_state`, or `format("megaphone-state")`, which Spark finds through the package pyspark_megaphone_state. Options:
operator (all of them, unless one is named), partitions (into how many the bins of an operator are divided, about).
Neighbours: durability/contents.py reads the bins, on the executors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from megaphone.durability.contents import Share, contents, judge, shares
from megaphone.durability.files import absolute
from megaphone.durability.trust import SWITCH, is_trusted
from megaphone.errors import PlanError

FORMAT = "megaphone-state"
SCHEMA = pa.schema([("operator", pa.string()), ("bin", pa.int32()), ("key", pa.string()), ("state", pa.string())])
DDL = "operator string, bin int, key string, state string"

BATCH_ROWS = 1 << 12
"""States may be large."""


def read_state(spark: SparkSession, checkpoint: str | Path, operator: str | None = None) -> DataFrame:
    """The state of a stopped query, as it was after its last committed epoch: a row for each key, or for each bin.

    `checkpoint` is the query's checkpoint location. Keys and states are JSON, where they can be.
    """
    where = absolute(str(checkpoint))
    # Here it can be said in plain words what is wrong; in Spark's planning and its tasks it would be buried.
    found = shares(where, operator)
    if not is_trusted(spark.conf.get(SWITCH, "false")):
        judge(found)
    reader = spark.read.format(FORMAT).option("partitions", spark.sparkContext.defaultParallelism)
    return (reader if operator is None else reader.option("operator", operator)).load(where)


class StateSource(DataSource):
    """`format("megaphone-state")`: the state of a stopped query, to be loaded from its checkpoint location."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """One row for each key, or for each bin."""
        # Asked for by `load`: what is wrong is better said there than when the rows are wanted.
        _shares(self.options)
        return DDL

    def reader(self, schema: Any) -> "StateReader":
        """Spark's way of asking for a reader."""
        return StateReader(self.options)


@dataclass
class Part(InputPartition):
    """Some bins of one worker."""

    share: Share


class StateReader(DataSourceReader):
    """Recovers bins, some in each task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Remember what to read."""
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """All that is there now; nothing may be planned from here on."""
        return [Part(share) for share in _shares(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The entries of some bins; Spark asks for none of them if there are none."""
        if not isinstance(partition, Part):
            return
        # Spark's settings are told to tasks, as the reader is told its options, and not to the planning before.
        task = TaskContext.get()
        entries = contents(partition.share, task is not None and is_trusted(task.getLocalProperty(SWITCH)))
        while rows := list(islice(entries, BATCH_ROWS)):
            columns = zip(*rows, strict=True)
            yield pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _shares(options: Mapping[str, str]) -> list[Share]:
    if "path" not in options:
        raise PlanError(f"format('{FORMAT}') without a path; load(...) the checkpoint location of a query")
    parts = options.get("partitions", "8")
    if not parts.isdecimal() or int(parts) < 1:
        raise PlanError(f"{parts} partitions asked for; choose 1 or more")
    return shares(absolute(options["path"]), options.get("operator"), int(parts))
