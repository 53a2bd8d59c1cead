"""A driver of its own, with a query to be looked at; it goes on until its standard input ends.

python driver.py FOLDER BINS [event]
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import megaphone

ROWS, KEYS, EVERY = 400, 5000, "250 milliseconds"


def count(key, _, n):
    """How often a key was seen."""
    return (n or 0) + 1, []


def main(folder: Path, bins: int, by_event_time: bool) -> None:
    """Count until nobody listens any more."""
    builder = SparkSession.builder.master("local[2]").appName("dashboard")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark = megaphone.tuned(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    options = {"rowsPerBatch": ROWS, "numPartitions": 1, "advanceMillisPerBatch": 250}
    rows = spark.readStream.format("rate-micro-batch").options(**options).load()
    keys = rows.select((sf.col("value") * 7919 % KEYS).alias("key"), "timestamp")
    control = megaphone.Control(spark, workers=2, bins=bins, name="shown", dashboard=True)
    clock = {"time": "timestamp", "lateness": 2_000_000} if by_event_time else {}
    counts = megaphone.state_machine(control, keys, "key", count, "key long", **clock)
    writer = counts.writeStream.queryName("counts").format("noop").trigger(processingTime=EVERY)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    sys.stdin.read()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "event" in sys.argv)
