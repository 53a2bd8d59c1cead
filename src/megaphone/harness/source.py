"""Generated keys as a Spark source: `format("megaphone-keys")`, a row `key long` per record.

Record i is computed from i and the seed alone, so partitions generate in parallel and a replay gives the same rows.
Options: keys (how many there are), seed, partitions; and either rows (records in every epoch: as fast as it can) or
rate (records a second, open loop by the wall clock); preload (records, each key in turn, that come before the rest) and
preload_rows (how many of them in an epoch; all, if it is not said).  Neighbours: schedule.py.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from megaphone.engine.spark.process import leave_quietly, settle_in
from megaphone.harness.schedule import Schedule

FORMAT = "megaphone-keys"
BATCH_ROWS = 1 << 16


class KeysSource(DataSource):
    """Random keys, uniform over a domain."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """One column."""
        return "key long"

    def streamReader(self, schema: Any) -> "KeysReader":
        """Spark's way of asking for a reader."""
        return KeysReader(self.options)


@dataclass
class Share(InputPartition):
    """Records first to last of the sequence."""

    first: int
    last: int


class KeysReader(DataSourceStreamReader):
    """Offsets are record numbers, and when the schedule began: a restarted query goes on with the same schedule."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the options."""
        self._keys = int(options.get("keys", "1000000"))
        self._seed = int(options.get("seed", "1"))
        self._partitions = int(options.get("partitions", "2"))
        self._rows = int(options["rows"]) if "rows" in options else None
        self._rate = float(options.get("rate", "10000"))
        self._preload = int(options.get("preload", "0"))
        self._preload_rows = int(options.get("preload_rows", "0")) or self._preload

    def initialOffset(self) -> dict[str, int]:
        """Before the first record."""
        return {"record": 0, "start_ns": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """All records due by now, or a fixed number more; the records of a preload come first."""
        leave_quietly()
        first, start_ns = start["record"], start["start_ns"]
        if first < self._preload:
            return {"record": min(first + self._preload_rows, self._preload), "start_ns": 0}
        if self._rows is not None:
            return {"record": first + self._rows, "start_ns": 0}
        now = time.time_ns()
        due = Schedule(start_ns or now, self._rate).due_by(now)
        return {"record": max(first, self._preload + due), "start_ns": start_ns or now}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Equal shares."""
        cuts = np.linspace(start["record"], end["record"], self._partitions + 1).astype(int).tolist()
        return [Share(first, last) for first, last in pairwise(cuts) if last > first]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a share, in Arrow batches."""
        settle_in()
        assert isinstance(partition, Share)
        for first in range(partition.first, partition.last, BATCH_ROWS):
            records = np.arange(first, min(first + BATCH_ROWS, partition.last))
            yield pa.record_batch({"key": keys_of(records, self._keys, self._seed, self._preload)})


def keys_of(records: npt.NDArray[np.int64], keys: int, seed: int, preload: int = 0) -> npt.NDArray[np.int64]:
    """The key of each record: each key once during a preload, from then on as if drawn at random."""
    mixed = records.astype(np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    drawn = ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(keys)).astype(np.int64)
    return np.where(records < preload, records % keys, drawn)
