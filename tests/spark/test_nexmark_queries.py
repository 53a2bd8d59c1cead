"""Would catch a query that answers otherwise on Spark than its SQL says: as a batch, as a stream, while its bins move.

The right answers are DuckDB's, over the events that the generator gives. Migrations are begun from the query's own
sink, by every strategy, one after the other.
"""

import duckdb
import pyarrow as pa
import pytest

import megaphone
import megaphone.nexmark
from megaphone.nexmark import Nexmark
from megaphone.nexmark.queries import QUERIES, Windows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
"""Minutes on two cores."""

BINS, WORKERS = 8, 2
SECOND = 1_000_000
SOURCE = {"rate": 1000, "seed": 5, "strings": True, "in_flight_auctions": 300}
EVENTS = 10_000
"""Ten seconds. Auctions are open for five on average, so there is always something to move."""

WINDOWS = Windows(slice=SECOND, slices=4, highest=3 * SECOND, newcomers=5 * SECOND)

STRATEGIES = ("all_at_once", "batched", "optimized", "fluid")


@pytest.fixture
def control(spark):
    megaphone.nexmark.register(spark)
    return megaphone.Control(spark, workers=WORKERS, bins=BINS)


def build(query, control, reader, **options):
    return query.build(control, query.read(reader, events=EVENTS, partitions=1, **SOURCE, **options), WINDOWS)


def run(frame, checkpoint, on_epoch=lambda epoch: None):
    """The outputs of each epoch, until the stream has ended."""
    outputs = []

    def sink(frame, epoch):
        outputs.append(frame.toArrow())
        on_epoch(epoch)

    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    running = writer.trigger(availableNow=True).start()
    try:
        assert running.awaitTermination(120)
    finally:
        running.stop()
    return outputs


def check(query, answers):
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for kind in query.inputs:
            database.register(kind, pa.Table.from_batches([Nexmark(**SOURCE).records(kind, 0, EVENTS)]))
        expected = database.sql(query.sql, params=query.parameters(WINDOWS)).to_arrow_table()
    assert expected.num_rows
    assert rows_of(answers, answers.schema) == rows_of(expected, answers.schema)


def rows_of(table, schema):
    return sorted(map(repr, table.select(schema.names).cast(schema).to_pylist()))


class Mover:
    """Begins a migration when the one before is done: half of the bins go to the next worker, by the next strategy."""

    def __init__(self, control):
        self.control, self.begun = control, []

    def __call__(self, epoch):
        if epoch < 3 or len(self.begun) == len(STRATEGIES):
            return
        if self.begun and self.begun[-1].ended_s is None:
            return
        (status,) = self.control.status()
        bins = range(len(self.begun) % 2, BINS, 2)
        target = {bin: (int(status.assignment.owners[bin]) + 1) % WORKERS for bin in bins}
        self.begun.append(self.control.migrate(target, STRATEGIES[len(self.begun)], batch=2))


@pytest.mark.parametrize("name", QUERIES)
def test_query_gives_what_its_sql_gives_on_a_batch(spark, control, name):
    check(QUERIES[name], build(QUERIES[name], control, spark.read).toArrow())


@pytest.mark.parametrize("name", [query.name for query in QUERIES.values() if query.stateful])
def test_query_gives_what_its_sql_gives_on_a_stream(spark, control, tmp_path, name):
    epochs = run(build(QUERIES[name], control, spark.readStream, rows=EVENTS // 8), tmp_path / "checkpoint")
    assert len(epochs) >= 8
    check(QUERIES[name], pa.concat_tables(epochs))


@pytest.mark.parametrize("name", QUERIES)
def test_query_gives_what_its_sql_gives_while_its_bins_move(spark, control, tmp_path, name):
    mover = Mover(control)
    epochs = run(build(QUERIES[name], control, spark.readStream, rows=EVENTS // 16), tmp_path / "checkpoint", mover)
    moved = [(migration.phase, migration.bins_moved) for migration in mover.begun]
    assert moved == [("done", BINS // 2)] * len(STRATEGIES)
    check(QUERIES[name], pa.concat_tables(epochs))
