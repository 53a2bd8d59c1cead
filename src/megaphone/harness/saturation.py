"""Saturation: how many records a second a system counts when it always has the next epoch's records at hand.

A rate counts only with epochs of a bounded length: any rate can be bought with latency.
Neighbours: counting.py and today.py are the systems; source.py gives so many rows an epoch.
"""

import importlib.util
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from megaphone.harness import counting, today
from megaphone.harness.experiment import Parameters
from megaphone.harness.source import keys_of
from megaphone.harness.stage import Stage

BYTEWAX = "bytewax"
PATIENCE_S = 600.0


def measure(parameters: Parameters, stage: Stage) -> dict[str, Any]:
    """Epochs of one size on one system."""
    if parameters["system"] == BYTEWAX:
        return bytewax(parameters)
    with stage.folder() as folder:
        writer = _frame(parameters, stage).writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", str(folder)).start()
        try:
            stage.show("filling")
            first = -(-counting.preload_of(parameters) // counting.PRELOAD_ROWS) + parameters["warm"]
            took = durations_of(query, first, parameters["epochs"])
        finally:
            query.stop()
    return _rate(parameters, took)


def _frame(parameters: Parameters, stage: Stage) -> DataFrame:
    if parameters["system"] in today.WAYS:
        return today.WAYS[parameters["system"]](counting.source(stage.spark, parameters))
    frame, _ = counting.build(stage.spark, parameters)
    return frame


def _rate(parameters: Parameters, took: list[float]) -> dict[str, Any]:
    epoch_s = statistics.median(took)
    return {"epoch_s": round(epoch_s, 4), "epochs_s": took, "records_per_s": round(parameters["rows"] / epoch_s)}


def durations_of(query: StreamingQuery, warm: int, epochs: int) -> list[float]:
    """Seconds that epochs took, the first `warm` left out."""
    durations: dict[int, float] = {}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        error = query.exception()
        if error is not None:
            raise error
        for progress in query.recentProgress:
            durations[progress.batchId] = progress.durationMs["triggerExecution"] / 1000
        measured = [took for batch, took in sorted(durations.items()) if batch >= warm]
        if len(measured) >= epochs:
            return measured[:epochs]
        time.sleep(0.05)
    raise TimeoutError(f"{epochs} epochs were not done after {PATIENCE_S:.0f} s")


def bytewax(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A plain count of words in bytewax, if it is installed: no state is moved, nothing is kept."""
    if importlib.util.find_spec(BYTEWAX) is None:
        return {"not_installed": True}
    from bytewax import operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource, run_main

    keys = keys_of(np.arange(parameters["rows"]), parameters["keys"], parameters["seed"])
    words = [f"word{key}" for key in keys.tolist()]
    flow = Dataflow("count")
    keyed = op.key_on("word", op.input("words", flow, TestingSource(words, batch_size=1000)), lambda word: word)
    counted = op.stateful_map("count", keyed, lambda n, _: ((n or 0) + 1, (n or 0) + 1))
    op.output("out", counted, TestingSink([]))
    begin = time.perf_counter()
    run_main(flow)
    return _rate(parameters, [time.perf_counter() - begin])
