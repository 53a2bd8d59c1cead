"""What Spark users do today: a running count by each of Spark's own ways, and the offline rescale of its state.

To rescale, Spark's users stop the query, have its checkpoint rewritten for another number of partitions, and start it
again. Records that were due meanwhile are as late as they are.
Neighbours: counting.py is ours; trial.py measures both.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from megaphone.harness import counting
from megaphone.harness.counting import OUTPUT
from megaphone.harness.experiment import Parameters
from megaphone.harness.stage import Stage
from megaphone.harness.trial import running


class PandasCounter(StatefulProcessor):
    """With `transformWithStateInPandas`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark's set-up."""
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Spark's way of giving a key its rows."""
        (before,) = self._count.get() or (0,)
        n = before + sum(len(part) for part in rows)
        self._count.update((n,))
        yield pd.DataFrame({"key": [key[0]], "n": [n]})

    def close(self) -> None:
        """Nothing to release."""


class RowCounter(StatefulProcessor):
    """With `transformWithState`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark's set-up."""
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Spark's way of giving a key its rows."""
        (before,) = self._count.get() or (0,)
        n = before + sum(1 for _ in rows)
        self._count.update((n,))
        yield Row(key=key[0], n=n)

    def close(self) -> None:
        """Nothing to release."""


def count_with_state(key: Any, parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """With `applyInPandasWithState`."""
    n = sum(len(part) for part in parts) + (state.get[0] if state.exists else 0)
    state.update((n,))
    yield pd.DataFrame({"key": [key[0]], "n": [n]})


def aggregation(keys: DataFrame) -> DataFrame:
    """Spark's own aggregation."""
    return keys.groupBy("key").agg(sf.count("*").alias("n"))


def transform_with_state(keys: DataFrame) -> DataFrame:
    """Spark's state API for Python, row by row."""
    return keys.groupBy("key").transformWithState(RowCounter(), OUTPUT, "Update", "None")


def transform_with_state_in_pandas(keys: DataFrame) -> DataFrame:
    """Spark's state API for Python, by pandas."""
    return keys.groupBy("key").transformWithStateInPandas(PandasCounter(), OUTPUT, "Update", "None")


def apply_in_pandas_with_state(keys: DataFrame) -> DataFrame:
    """Spark's older state API for Python."""
    timeout = GroupStateTimeout.NoTimeout
    return keys.groupBy("key").applyInPandasWithState(count_with_state, OUTPUT, "n long", "update", timeout)


WAYS: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "groupBy().count()": aggregation,
    "transformWithState": transform_with_state,
    "transformWithStateInPandas": transform_with_state_in_pandas,
    "applyInPandasWithState": apply_in_pandas_with_state,
}


def restart(parameters: Parameters, stage: Stage) -> dict[str, Any]:
    """A count by one of Spark's ways, rescaled by stopping it, rewriting its checkpoint, and starting it again."""
    frame = WAYS[parameters["way"]](counting.source(stage.spark, parameters))
    told: dict[str, Any] = {}

    def stop_and_start(query: StreamingQuery) -> StreamingQuery:
        checkpoint = _checkpoint(query)
        query.stop()
        told["exactly_once"] = _repartition(stage.spark, checkpoint, parameters["to"])
        writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
        return writer.start()

    with running(stage, frame, None, parameters, counting.preload_of(parameters), "record") as trial:
        trial.load()
        trial.steady(parameters["steady_s"], "steady")
        rescaled = trial.replace(stop_and_start, f"restart, {parameters['way']}")
        trial.wait(parameters["settle_s"], "settling")
        return {**trial.found([rescaled]), **told}


def rescale(parameters: Parameters, stage: Stage) -> dict[str, Any]:
    """Our count, rescaled while it runs."""
    frame, control = counting.build(stage.spark, parameters)
    with running(stage, frame, control, parameters, counting.preload_of(parameters), "record") as trial:
        trial.load()
        trial.steady(parameters["steady_s"], "steady")
        (options,) = parameters["strategies"]
        rescaled = trial.rescale(parameters["to"], **options)
        trial.wait(parameters["settle_s"], "settling")
        return trial.found([rescaled])


def _checkpoint(query: StreamingQuery) -> str:
    location: str = query._jsq.streamingQuery().resolvedCheckpointRoot()
    return location


def _repartition(spark: SparkSession, checkpoint: str, partitions: int) -> bool:
    """Rewrite a checkpoint. Whether Spark can promise exactly once: not if the query was stopped in mid-epoch."""
    manager = spark._streamingCheckpointManager
    try:
        manager.repartition(checkpoint, partitions)
    except (Py4JJavaError, PySparkException) as error:
        if "LAST_BATCH_FAILED" not in str(error):
            raise
        manager.repartition(checkpoint, partitions, enforce_exactly_once_sink=False)
        return False
    return True
