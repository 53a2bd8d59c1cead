"""A driver of its own, for what cannot be tried in the test's process: it tells what it sees as lines of JSON.

python driver.py run MASTER            counts until it is ended
python driver.py move MASTER T ...     for each transport T, moves a count from one executor to another
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import megaphone

BINS, KEYS, ROWS = 8, 20, 200


def count(key, _, n):
    """A running count, and where."""
    n = (n or 0) + 1
    return n, [(key, n, os.getpid())]


def session(master: str) -> SparkSession:
    """Quiet, and with all its executors from the start."""
    builder = SparkSession.builder.master(master).appName("megaphone driver")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "1g",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.cores.max": "2",
        "spark.driver.host": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = megaphone.tuned(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def counts(control: megaphone.Control) -> DataFrame:
    """Counts of a stream that never ends."""
    source = control.spark.readStream.format("rate-micro-batch")
    rows = source.options(rowsPerBatch=ROWS, numPartitions=2).load()
    keys = rows.select((sf.col("value") % KEYS).alias("key"))
    return megaphone.state_machine(control, keys, "key", count, "key long, n long, pid int")


def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition, whatever the machine does meanwhile."""
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def tell(**facts: Any) -> None:
    """One line for the test."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def run(master: str) -> None:
    """Count until somebody ends it."""
    control = megaphone.Control(session(master), workers=3, bins=BINS)
    writer = counts(control).writeStream.format("noop")
    query = writer.option("checkpointLocation", mkdtemp()).start()
    until(lambda: control.status() and len(control.status()[0].workers) == 3 and control.status()[0].epoch > 1)
    (status,) = control.status()
    tell(workers=[worker.pid for worker in status.workers])
    query.awaitTermination()


def move(master: str, transports: list[str]) -> None:
    """Move every bin from one executor to another, by each transport."""
    spark = session(master)
    spark.range(100, numPartitions=4).count()
    until(lambda: spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() == 3)
    for transport in transports:
        spark.conf.set("spark.megaphone.transport", transport)
        tell(transport=transport, **moved(megaphone.Control(spark, workers=2, bins=BINS, assignment=[0] * BINS)))
    spark.stop()


def moved(control: megaphone.Control) -> dict[str, Any]:
    """Count here, count there, and say what was seen."""
    seen: list[tuple[int, int, int]] = []

    def sink(frame: DataFrame, epoch: int) -> None:
        seen.extend(map(tuple, frame.collect()))

    query = counts(control).writeStream.foreachBatch(sink).option("checkpointLocation", mkdtemp()).start()
    until(lambda: control.status() and len(control.status()[0].workers) == 2 and len(seen) > 2 * ROWS)
    migration = control.migrate([1] * BINS, "batched", batch=4).wait(120)
    there = len(seen)
    until(lambda: len(seen) > there + 2 * ROWS)
    (status,) = control.status()
    old, new = status.workers
    facts = {
        "rows": seen,
        "pids": [old.pid, new.pid],
        "executors": [old.executor_pid, new.executor_pid],
        "bins": [old.bins, new.bins],
        "phase": migration.phase,
        "bytes_moved": migration.bytes_moved,
        "by_tcp": _talks_tcp(new.pid, old.pid),
    }
    query.stop()
    until(lambda: not any(psutil.pid_exists(worker.pid) for worker in status.workers))
    return facts


def _talks_tcp(caller: int, called: int) -> bool:
    offered = {c.laddr.port for c in psutil.Process(called).net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    calls = psutil.Process(caller).net_connections("tcp")
    return any(c.status == psutil.CONN_ESTABLISHED and c.raddr.port in offered for c in calls)


if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    what, where, *options = sys.argv[1:]
    if what == "run":
        run(where)
    else:
        move(where, options)
