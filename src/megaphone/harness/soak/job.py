"""The query that is soaked: as many records an epoch as ever, the same keys, so that nothing of it need grow.

    python -m megaphone.harness.soak.job FOLDER MASTER [NAME=VALUE ...]

The chain of the fault suite; its second operator has bins that are large enough to be lent. Spark is told to remember
little, so that what it remembers is full when measuring begins.
"""

import gc
import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from megaphone.dataflow.folds import vectorised
from megaphone.engine.spark.control import Control
from megaphone.engine.spark.operators import state_machine
from megaphone.harness.chaos.job import KEYS, SEED, Job, count, main, session
from megaphone.harness.soak.ledger import Ledger
from megaphone.harness.source import FORMAT, KeysSource
from megaphone.service.directory import entries
from megaphone.service.logs import JsonLines

WORKERS, BINS, ROWS = 2, 16, 300
BALLAST = 40_000
"""Numbers in each bin beside its counts: 320 kB, more than is streamed where it can be lent."""

PACE = "100 milliseconds"

MONITOR = "Worker Monitor for"
"""How Spark calls the thread that watches over a Python task, and stays two seconds: the shorter epochs are, the more
there are.
"""

EVENTS = "events.jsonl"

RETAINED = {
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
}
"""What Spark remembers for its page and its checkpoint: by default a thousand of each, and a hundred thousand tasks."""


class Tallies:
    """A bin's state: a count for each digit, and weight."""

    def __init__(self) -> None:
        """Begin with no digit."""
        self.counts: dict[int, int] = {}
        self.ballast = np.zeros(BALLAST)


@vectorised
def tally(records: Any, states: Any, notificator: Any) -> dict[str, list[int]]:
    """A running count of each last digit."""
    digits, totals = [], []
    for bin, start, stop in records.spans():
        counts = states[bin].counts
        for digit in records.column("digit")[start:stop].tolist():
            counts[digit] = counts.get(digit, 0) + 1
            digits.append(digit)
            totals.append(counts[digit])
    return {"digit": digits, "total": totals}


class SoakJob(Job):
    """The running query, and what only its driver can tell."""

    workers = WORKERS

    def __init__(self, folder: Path, master: str, settings: dict[str, str]) -> None:
        """Start it."""
        _log_to(folder / EVENTS)
        spark = session(master, RETAINED | settings)
        spark.dataSource.register(KeysSource)
        self._control = control = Control(spark, WORKERS, BINS, snapshot_share=0.2, name="soak")
        self._ledger = Ledger()
        source = spark.readStream.format(FORMAT).options(keys=KEYS, rows=ROWS, seed=SEED, partitions=2).load()
        digits = state_machine(control, source, "key", count, "digit int, n int", name="count").select("digit")
        totals = state_machine(control, digits, "digit", tally, "digit int, total int", state=Tallies, name="tally")
        writer = totals.writeStream.foreachBatch(self._ledger.take).trigger(processingTime=PACE)
        self.query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    def door(self) -> dict[str, Any]:
        """Where it is served over HTTP, once it is."""
        mine = [entry for entry in entries() if entry.pid == os.getpid()]
        return {"entry": msgspec.to_builtins(mine[0]) if mine else None}

    def inside(self) -> dict[str, int]:
        """What only it knows: objects of Python and bytes of Java in use, garbage collected, and threads of Java."""
        gc.collect()
        java = self._control.spark._jvm.java.lang  # type: ignore[union-attr]
        java.System.gc()
        heap = java.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
        threads = java.management.ManagementFactory.getThreadMXBean()
        names = [thread.getThreadName() for thread in threads.getThreadInfo(threads.getAllThreadIds()) if thread]
        passing = sum(name.startswith(MONITOR) for name in names)
        return {"objects": len(gc.get_objects()), "heap": int(heap.getUsed()), "java_threads": len(names) - passing}

    def count(self) -> dict[str, Any]:
        """What has come out."""
        return asdict(self._ledger.count)

    def stop(self) -> dict[str, Any]:
        """End well, and say what has come out."""
        self.query.stop()
        return self.count()


def _log_to(path: Path) -> None:
    handler = logging.FileHandler(path)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("megaphone")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)


if __name__ == "__main__":
    main(SoakJob)
