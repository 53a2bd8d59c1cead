"""Would catch a NEXMark stream that is another in Spark than on paper: as a batch, after a restart, at its end."""

import json

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from megaphone.nexmark import Nexmark

EVENTS = 5000


def configured(source, **options):
    return source.format("nexmark").options(**options)


def by_generator(kind="event", first=0, last=EVENTS, columns=None, **parameters):
    return rows_of(pa.Table.from_batches([Nexmark(**parameters).records(kind, first, last, columns)]))


def rows_of(table):
    """Rows in an order of their own; Spark promises none between partitions."""
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("kind", ["person", "auction", "bid", "event"])
def test_batch_and_stream_have_the_generators_rows(spark, kind):
    options = {"kind": kind, "events": EVENTS, "strings": True, "seed": 3, "partitions": 3}
    expected = by_generator(kind, strings=True, seed=3)
    assert rows_of(configured(spark.read, **options).load().toArrow()) == expected
    tables = []
    stream = configured(spark.readStream, **options, rows=1700).load()
    query = stream.writeStream.foreachBatch(lambda frame, epoch: tables.append(frame.toArrow()))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert len(tables) == 3
    assert rows_of(pa.concat_tables(tables)) == expected


def test_stream_restarted_from_its_checkpoint_goes_on_with_the_same_rows(spark, tmp_path, wait_until):
    def start(partitions):
        frame = configured(spark.readStream, kind="bid", rate=5000, events=30_000, partitions=partitions).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.start(str(tmp_path / "rows"))

    def reached(query):
        offset = query.lastProgress and query.lastProgress.sources[0].endOffset
        return json.loads(offset) if offset else {"event": 0}

    query = start(partitions=1)
    wait_until(lambda: reached(query)["event"] > 0)
    query.stop()
    before = reached(query)
    query = start(partitions=3)
    wait_until(lambda: reached(query)["event"] == 30_000)
    query.stop()
    assert before["event"] < 30_000
    assert reached(query)["start_ns"] == before["start_ns"]
    written = spark.read.parquet(str(tmp_path / "rows")).select("auction", "bidder", "price", "date_time")
    assert rows_of(written.toArrow()) == by_generator("bid", last=30_000, rate=5000)


def test_event_time_is_a_timestamp_that_windows_and_watermarks_take(spark):
    bids = configured(spark.read, kind="bid", events=EVENTS, rate=1000, dilation=60, columns="price, date_time").load()
    windows = bids.groupBy("date_time").count()
    assert dict(bids.dtypes) == {"price": "bigint", "date_time": "timestamp"}
    assert windows.count() == EVENTS * 46 // 50
    minutes = bids.selectExpr("window(date_time, '1 minute').start as minute").distinct().count()
    assert minutes == 5


def test_wrong_option_is_refused_when_the_source_is_named(spark):
    with pytest.raises(AnalysisException, match="no option named 'rowz'; choose from kind"):
        configured(spark.readStream, rowz=1).load()


def test_own_schema_chooses_columns(spark):
    bids = spark.read.format("nexmark").options(kind="bid", events=100).schema("price long, auction long").load()
    assert rows_of(bids.toArrow()) == by_generator("bid", last=100, columns=["price", "auction"])
