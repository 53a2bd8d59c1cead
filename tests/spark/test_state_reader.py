"""The state of a stopped query as a DataFrame, against a count of what was sent.

Would catch state of another epoch than the last committed one, a key lost or doubled between two workers or two tasks,
a damaged file that is read as if it were whole, and state mixed from two epochs.
"""

import json
from collections import Counter

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

import megaphone
from megaphone.durability.trust import SWITCH

BINS = 16
ROWS = [[(f"w{n % 7}", n % 3, 1.5) for n in range(epoch, epoch + 40)] for epoch in range(6)]


def last_and_count(key, value, state):
    """Per key, of two columns: how many, and the last value."""
    return {"n": (state or {"n": 0})["n"] + 1, "last": value}, []


def by_word(time, data, state, notificator):
    """Per bin, a dict."""
    for row in data:
        state[row.word] = state.get(row.word, 0) + 1
    return ()


@megaphone.vectorised
def histogram(records, states, notificator):
    """Per bin, an array."""
    for bin, start, stop in records.spans():
        states[bin] += np.bincount(records.column("n")[start:stop], minlength=3)


def query(spark, feed):
    """Three operators, a kind of state each, in one query."""
    control = megaphone.Control(spark, workers=3, bins=BINS)
    source = feed("word string, n long, x double")
    machine = megaphone.state_machine(control, source.frame, ["word", "n"], last_and_count, "out long", name="machine")
    words = megaphone.unary(control, source.frame, "word", by_word, "out long", name="words")
    arrays = megaphone.unary(
        control, source.frame, "word", histogram, "out long", state=lambda: np.zeros(3, np.int64), name="arrays"
    )
    return control, source, machine.union(words).union(arrays)


@pytest.fixture
def stopped(spark, feed, start):
    """The checkpoint of a query whose state has moved, and what was sent to it."""
    control, source, frame = query(spark, feed)
    running = start(frame)
    source.send(*ROWS[:3])
    running.settle()
    control.migrate([(bin + 1) % 3 for bin in range(BINS)], "batched", batch=5).wait(120)
    source.send(*ROWS[3:])
    running.settle()
    control.drain(0, "all_at_once").wait(120)
    running.query.stop()
    return running._checkpoint, [row for rows in ROWS for row in rows]


def test_state_is_that_of_everything_sent(spark, stopped):
    checkpoint, sent = stopped
    state = megaphone.read_state(spark, checkpoint)
    assert [(field.name, field.dataType.simpleString()) for field in state.schema] == [
        ("operator", "string"),
        ("bin", "int"),
        ("key", "string"),
        ("state", "string"),
    ]
    rows = state.collect()
    assert {row.operator for row in rows} == {"machine", "words", "arrays"}
    counts = Counter((word, n) for word, n, _ in sent)
    machine = {row.key: json.loads(row.state) for row in rows if row.operator == "machine"}
    assert machine == {
        json.dumps({"word": word, "n": n}, separators=(",", ":")): {"n": times, "last": 1.5}
        for (word, n), times in counts.items()
    }
    words = [(row.key, int(row.state)) for row in rows if row.operator == "words"]
    assert sorted(words) == sorted(Counter(word for word, _, _ in sent).items())
    arrays = [row for row in rows if row.operator == "arrays"]
    assert {row.key for row in arrays} == {None}
    assert len(arrays) == len({row.bin for row in arrays}) == len({row.bin for row in rows if row.operator == "words"})
    assert np.sum([json.loads(row.state) for row in arrays], axis=0).tolist() == [
        sum(n == which for _, n, _ in sent) for which in range(3)
    ]


def test_format_reads_one_operator_in_parts(spark, stopped):
    checkpoint, sent = stopped
    state = (
        spark.read.format("megaphone-state").option("operator", "words").option("partitions", 4).load(str(checkpoint))
    )
    total = state.select(sf.sum(sf.col("state").cast("long"))).first()[0]
    assert total == len(sent)
    assert 4 <= state.rdd.getNumPartitions() <= 4 + 3
    assert state.where("key = 'w3'").count() == 1
    value = megaphone.read_state(spark, checkpoint, "machine").select(sf.get_json_object("key", "$.word")).distinct()
    assert value.count() == 7


def test_torn_file_is_refused_by_name(spark, stopped):
    checkpoint, _ = stopped
    store = checkpoint / "megaphone" / "control0"
    for torn in (store / "log").glob("*-words-*"):
        torn.write_bytes(torn.read_bytes()[:-1])
    with pytest.raises(PySparkException, match=r"control0/log/\d+-0001-words-\d-\d+ is truncated or damaged"):
        megaphone.read_state(spark, checkpoint).collect()
    assert megaphone.read_state(spark, checkpoint, "machine").count() == 21
    (store / "manifest").write_bytes(b"torn")
    with pytest.raises(megaphone.CheckpointError, match="manifest is not a manifest of Megaphone's"):
        megaphone.read_state(spark, checkpoint)


def test_what_is_wrong_is_said_when_it_is_loaded(spark, stopped, tmp_path):
    checkpoint, _ = stopped
    with pytest.raises(megaphone.CheckpointError, match=r"no operator named 'word' in .*; choose from "):
        megaphone.read_state(spark, checkpoint, "word")
    with pytest.raises(megaphone.CheckpointError, match=r"there is no .*/nowhere; give the checkpoint location"):
        megaphone.read_state(spark, tmp_path / "nowhere")
    with pytest.raises(PySparkException, match=r"there is no .*/nowhere; give the checkpoint location"):
        spark.read.format("megaphone-state").load(str(tmp_path / "nowhere"))
    with pytest.raises(PySparkException, match="without a path"):
        spark.read.format("megaphone-state").load()
    with pytest.raises(PySparkException, match="0 partitions asked for; choose 1 or more"):
        spark.read.format("megaphone-state").option("partitions", 0).load(str(checkpoint))


def test_query_that_rests_is_read_and_one_that_goes_on_is_refused(spark, feed, start):
    _, source, frame = query(spark, feed)
    running = start(frame)
    source.send(ROWS[0])
    running.settle()
    state = megaphone.read_state(spark, running._checkpoint, "words")
    assert sum(int(row.state) for row in state.collect()) == len(ROWS[0])
    source.send(ROWS[1])
    running.settle()
    with pytest.raises(PySparkException, match=r"goes on: it came to epoch \d while its state after epoch"):
        state.collect()
    state = megaphone.read_state(spark, running._checkpoint, "words")
    assert sum(int(row.state) for row in state.collect()) == 2 * len(ROWS[0])


def test_checkpoint_that_everybody_can_write_to_is_read_and_gone_on_from_only_if_it_is_trusted(spark, feed, start):
    control = megaphone.Control(spark, workers=1, bins=2)
    source = feed("word string, n long")
    running = start(megaphone.state_machine(control, source.frame, "word", last_and_count, "out long"))
    checkpoint = running._checkpoint
    source.send([("a", 1)])
    running.settle()
    running.query.stop()
    checkpoint.chmod(0o777)
    state = spark.read.format("megaphone-state").load(str(checkpoint))
    refused = r"checkpoint0, which belongs to uid \d+, can be written to by everybody"

    def go_on():
        query = running.query = running.writer.start()
        source.send([("a", 2)])
        query.processAllAvailable()

    for use in (state.collect, lambda: megaphone.read_state(spark, checkpoint), go_on):
        with pytest.raises((PySparkException, megaphone.CheckpointError), match=refused):
            use()
    spark.conf.set(SWITCH, "true")
    try:
        assert state.count() == megaphone.read_state(spark, checkpoint).count() == 1
        go_on()
    finally:
        spark.conf.unset(SWITCH)
