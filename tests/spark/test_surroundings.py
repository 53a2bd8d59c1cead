"""Any source before, any Spark operator around, any sink after; bounded runs and batch DataFrames.

Would catch an operator that only works with our own way to start a query, and inputs that are not closed at the end.
"""

import os
from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

import megaphone

BINS = 8


def count(word, _, n):
    """A running count."""
    n = (n or 0) + 1
    return n, [(word, n)]


def alarm(time, data, state, notificator):
    """Each record once more, far in the future."""
    for row in data:
        if not row.ring:
            notificator.notify_at(time + 1000, row._replace(ring=True))
        yield row.k, row.ring, time, os.getpid()


def seen(time, data, state, notificator):
    """Each column by its name, and the time."""
    return [(row._2, row._1, row["a b"], row["a.b"], row["a`b"], time) for row in data]


def counted(words) -> Counter:
    """What a running count gives, in any order."""
    return Counter((word, n) for word, total in Counter(words).items() for n in range(1, total + 1))


def test_spark_operators_and_memory_sink_around_it(spark, feed, tmp_path):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("line string")
    words = source.frame.select(sf.explode(sf.split("line", " ")).alias("word")).where("word <> 'the'")
    counts = megaphone.state_machine(control, words, "word", count, "word string, n long")
    shouted = counts.select(sf.upper("word").alias("word"), "n").where("n < 10")
    writer = shouted.writeStream.format("memory").queryName("shouted").outputMode("append")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        source.send([("the cat saw the dog",)], [("a dog saw the cat",)])
        query.processAllAvailable()
        control.migrate([1] * BINS, "fluid").wait(120)
        source.send([("the dog saw a dog",)])
        query.processAllAvailable()
        rows = Counter(map(tuple, spark.table("shouted").collect()))
    finally:
        query.stop()
    assert rows == counted(["CAT", "SAW", "DOG", "A", "DOG", "SAW", "CAT", "DOG", "SAW", "A", "DOG"])


def test_file_sink_of_a_bounded_run(spark, feed, tmp_path):
    control = megaphone.Control(spark, workers=3, bins=BINS)
    source = feed("word string")
    for _ in range(3):
        source.send([(word,) for word in "abcab"])
    counts = megaphone.state_machine(control, source.frame, "word", count, "word string, n long")
    writer = counts.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "out"))
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter(map(tuple, rows)) == counted("abcab" * 3)


def test_aggregation_of_sparks_own_behind_it(spark, feed, tmp_path):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("word string")
    counts = megaphone.state_machine(control, source.frame, "word", count, "word string, n long")
    most = counts.groupBy("word").agg(sf.max("n").alias("n"), sf.count("*").alias("rows"))
    writer = most.writeStream.format("memory").queryName("most").outputMode("complete")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        source.send([(word,) for word in "abca"])
        query.processAllAvailable()
        control.migrate([1] * BINS, "all_at_once").wait(120)
        source.send([(word,) for word in "aab"])
        query.processAllAvailable()
        rows = {tuple(row) for row in spark.table("most").collect()}
    finally:
        query.stop()
    assert rows == {("a", 4, 4), ("b", 2, 2), ("c", 1, 1)}


def test_bounded_run_closes_its_inputs_at_the_end(spark, feed, start):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("k long, t long, ring boolean")
    source.send(*([(key, time, False) for key in range(10)] for time in (1, 2)))
    frame = megaphone.unary(control, source.frame, "k", alarm, "k long, ring boolean, t long, pid int", time="t")
    running = start(frame, availableNow=True)
    assert running.query.awaitTermination(120)
    times = Counter((row.ring, row.t) for row in running.outputs)
    assert times == {(False, 1): 10, (False, 2): 10, (True, 1001): 10, (True, 1002): 10}


def test_bounded_run_ends_with_the_reconfiguration_it_was_promised(spark, feed, start):
    control = megaphone.Control(spark, workers=2, bins=BINS, assignment=[0] * BINS)
    source = feed("k long, t long, ring boolean")
    source.send(*([(key, time, False) for key in range(10)] for time in range(8)))
    frame = megaphone.unary(control, source.frame, "k", alarm, "k long, ring boolean, t long, pid int", time="t")
    running = start(frame, availableNow=True)
    # Between the last record and the echo of the first: reached only because the inputs end.
    migration = control.update([1] * BINS, at=500)
    assert running.query.awaitTermination(120)
    assert migration.phase == "done"
    pids = {ring: {row.pid for row in running.outputs if row.ring is ring} for ring in (False, True)}
    assert Counter((row.ring, row.t) for row in running.outputs) == {
        **{(False, time): 10 for time in range(8)},
        **{(True, 1000 + time): 10 for time in range(8)},
    }
    assert len(pids[False]) == len(pids[True]) == 1
    assert not pids[False] & pids[True]


def test_batch_frame_runs_as_one_epoch(spark):
    control = megaphone.Control(spark, workers=4, bins=BINS)
    words = spark.createDataFrame([(word,) for word in "abcab"], "word string").repartition(3)
    counts = megaphone.state_machine(control, words, "word", count, "word string, n long")
    assert Counter(map(tuple, counts.collect())) == counted("abcab")
    assert Counter(map(tuple, counts.collect())) == counted("abcab")
    assert control.status() == []


def test_batch_frame_closes_its_inputs(spark):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    rows = spark.createDataFrame([(key, 5, False) for key in range(10)], "k long, t long, ring boolean")
    frame = megaphone.unary(control, rows, "k", alarm, "k long, ring boolean, t long, pid int", time="t")
    assert Counter((row.ring, row.t) for row in frame.collect()) == {(False, 5): 10, (True, 1005): 10}


@pytest.mark.parametrize("exchange", ["a`b", "_2"])
def test_columns_may_have_any_name(spark, exchange):
    """Those of tuples in `createDataFrame` are `_1`, `_2` ..."""
    control = megaphone.Control(spark, workers=2, bins=BINS)
    rows = spark.createDataFrame([(1, 2, 3, 4, 5), (6, 7, 8, 9, 10)], ["_1", "_2", "a b", "a.b", "a`b"])
    output = "_2 long, _1 long, `a.b` long, `a``b` long, `a b` long, time long"
    frame = megaphone.unary(control, rows, exchange, seen, output, time="a.b")
    assert frame.columns == ["_2", "_1", "a.b", "a`b", "a b", "time"]
    assert sorted(map(tuple, frame.collect())) == [(2, 1, 3, 4, 5, 4), (7, 6, 8, 9, 10, 9)]


def test_spark_may_count_its_partitions_anew_behind_it(spark, feed, start):
    """Behind a coalesce or a union a task's number is not that of the slot."""
    control = megaphone.Control(spark, workers=3, bins=BINS, slots=2)
    source, others = feed("word string"), feed("word string", "others")
    counts = megaphone.state_machine(control, source.frame, "word", count, "word string, n long")
    plain = others.frame.repartition(3).selectExpr("upper(word) as word", "0L as n")
    running = start(plain.union(counts).coalesce(1))
    words = [chr(ord("a") + number % 26) for number in range(100)]
    others.send([("other",)])
    for epoch in range(3):
        source.send([(word,) for word in words[epoch::3]])
        running.settle()
    control.migrate([2] * BINS, "batched", batch=3).wait(120)
    source.send([(word,) for word in words])
    running.settle()
    assert Counter(map(tuple, running.outputs)) == counted(words * 2) + Counter([("OTHER", 0)])


def test_epoch_of_which_a_sink_left_rows_unread_can_be_repeated(spark, feed, tmp_path):
    """The error says how; until that is done the query does not go on, with a sink that reads all rows either."""
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source, checkpoint = feed("word string"), tmp_path / "checkpoint"
    counts = megaphone.state_machine(control, source.frame, "word", count, "word string, n long")
    rows = {}

    def careless(frame, epoch):
        rows[epoch] = frame.take(1) if epoch == 2 else frame.collect()

    def careful(frame, epoch):
        rows[epoch] = frame.collect()

    def run(sink):
        query = counts.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    words = "abcdefgh"
    source.send(*[[(word,) for word in words]] * 4)
    way_out = rf"numbered 2 and higher in commits/ and 3 and higher in offsets/ of file:{checkpoint}, and start"
    for sink in (careless, careful):
        with pytest.raises(StreamingQueryException, match=f"a sink must read all rows of every epoch.*{way_out}"):
            run(sink)
    for folder, first in (("commits", 2), ("offsets", 3)):
        for file in (checkpoint / folder).iterdir():
            if file.name.isdecimal() and int(file.name) >= first:
                file.unlink()
    run(careful)
    assert Counter(tuple(row) for epoch in rows.values() for row in epoch) == counted(words * 4)
