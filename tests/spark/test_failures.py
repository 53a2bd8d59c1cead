"""What the user's mistakes look like: columns that are not there, folds that raise, rows that do not fit.

Would catch a mistake that shows only hours later, or as an error that does not say where and why.
"""

import re
import threading
from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

import megaphone
from megaphone import PlanError
from megaphone.bins import Bins
from megaphone.dataflow.hashing import hash_columns

BINS = 8


def count(key, _, n):
    """A running count."""
    return (n or 0) + 1, [(key, (n or 0) + 1)]


def per_bin(time, data, state, notificator):
    """Nothing."""
    return ()


@pytest.fixture
def control(spark):
    """Two workers."""
    return megaphone.Control(spark, workers=2, bins=BINS)


@pytest.fixture
def rows(feed):
    """A stream that never starts."""
    return feed("k long, t long, word string").frame


OUT, LOCAL = "k long, n long", "k long, t timestamp_ntz"

MISTAKES = {
    "no such key": (
        lambda c, f: megaphone.state_machine(c, f, "kk", count, OUT),
        "no key column 'kk'; the input has k, t, word",
    ),
    "no such key for a bin": (
        lambda c, f: megaphone.unary(c, f, ["k", "nope"], per_bin, OUT),
        "no key column 'nope'; the input has k, t, word",
    ),
    "no such key on the right": (
        lambda c, f: megaphone.binary(c, f, f, "k", "nope", per_bin, OUT),
        "no key column 'nope'; the input has k, t, word",
    ),
    "no exchange": (
        lambda c, f: megaphone.unary(c, f, [], per_bin, OUT),
        "an exchange without columns; name at least one",
    ),
    "no such time": (
        lambda c, f: megaphone.unary(c, f, "k", per_bin, OUT, time="at"),
        "no time column 'at'; the input has k, t, word",
    ),
    "time of another type": (
        lambda c, f: megaphone.unary(c, f, "k", per_bin, OUT, time="word"),
        "time column 'word' is of type string; choose long or timestamp",
    ),
    "lateness below zero": (
        lambda c, f: megaphone.unary(c, f, "k", per_bin, OUT, time="t", lateness=-1),
        "lateness -1; choose 0 or more",
    ),
    "expression without key": (
        lambda c, f: megaphone.state_machine(c, f, sf.xxhash64("k"), count, OUT),
        "needs key=, the columns that are the key",
    ),
    "half by epoch": (
        lambda c, f: megaphone.binary(c, f, f, "k", "k", per_bin, OUT, time=("t", None)),
        "has one input by epoch and one by column; choose one for both",
    ),
    "our own name": (
        lambda c, f: megaphone.unary(c, f.withColumnRenamed("word", "_bin"), "k", per_bin, OUT),
        "a column '_bin', a name that Megaphone uses itself; rename it",
    ),
    "a zone only before": (
        lambda c, f: megaphone.unary(
            c,
            megaphone.unary(
                c, f.selectExpr("k", "timestamp_micros(t) AS t"), "k", per_bin, LOCAL, time="t", name="one"
            ),
            "k",
            per_bin,
            OUT,
            time="t",
            name="two",
        ),
        "operator two has times without a zone, unlike one before it; cast the time column of one of them",
    ),
    "lateness in an unknown unit": (
        lambda c, f: megaphone.unary(c, f, "k", per_bin, OUT, time="t", lateness=timedelta(seconds=1)),
        "lateness of a timedelta for the time column 't' of type int64; give a number in the unit of its column",
    ),
    "name with a blank": (
        lambda c, f: megaphone.unary(c, f, "k", per_bin, OUT, name="my op"),
        "operator name 'my op'; choose letters, digits",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_shows_when_the_query_is_built(control, rows, mistake):
    build, reason = MISTAKES[mistake]
    with pytest.raises(PlanError, match=re.escape(reason)):
        build(control, rows)


def test_name_is_taken_once(control, rows):
    megaphone.unary(control, rows, "k", per_bin, OUT, name="twice")
    with pytest.raises(PlanError, match=r"'twice' was built on control .* before; .* make a new Control first"):
        megaphone.unary(control, rows, "k", per_bin, OUT, name="twice")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"workers": 0}, "0 workers asked for; choose 1 or more"),
        ({"workers": 2, "bins": 100}, "100 bins asked for; choose a power of two from 2 to 1048576"),
        ({"workers": 2, "bins": 4, "assignment": [0, 1]}, "a map of 2 owners for 4 bins"),
        ({"workers": 2, "bins": 2, "assignment": [0, 2]}, "bin 1 on worker 2, but there are 2 workers; choose 0 to 1"),
        ({"workers": 2, "name": "my control"}, "control name 'my control'; choose letters, digits"),
    ],
)
def test_control_that_cannot_be_is_refused(spark, arguments, reason):
    with pytest.raises(PlanError, match=reason):
        megaphone.Control(spark, **arguments)


def failure(running) -> str:
    """What the user sees of a query that fails."""
    with pytest.raises(Exception, match=r"STREAM_FAILED|terminated with exception") as caught:
        running.query.awaitTermination(120)
    assert not running.query.isActive
    assert "FoldError" in str(running.query.exception())
    return str(caught.value)


def test_fold_that_raises_fails_the_query_and_says_where(control, feed, start):
    source = feed("k long, v long")

    def divide(key, value, state):
        return (state or 0) + 100 // value, [(key, 0)]

    running = start(megaphone.state_machine(control, source.frame, "k", divide, OUT, name="ratio"))
    source.send([(1, 1), (2, 1)], [(3, 0)])
    told = failure(running)
    (bin,) = Bins.of_count(BINS).of_hashes(hash_columns([pa.array([3])])).tolist()
    epoch = next(epoch for epoch, read in running.read(source).items() if (3, 0) in read)
    first = next(line for line in told.splitlines() if "FoldError" in line)
    assert re.search(
        rf"FoldError: fold of operator ratio failed in bin {bin} at time {epoch} on worker \d: ZeroDivisionError: ",
        first,
    )
    # One frame of ours, then what the user needs to know.
    lines = told.splitlines()
    assert "in megaphone_S" in lines[lines.index(first) - 2]
    assert lines[lines.index(first) - 3].endswith("Traceback (most recent call last):")
    assert "in divide" in told
    assert "100 // value" in told


def test_fold_whose_rows_do_not_fit_fails_the_query_and_says_why(control, feed, start):
    source = feed("k long")

    def wrong(time, data, state, notificator):
        yield from ((row.k, "many") for row in data)

    running = start(megaphone.unary(control, source.frame, "k", wrong, OUT, name="misfit"))
    source.send([(1,)])
    told = failure(running)
    first = next(line for line in told.splitlines() if "FoldError" in line)
    assert "fold of operator misfit" in first
    assert "(1, 'many')" in first


def test_state_that_cannot_travel_fails_its_migration_and_the_query_goes_on(control, feed, start):
    """Of two operators that move together, one has such states."""
    source = feed("k long")

    def hoard(time, data, state, notificator):
        state["lock"] = threading.Lock()
        for row in data:
            state[row.k] = state.get(row.k, 0) + 1
            yield row.k, state[row.k]

    counts = megaphone.state_machine(control, source.frame, "k", count, OUT, name="count")
    running = start(megaphone.unary(control, counts, "k", hoard, OUT, name="hoard"))
    source.send([(key,) for key in range(30)])
    running.settle()
    reason = r"state of operator hoard in bin \d on worker \d cannot travel: .*cannot pickle '_thread.lock'"
    assert re.search(f"; it would fail: {reason}", str(control.plan("rescale", workers=3)))
    migration = control.rescale(3, "fluid").wait(60)
    assert (migration.phase, migration.bins_moved) == ("failed", 0)
    assert re.match(reason, migration.reason)
    source.send([(key,) for key in range(30)])
    running.settle()
    assert {tuple(row) for row in running.outputs} == {(key, n) for key in range(30) for n in (1, 2)}
    # The worker that was started for it is let go.
    running.until(lambda: len(control.status()[0].workers) == 2)


def test_null_in_the_time_column_fails_the_query_and_says_why(control, feed, start):
    source = feed("k long, t long")
    running = start(megaphone.unary(control, source.frame, "k", per_bin, OUT, time="t"))
    source.send([(1, None)])
    with pytest.raises(Exception, match="null in the time column 't'; filter such rows out before the operator"):
        running.settle()


def test_verb_without_a_query_says_so(spark, monkeypatch):
    control = megaphone.Control(spark, workers=2, bins=BINS, name="lonely")
    monkeypatch.setattr(type(control)._run, "__defaults__", (0.1,))
    with pytest.raises(PlanError, match="no query is running on control lonely; start one first"):
        control.rebalance()
