"""Runs of NEXMark's queries to compare with DuckDB's answers; as a program, all of them on a cluster of its own.

    python nexmark_runs.py MASTER QUERY...

prints a line of JSON for each run: which query and seed, how each migration ended, whether the answer is right.
"""

import json
import sys
import tempfile

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

import megaphone
from megaphone.nexmark import Nexmark
from megaphone.nexmark.native import NATIVE
from megaphone.nexmark.queries import QUERIES, Windows

BINS, WORKERS, EPOCHS = 8, 2, 16
SECOND = 1_000_000
EVENTS = 10_000
"""Ten seconds. Auctions are open for five on average, so there is always something to move."""
SEEDS = (5, 11)
WINDOWS = Windows(slice=SECOND, slices=4, highest=3 * SECOND, newcomers=5 * SECOND)
STRATEGIES = ("all_at_once", "batched", "optimized", "fluid")


def source(seed):
    return {"rate": 1000, "seed": seed, "strings": True, "in_flight_auctions": 300}


def read(query, reader, seed, **options):
    return query.read(reader, events=EVENTS, partitions=1, **source(seed), **options)


def right(query, seed):
    """DuckDB's answer over the events that the generator gives."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for kind in query.inputs:
            database.register(kind, pa.Table.from_batches([Nexmark(**source(seed)).records(kind, 0, EVENTS)]))
        return database.sql(query.sql, params=query.parameters(WINDOWS)).to_arrow_table()


def rows_of(table, schema):
    return sorted(map(repr, table.select(schema.names).cast(schema).to_pylist()))


def is_right(query, seed, answers):
    expected = right(query, seed)
    return expected.num_rows > 0 and rows_of(answers, answers.schema) == rows_of(expected, answers.schema)


class Mover:
    """Begins a migration when the one before is done: half of the bins go to the next worker, by the next strategy."""

    def __init__(self, control):
        self.control, self.begun = control, []

    def __call__(self, epoch):
        if epoch < 2 or len(self.begun) == len(STRATEGIES):
            return
        if self.begun and self.begun[-1].ended_s is None:
            return
        (status,) = self.control.status()
        bins = range(len(self.begun) % 2, BINS, 2)
        target = {bin: (int(status.assignment.owners[bin]) + 1) % WORKERS for bin in bins}
        strategy = STRATEGIES[len(self.begun)]
        batch = {"batch": 2} if strategy == "batched" else {}
        self.begun.append(self.control.migrate(target, strategy, **batch))

    @property
    def moved(self):
        return [(migration.phase, migration.bins_moved) for migration in self.begun]


ALL_MOVED = [("done", BINS // 2)] * len(STRATEGIES)


def run(frame, checkpoint, on_epoch=lambda epoch: None):
    """The outputs of each epoch, until the stream has ended."""
    outputs = []

    def sink(frame, epoch):
        outputs.append(frame.toArrow())
        on_epoch(epoch)

    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    running = writer.trigger(availableNow=True).start()
    try:
        assert running.awaitTermination(240)
    finally:
        running.stop()
    return outputs


def run_while_bins_move(spark, name, seed, checkpoint):
    control, query = megaphone.Control(spark, workers=WORKERS, bins=BINS), QUERIES[name]
    mover = Mover(control)
    frame = query.build(control, read(query, spark.readStream, seed, rows=EVENTS // EPOCHS), WINDOWS)
    return pa.concat_tables(run(frame, checkpoint, mover)), mover.moved


def run_native(spark, name, seed, checkpoint):
    control, query = megaphone.Control(spark, workers=WORKERS, bins=WORKERS), QUERIES[name]
    frame = NATIVE[name](control, read(query, spark.readStream, seed, rows=EVENTS // 4), WINDOWS)
    return pa.concat_tables(run(frame, checkpoint))


def main(master, *names):
    builder = SparkSession.builder.master(master).appName("nexmark")
    for key in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(key, "false")
    spark = megaphone.tuned(builder.config("spark.sql.session.timeZone", "UTC")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for name in names:
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as checkpoint:
                answers, moved = run_while_bins_move(spark, name, seed, checkpoint)
            told = {"query": name, "seed": seed, "moved": moved, "right": is_right(QUERIES[name], seed, answers)}
            print(json.dumps(told), flush=True)  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
