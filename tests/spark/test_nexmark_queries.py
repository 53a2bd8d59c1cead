"""Would catch a query that answers otherwise on Spark than its SQL says, undisturbed or while its bins move.

The right answers are DuckDB's, over the events that the generator gives. All queries run side by side on one control,
over the same bounded stream: once undisturbed, and once with a migration by every strategy, one after the other.
"""

from collections import Counter
from functools import reduce

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

import megaphone
import megaphone.nexmark
from megaphone.nexmark import Nexmark
from megaphone.nexmark.queries import QUERIES, Windows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
"""All queries side by side are minutes on two cores."""

BINS, WORKERS = 8, 3
SECOND = 1_000_000
SOURCE = {"rate": 1000, "seed": 5, "strings": True, "in_flight_auctions": 300}
EVENTS = 10_000
"""Ten seconds. Auctions are open for five on average, so there is always something to move."""

WINDOWS = Windows(slice=SECOND, slices=4, highest=3 * SECOND, newcomers=5 * SECOND)

STRATEGIES = ("all_at_once", "batched", "optimized", "fluid")


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
        self.begun.append(self.control.migrate(target, STRATEGIES[len(self.begun)], batch=2))


@pytest.fixture(scope="module", params=["undisturbed", "moving"])
def answers(request, spark, tmp_path_factory):
    """How often each query gave each row."""
    megaphone.nexmark.register(spark)
    control = megaphone.Control(spark, workers=WORKERS, bins=BINS)
    mover, epochs, rows = Mover(control), (8 if request.param == "undisturbed" else 20), Counter()

    def sink(frame, epoch):
        rows.update((row["query"], tuple(row["values"])) for row in frame.collect())
        if request.param == "moving":
            mover(epoch)

    options = {"events": EVENTS, "rows": EVENTS // epochs, **SOURCE}
    built = (
        told(query, query.build(control, query.read(spark.readStream, **options), WINDOWS))
        for query in QUERIES.values()
    )
    writer = reduce(DataFrame.union, built).writeStream.foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(tmp_path_factory.mktemp("checkpoint")))
    running = writer.trigger(availableNow=True).start()
    try:
        assert running.awaitTermination(240)
    finally:
        running.stop()
    moved = [(migration.phase, migration.bins_moved) for migration in mover.begun]
    assert moved == [("done", BINS // 2)] * (len(STRATEGIES) if request.param == "moving" else 0)
    return rows


def told(query, frame):
    """Its name, and its values as texts: so that all queries fit one stream."""
    columns = [sf.unix_micros(name) if kind == "timestamp" else sf.col(name) for name, kind in frame.dtypes]
    values = sf.array(*(column.cast("string") for column in columns))
    return frame.select(sf.lit(query.name).alias("query"), values.alias("values"))


def right(query, names):
    """The same by DuckDB."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for kind in query.inputs:
            database.register(kind, pa.Table.from_batches([Nexmark(**SOURCE).records(kind, 0, EVENTS)]))
        table = database.sql(query.sql, params=query.parameters(WINDOWS)).to_arrow_table()
    columns = (table[name] for name in names)
    texts = ((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column) for column in columns)
    return Counter(zip(*(column.cast(pa.string()).to_pylist() for column in texts), strict=True))


@pytest.mark.parametrize("name", QUERIES)
def test_query_gives_what_its_sql_gives(answers, name):
    given = Counter({values: many for (query, values), many in answers.items() if query == name})
    expected = right(QUERIES[name], [column.split()[0] for column in QUERIES[name].output.split(",")])
    assert expected
    assert given - expected == Counter()
    assert expected - given == Counter()


@pytest.mark.parametrize("name", ["q3", "q5"])
def test_query_runs_on_a_batch_as_well(spark, name):
    megaphone.nexmark.register(spark)
    query, control = QUERIES[name], megaphone.Control(spark, workers=WORKERS, bins=BINS)
    frame = query.build(control, query.read(spark.read, events=EVENTS, **SOURCE), WINDOWS)
    given = Counter(tuple(row["values"]) for row in told(query, frame).collect())
    assert given == right(query, frame.columns)
