"""The query that is broken: a driver of its own, which speaks in lines of JSON.

    python -m megaphone.harness.chaos.job FOLDER MASTER [NAME=VALUE ...]

Two operators in a chain: a running count of each key, and a running count of those counts by their last digits. The
sink is Spark's own file sink, exactly once. Started again on the same folder, it goes on.
Neighbours: warden.py starts it, tells it what to do and ends it; verdict.py knows what must come out.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from megaphone.dataflow.folds import vectorised
from megaphone.engine.spark.control import Control
from megaphone.engine.spark.operators import state_machine
from megaphone.engine.spark.session import tuned
from megaphone.faults import reach
from megaphone.harness.source import FORMAT, KeysSource

WORKERS, BINS, KEYS, ROWS, SEED = 3, 8, 200, 150, 7
DIGITS = 7
PACE = "100 milliseconds"
"""From one epoch to the next at least: the suite must be able to count everything that came out."""


def count(key: int, _: Any, n: int | None) -> tuple[int, list[tuple[int, int]]]:
    """A running count of each key."""
    n = (n or 0) + 1
    return n, [(n % DIGITS, n)]


@vectorised
def tally(records: Any, states: Any, notificator: Any) -> dict[str, list[int]]:
    """A running count of each last digit."""
    digits, totals = [], []
    for bin, start, stop in records.spans():
        for digit in records.column("digit")[start:stop].tolist():
            states[bin][digit] = states[bin].get(digit, 0) + 1
            digits.append(digit)
            totals.append(states[bin][digit])
    return {"digit": digits, "total": totals}


def to_sink(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The last step before the sink."""
    for batch in batches:
        yield batch
        reach("sink", moving=True)


def chain(control: Control, rows: int) -> DataFrame:
    """The query."""
    control.spark.dataSource.register(KeysSource)
    source = control.spark.readStream.format(FORMAT).options(keys=KEYS, rows=rows, seed=SEED, partitions=2)
    counts = state_machine(control, source.load(), "key", count, "digit int, n int", name="count")
    digits = counts.select("digit")
    totals = state_machine(control, digits, "digit", tally, "digit int, total int", state=dict, name="tally")
    return totals.mapInArrow(to_sink, totals.schema)


def session(master: str, settings: dict[str, str]) -> SparkSession:
    """Quiet, and patient with executors that die."""
    builder = SparkSession.builder.master(master).appName("megaphone chaos")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.task.maxFailures": "8",
        "spark.megaphone.silence": "3",
        **settings,
    }.items():
        builder = builder.config(name, value)
    spark = tuned(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Job:
    """The running query, and what can be asked of it."""

    workers = WORKERS

    def __init__(self, folder: Path, master: str, settings: dict[str, str]) -> None:
        """Start it, or let it go on."""
        self._control = Control(session(master, settings), self.workers, BINS, snapshot_share=0.2)
        writer = chain(self._control, ROWS).writeStream.format("json").trigger(processingTime=PACE)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        self.query = writer.start(str(folder / "output"))

    def status(self) -> dict[str, Any]:
        """How it is."""
        found = self._control.status()
        if not found:
            return {"epoch": -1, "workers": {}, "migrating": False, "asked": 0, "done": 0}
        (status,) = found
        return {
            "epoch": status.epoch,
            "workers": {int(worker.worker): worker.pid for worker in status.workers},
            "migrating": status.migration is not None,
            "asked": sum(status.migrations.values()),
            "done": status.migrations.get("done", 0),
        }

    def migrate(self, strategy: str) -> dict[str, Any]:
        """Move every bin to the next worker."""
        (status,) = self._control.status()
        target = [(int(owner) + 1) % self.workers for owner in status.assignment.owners]
        options = {"batch": 3} if strategy == "batched" else {}
        migration = self._control.migrate(target, strategy, **options)
        return {"steps": len(migration.plan.steps)}

    def stop(self) -> dict[str, Any]:
        """End well."""
        self.query.stop()
        return {}


def main(kind: type[Job] = Job) -> None:
    """Do as told, line by line, until told to stop or until the query fails."""
    folder, master, *settings = sys.argv[1:]
    job = kind(Path(folder), master, dict(setting.split("=", 1) for setting in settings))
    threading.Thread(target=_end_with, args=(job.query,), daemon=True).start()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(job, order["do"])(*order.get("with", []))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        _tell(answer)
        if order["do"] == "stop":
            break
    job.query.stop()


def _end_with(query: Any) -> None:
    """When the query fails, so does its driver: whoever supervises it starts it again."""
    try:
        query.awaitTermination()
    except Exception as error:
        sys.stderr.write(f"query failed: {str(error)[:3000]}\n")
        sys.stderr.flush()
        with contextlib.suppress(Exception):
            query.sparkSession.stop()
        time.sleep(0.5)
        os._exit(3)


def _tell(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
