"""Would catch a query in Spark's own operators that is not what its SQL says, and so no fair measure of ours.

The right answers are DuckDB's, over the events that the generator gives. In append mode Spark tells a window, or an
auction, when the watermark passes its end: Q4 to Q7 are compared with the answers due by the last watermark, which is
worked out here from the events. The other queries tell everything.
"""

from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import StructType

from megaphone.nexmark import Nexmark
from megaphone.nexmark.plain import CONF, PLAIN
from megaphone.nexmark.plain.watermark import delay_ms
from megaphone.nexmark.queries import QUERIES, Windows

pytestmark = pytest.mark.slow
"""Minutes together: `make test-nexmark`."""

SECOND = 1_000_000

DUE = {
    "q4": "2 * epoch_us(expires) - 1 <= $twice",
    "q5": "epoch_us(window_end) - 1 <= $once",
    "q6": "2 * epoch_us(expires) - 1 <= $twice",
    "q7": "epoch_us(window_end) <= $once",
}
"""Which answers a watermark lets go, in microseconds. Auctions' time runs twice as fast (plain/closing.py), and Q5's
windows go by their last microsecond."""


@dataclass(frozen=True)
class Case:
    """Events, and windows that several of fit into them; no length is a whole number of milliseconds."""

    options: dict[str, object]
    events: int
    windows: Windows
    price: str = "price"
    """What becomes of a price, in the SQL of both."""

    def tables(self, kinds):
        """The events as DuckDB has them."""
        for kind in kinds:
            rows = pa.Table.from_batches([Nexmark(**self.options).records(kind, 0, self.events)])
            if kind == "bid":
                rows = duckdb.from_arrow(rows).project(f"* REPLACE ({self.price} AS price)").to_arrow_table()
            yield kind, rows

    def streams(self, query, reader, **options):
        """The same, as Spark has them."""
        streams = query.read(reader, events=self.events, partitions=2, **self.options, **options)
        if self.price != "price" and "price" in query.inputs.get("bid", ()):
            streams["bid"] = streams["bid"].selectExpr(
                *(f"{self.price} AS price" if name == "price" else name for name in streams["bid"].columns)
            )
        return streams


SHUFFLED = Case(
    # Ten seconds. Auctions are open for five on average; an event comes up to 100 ms late.
    {"rate": 1000, "seed": 5, "strings": True, "in_flight_auctions": 300, "out_of_order_group_size": 100},
    events=10_000,
    windows=Windows(slice=SECOND - 17, slices=4, highest=SECOND - 1, newcomers=5 * SECOND + 1, lateness=SECOND // 10),
)
TIES = Case(
    # Ten milliseconds, two events in each microsecond, few sellers, prices in powers of ten: nearly all are ties.
    {"rate": 2_000_000, "seed": 3, "strings": True, "active_people": 5, "in_flight_auctions": 20},
    events=20_000,
    windows=Windows(slice=SECOND // 1000 + 7, slices=3, highest=SECOND // 500 + 1, newcomers=SECOND // 200 + 3),
    price="CAST(power(10, length(CAST(price AS VARCHAR(20)))) AS BIGINT)",
)
CASES = {"shuffled": SHUFFLED, "ties": TIES}


@pytest.fixture(scope="module")
def session(spark):
    """With the settings that are the session's own; those of the whole application are megaphone.tuned's anyway."""
    session = spark.newSession()
    for name, value in CONF.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def run(frame, checkpoint):
    """All outputs of a stream, until it has ended; and its progress, epoch by epoch."""
    outputs = []
    writer = frame.writeStream.foreachBatch(lambda frame, epoch: outputs.append(frame.toArrow()))
    running = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert running.awaitTermination(120)
        return pa.concat_tables(outputs), running.recentProgress
    finally:
        running.stop()


def expected(name, case, *, due):
    """The right answer; or what of it is due by the last watermark."""
    query = QUERIES[name]
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        latest = []
        for kind, table in case.tables(query.inputs):
            database.register(kind, table)
            latest.append(pc.max(table["date_time"].cast(pa.int64())).as_py())
        answer = database.sql(query.sql, params=query.parameters(case.windows)).to_arrow_table()
        if not due or name not in DUE:
            return answer
        # Of two streams it is the one behind that counts.
        last = min(latest)
        marks = {
            "once": watermark(last, case.windows.lateness),
            "twice": watermark(2 * last, 2 * case.windows.lateness),
        }
        used = {mark: time for mark, time in marks.items() if f"${mark}" in DUE[name]}
        return database.sql(f"SELECT * FROM answer WHERE {DUE[name]}", params=used).to_arrow_table()


def watermark(latest, lateness):
    """As Spark has it after the last event, in microseconds."""
    return (latest // 1000 - delay_ms(lateness)) * 1000


def rows_of(table, schema):
    return sorted(map(repr, table.select(schema.names).cast(schema).to_pylist()))


def check(name, case, answers, *, due):
    right = expected(name, case, due=due)
    assert right.num_rows
    assert rows_of(answers, answers.schema) == rows_of(right, answers.schema)


def stream(name, case, session, checkpoint):
    """A query's answers, and its progress, on a stream of five epochs and what the last watermark lets go."""
    streams = case.streams(QUERIES[name], session.readStream, rows=case.events // 5)
    return run(PLAIN[name](streams, case.windows), checkpoint)


@pytest.mark.parametrize("name", PLAIN)
def test_query_gives_what_its_sql_gives_on_a_batch(session, name):
    frame = PLAIN[name](TIES.streams(QUERIES[name], session.read), TIES.windows)
    assert frame.schema.simpleString() == StructType.fromDDL(QUERIES[name].output).simpleString()
    check(name, TIES, frame.toArrow(), due=False)


@pytest.mark.parametrize("name", ["q4", "q7"])
def test_query_gives_what_its_sql_gives_on_a_stream(session, tmp_path, name):
    answers, _ = stream(name, TIES, session, tmp_path / "checkpoint")
    check(name, TIES, answers, due=True)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PLAIN)
def test_every_query_gives_what_its_sql_gives_on_every_stream(session, tmp_path, name, case):
    answers, _ = stream(name, CASES[case], session, tmp_path / "checkpoint")
    check(name, CASES[case], answers, due=True)


def test_join_drops_the_windows_that_have_ended(session, tmp_path):
    answers, progress = stream("q8", TIES, session, tmp_path / "checkpoint")
    check("q8", TIES, answers, due=True)
    auctions, end = dict(TIES.tables(["auction"]))["auction"], TIES.windows.newcomers
    ended = auctions.filter(pc.less(auctions["date_time"].cast(pa.int64()), end))
    removed = [operator.numRowsRemoved for epoch in progress for operator in epoch.stateOperators]
    assert sum(removed) >= ended.num_rows > 0
