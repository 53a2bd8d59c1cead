"""The paper's counting benchmarks: a running count for each key, migrateable and native.

Key count: keys are dense, and a bin's state is a plain array of counts, the place of a key its high bits. Hash count:
keys are looked up, in sorted arrays. Dict count: a key count whose bins are Python's dicts, as most people's states are
objects. One output row for each key and epoch, as Spark's own aggregation gives.
Preloaded: a key count's arrays, or dicts, are made at full length and written to, with one record for each bin; a hash
count's keys come through the stream.
Neighbours: dense.py and hashes.py keep counts, source.py gives keys, trial.py runs these.
Paper: the evaluation's counting.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from megaphone.dataflow.folds import States, vectorised
from megaphone.dataflow.records import Records
from megaphone.harness.dense import KeyBins
from megaphone.harness.hashes import PLACES, WIDTH, Counts, HashBins, HashCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from megaphone.engine.spark.control import Control

OUTPUT = "key long, n long"
PRELOAD_ROWS = 2_000_000
"""Keys in an epoch while a hash count is filled: what a worker holds of one epoch does not grow with the state."""
KEY_BYTES = {"key": 8, "hash": 16, "dict": 72}
"""A count; a key and its count; an entry of a dict and the object that is its key."""


def key_count(shift: int) -> Callable[..., Any]:
    """The fold of a key count with 2^shift bins: the low bits of a key are its bin, the others its place there."""

    @vectorised(ordered=False)
    def count(records: Records, states: KeyBins, _: Any) -> dict[str, Any]:
        places, times = _places(records, records.column("key") >> shift)
        return {"key": (places & PLACES) << shift | places >> WIDTH, "n": states.add(places, times)}

    return count


def dict_count(shift: int) -> Callable[..., Any]:
    """The fold of a dict count: a key count, but each count is looked up and replaced in a dict."""

    @vectorised(ordered=False)
    def count(records: Records, states: States, _: Any) -> dict[str, Any]:
        places, times = _places(records, records.column("key") >> shift)
        bins, at = places >> WIDTH, places & PLACES
        counts: list[int] = []
        for bin, place, seen in zip(bins.tolist(), at.tolist(), times.tolist(), strict=True):
            state = states[bin]
            state[place] += seen
            counts.append(state[place])
        return {"key": (at << shift) | bins, "n": np.array(counts, np.int64)}

    return count


def dict_seen_once(length: int) -> dict[int, int]:
    """A bin of a dict count, preloaded."""
    return dict.fromkeys(range(length), 1)


def _places(records: Records, keys: Counts) -> tuple[Counts, Counts]:
    """The distinct places, bin and key in one number and in order, and how often each came."""
    return np.unique(records.bins.astype(np.int64) << WIDTH | keys, return_counts=True)


class KeyCount:
    """A worker's share of a native key count: the place of a key is its number over the number of workers."""

    def __init__(self, workers: int, length: int) -> None:
        """Preloaded."""
        self.workers, self.counts = workers, np.ones(length, np.int64)

    def step(self, records: Records, *, bound: int) -> dict[str, Any]:
        """Count what has come."""
        keys, times = np.unique(records.column("key"), return_counts=True)
        at = keys // self.workers
        self.counts[at] += times
        return {"key": keys, "n": self.counts[at]}


@vectorised(ordered=False)
def hash_count(records: Records, states: HashBins, _: Any) -> dict[str, Any]:
    """The fold of a hash count, over all bins at once."""
    places, times = _places(records, records.column("key"))
    return {"key": places & PLACES, "n": states.add(places, times)}


class HashCount:
    """A worker's share of a native hash count."""

    def __init__(self) -> None:
        """No key was seen."""
        self.counts = HashCounts()

    def step(self, records: Records, *, bound: int) -> dict[str, Any]:
        """Count what has come."""
        keys, times = np.unique(records.column("key"), return_counts=True)
        return {"key": keys, "n": self.counts.add(keys, times)}


def preload_of(parameters: Mapping[str, Any]) -> int:
    """How many records come before the schedule begins."""
    return int(parameters["keys"] if parameters["benchmark"] == "hash" else parameters["bins"])


def state_bytes(parameters: Mapping[str, Any]) -> int:
    """Bytes of state in all."""
    return int(parameters["keys"]) * KEY_BYTES[parameters["benchmark"]]


def source(spark: "SparkSession", parameters: Mapping[str, Any]) -> "DataFrame":
    """The stream of keys."""
    from megaphone.harness.source import FORMAT

    options = {name: parameters[name] for name in ("keys", "seed", "rate", "rows") if name in parameters}
    preload = {"preload": preload_of(parameters), "preload_rows": PRELOAD_ROWS}
    return spark.readStream.format(FORMAT).options(**options, **preload).load()


def build(spark: "SparkSession", parameters: Mapping[str, Any]) -> "tuple[DataFrame, Control]":
    """The count that the parameters ask for, and its control."""
    versions = {"migrateable": _migrateable, "native": _native}
    spark.conf.set("spark.megaphone.transport", parameters.get("transport", "auto"))
    return versions[parameters["version"]](spark, parameters)


def _migrateable(spark: "SparkSession", parameters: Mapping[str, Any]) -> "tuple[DataFrame, Control]":
    from pyspark.sql import functions as sf

    from megaphone.engine.spark.control import Control
    from megaphone.engine.spark.exchanges import Bits
    from megaphone.engine.spark.operators import unary

    bins, keys = parameters["bins"], source(spark, parameters)
    control = Control(spark, parameters["workers"], bins, snapshot_share=parameters["snapshot_share"])
    if parameters["benchmark"] == "hash":
        return unary(control, keys, "key", hash_count, OUTPUT, state=HashBins), control
    shift, length = bins.bit_length() - 1, -(-parameters["keys"] // bins)
    exchange = Bits(sf.shiftleft("key", 64 - shift))
    if parameters["benchmark"] == "dict":
        return unary(control, keys, exchange, dict_count(shift), OUTPUT, state=partial(dict_seen_once, length)), control
    return unary(control, keys, exchange, key_count(shift), OUTPUT, state=partial(KeyBins, length)), control


def _native(spark: "SparkSession", parameters: Mapping[str, Any]) -> "tuple[DataFrame, Control]":
    from pyspark.sql import functions as sf

    from megaphone.engine.spark.control import Control
    from megaphone.engine.spark.exchanges import Bits
    from megaphone.engine.spark.operators import native

    workers, keys = parameters["workers"], source(spark, parameters)
    # Nobody looks at its bins, but a control has some.
    control = Control(spark, workers, bins=1 << max(1, (workers - 1).bit_length()), snapshot_share=0)
    if parameters["benchmark"] == "hash":
        return native(control, [keys], ["key"], HashCount, OUTPUT), control
    logic = partial(KeyCount, workers, -(-parameters["keys"] // workers))
    return native(control, [keys], [Bits(sf.col("key"))], logic, OUTPUT), control
