"""Tasks that fail and are tried again, sinks that use their input twice, queries that share an operator.

Would catch an epoch that is applied twice, or half, and state that leaks from one query into another.
"""

import os
import threading
from collections import Counter
from pathlib import Path

import megaphone

BINS, KEYS = 16, 40


def count(key, _, n):
    """A running count."""
    n = (n or 0) + 1
    return n, [(key, n)]


def counted(feed) -> Counter:
    """What a running count gives, in any order."""
    totals = Counter(key for rows in feed.sent for (key,) in rows)
    return Counter((key, n) for key, total in totals.items() for n in range(1, total + 1))


def fail_before(path: str):
    """A step that fails once, before it has read anything, when a file is there."""

    def step(batches):
        # Only one of the tasks can take it away.
        if _taken(path):
            raise RuntimeError("failed on purpose")
        yield from batches

    return step


def fail_after(path: str):
    """A step that fails once, after it has read everything."""

    def step(batches):
        yield from batches
        if _taken(path):
            raise RuntimeError("failed on purpose")

    return step


def _taken(path: str) -> bool:
    try:
        Path(path).rename(path + ".taken")
    except FileNotFoundError:
        return False
    return True


def test_failed_and_retried_tasks_in_a_migration_change_nothing(spark, feed, start, tmp_path, wait_until):
    control = megaphone.Control(spark, workers=3, bins=BINS)
    source = feed("k long")
    paths = [str(tmp_path / name) for name in ("before-F", "before-reading-S", "after-reading-S")]
    keys = source.frame.mapInArrow(fail_after(paths[0]), "k long")
    counts = megaphone.state_machine(control, keys, "k", count, "k long, n long")
    counts = counts.mapInArrow(fail_before(paths[1]), "k long, n long")
    running = start(counts.mapInArrow(fail_after(paths[2]), "k long, n long"))
    for path in paths:
        source.send([(key,) for key in range(KEYS)])
        running.settle()
        (status,) = control.status()
        migration = control.migrate([(owner + 1) % 3 for owner in status.assignment.owners], "fluid")
        running.until(lambda migration=migration: migration.completed, "a step")
        Path(path).touch()
        source.send([(key,) for key in range(KEYS)])
        # Every epoch of a fluid migration moves a bin: the one that fails does, too.
        running.until(Path(path + ".taken").exists, "a failure")
        assert migration.completed < BINS
        assert migration.wait(120).phase == "done"
    source.send([(key,) for key in range(KEYS)])
    running.settle()
    assert Counter(map(tuple, running.outputs)) == counted(source)


def test_sink_that_uses_its_output_twice_sees_the_same_rows(spark, feed, tmp_path):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("k long")
    counts = megaphone.state_machine(control, source.frame, "k", count, "k long, n long")
    seen: list[tuple[Counter, int, Counter]] = []

    def sink(frame, epoch):
        first, number = Counter(map(tuple, frame.collect())), frame.count()
        seen.append((first, number, Counter(map(tuple, frame.union(frame).collect()))))

    query = counts.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        source.send(*([(key,) for key in range(KEYS)] for _ in range(2)))
        query.processAllAvailable()
        control.migrate([1] * BINS, "batched", batch=4)
        source.send(*([(key,) for key in range(KEYS)] for _ in range(2)))
        query.processAllAvailable()
    finally:
        query.stop()
    for first, number, twice in seen:
        assert number == first.total()
        assert twice == first + first
    assert sum((first for first, _, _ in seen), Counter()) == counted(source)


def test_two_queries_over_one_operator_have_each_their_own_state(spark, feed, start):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("k long")

    def located(key, _, n):
        n = (n or 0) + 1
        return n, [(key, n, os.getpid())]

    counts = megaphone.state_machine(control, source.frame, "k", located, "k long, n long, pid int")
    source.send([(key,) for key in range(KEYS)])
    first = start(counts)
    first.settle()
    second = start(counts)
    source.send([(key,) for key in range(KEYS)])
    for running in (first, second):
        running.settle()
        assert Counter((row.k, row.n) for row in running.outputs) == counted(source)
    one, other = control.status()
    assert one.query != other.query
    pids = [{worker.pid for worker in status.workers} for status in (one, other)]
    assert not pids[0] & pids[1]
    by_query = {str(running.query.id): {row.pid for row in running.outputs} for running in (first, second)}
    assert by_query[one.query] <= pids[0]
    assert by_query[other.query] <= pids[1]


def test_job_that_does_not_know_its_query_is_refused(spark, feed, tmp_path):
    control = megaphone.Control(spark, workers=1, bins=BINS)
    source = feed("k long")
    counts = megaphone.state_machine(control, source.frame, "k", count, "k long, n long")
    errors: list[Exception] = []

    def sink(frame, epoch):
        def use():
            try:
                frame.collect()
            except Exception as error:
                errors.append(error)

        # A plain thread loses what Spark knows of the query: blank state would be used in silence.
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()

    query = counts.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        source.send([(1,)])
        query.processAllAvailable()
    finally:
        query.stop()
    assert errors
    assert "does not know its query; in foreachBatch, start threads with pyspark.InheritableThread" in str(errors[0])
