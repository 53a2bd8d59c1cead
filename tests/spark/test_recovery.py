"""A query goes on from its checkpoint, and a worker from its bins, as if nothing had happened.

Would catch state that is lost, doubled or stale after a worker, or the whole query, has ended and come back.
"""

import os
import shutil
import signal
import time
from collections import Counter

import numpy as np
import psutil
import pytest

import megaphone
from megaphone.engine.spark.messages import Key, PlanQuestion

BINS, KEYS = 16, 40
OUT = "k long, n long"


def count(key, _, n):
    """A running count."""
    n = (n or 0) + 1
    return n, [(key, n)]


def count_by_hundreds(key, _, n):
    """The same state, other outputs."""
    n = (n or 0) + 1
    return n, [(key, 100 * n)]


@megaphone.vectorised
def tally(records, states, notificator):
    """Counts in NumPy arrays that are changed in place."""
    outputs = []
    for bin, start, stop in records.spans():
        for key in records.column("k")[start:stop].tolist():
            states[bin][key] += 1
            outputs.append((key, int(states[bin][key])))
    return dict(zip(("k", "n"), zip(*outputs, strict=True), strict=True)) if outputs else None


def remind(time, data, state, notificator):
    """Every record comes back once, ten later, with how many there have been."""
    for row in data:
        if row.again:
            notificator.notify_at(time + 10, (row.k, time + 10, False))
        state[row.k] = state.get(row.k, 0) + 1
        yield (row.k, state[row.k])


def everything(sent) -> Counter:
    """What a running count gives, in any order."""
    totals = Counter(key for rows in sent for (key,) in rows)
    return Counter((key, n) for key, total in totals.items() for n in range(1, total + 1))


def some(seed: int) -> list[tuple[int]]:
    """An epoch's worth of keys."""
    return [(int(key),) for key in np.random.default_rng(seed).integers(0, KEYS, 30)]


def kill(pid: int) -> None:
    """At once, and gone."""
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], 10)


def machine(control, frame, fold=count):
    """A running count of keys."""
    return megaphone.state_machine(control, frame, "k", fold, OUT, name="count")


@pytest.fixture
def again(tmp_path, new_query):
    """Start a query on one and the same checkpoint, time and again; its outputs so far stay."""
    started = []

    def again(frame, **options):
        if started:
            started[-1].query.stop()
        running = new_query(frame, tmp_path / "checkpoint", **options)
        if started:
            running.by_epoch = started[-1].by_epoch
        started.append(running)
        return running

    yield again
    started[-1].query.stop()


@pytest.mark.parametrize("strategy", ["none", "fluid", "batched", "optimized", "all_at_once"])
def test_killed_worker_is_replaced_and_nothing_is_lost(spark, feed, start, strategy):
    control = megaphone.Control(spark, workers=3, bins=BINS)
    source = feed("k long")
    running = start(machine(control, source.frame))
    source.send(*map(some, range(4)))
    running.settle()
    (status,) = control.status()
    if strategy != "none":
        migration = control.migrate([(owner + 1) % 3 for owner in status.assignment.owners], strategy)
        source.send(some(4))
    kill(status.workers[0].pid)
    source.send(*map(some, range(5, 8)))
    running.settle()
    kill(control.status()[0].workers[2].pid)
    source.send(*map(some, range(8, 11)))
    running.settle()
    if strategy != "none":
        assert migration.wait(120).phase == "done"
    assert Counter(map(tuple, running.outputs)) == everything(source.sent)
    assert len(control.status()[0].workers) == 3


def test_state_that_cannot_travel_any_more_when_its_step_comes_fails_the_query_only_once(
    spark, feed, again, wait_until
):
    """It used to fail at every start: the epoch was planned with the same move time and again."""

    def hoard(key, _, state):
        n = (state[0] if state else 0) + 1
        return (n, (letter for letter in "ab") if n > 1 else None), [(key, n)]

    source = feed("k long")
    control = megaphone.Control(spark, workers=2, bins=BINS)
    running = again(machine(control, source.frame, hoard))
    source.send([(key,) for key in range(KEYS)])
    running.settle()
    (before,) = control.status()
    migration = control.update([1 - owner for owner in before.assignment.owners], at=before.epoch + 2)
    wait_until(lambda: migration.cleared)
    source.send(*[[(key,) for key in range(KEYS)]] * 2)
    with pytest.raises(Exception, match=r"FoldError: state of operator count .* cannot travel"):
        running.settle()
    assert migration.wait(60).phase == "failed"
    control = megaphone.Control(spark, workers=2, bins=BINS)
    running = again(machine(control, source.frame, hoard))
    source.send(some(0))
    running.settle()
    (status,) = control.status()
    assert [(past.phase, past.reason) for past in control.history()] == [("failed", migration.reason)]
    assert status.assignment == before.assignment
    assert Counter(map(tuple, running.outputs)) == everything(source.sent)


@pytest.mark.parametrize("workers", [2, 1, 5])
def test_restarted_query_continues_whatever_its_workers(spark, feed, again, workers):
    source = feed("k long")
    for number, size in enumerate((2, workers, workers)):
        control = megaphone.Control(spark, workers=size, bins=BINS)
        running = again(machine(control, source.frame))
        source.send(*map(some, range(3 * number, 3 * number + 3)))
        running.settle()
        (status,) = control.status()
        assert sum(worker.bins for worker in status.workers) == BINS
        assert len(status.workers) == size
    assert Counter(map(tuple, running.outputs)) == everything(source.sent)


def test_workers_of_a_rescaled_query_are_as_many_after_a_restart(spark, feed, again):
    source = feed("k long")
    for workers in (2, 4):
        control = megaphone.Control(spark, workers=2, bins=BINS)
        running = again(machine(control, source.frame))
        source.send(some(workers))
        running.settle()
        if workers == 2:
            control.rescale(workers=4).wait(120)
        else:
            assert len(control.status()[0].workers) == 4


def test_arrays_changed_in_place_survive_a_restart(spark, feed, again):
    source = feed("k long")
    for number in range(2):
        control = megaphone.Control(spark, workers=2, bins=BINS)
        zeros = lambda: np.zeros(KEYS, np.int64)  # noqa: E731
        running = again(megaphone.unary(control, source.frame, "k", tally, OUT, state=zeros))
        source.send(*map(some, range(20 * number, 20 * number + 20)))
        running.settle()
    assert Counter(map(tuple, running.outputs)) == everything(source.sent)


def test_changed_fold_continues_on_the_old_state(spark, feed, again):
    source = feed("k long")
    for fold in (count, count_by_hundreds):
        running = again(machine(megaphone.Control(spark, workers=2, bins=BINS), source.frame, fold))
        source.send([(1,), (2,)])
        running.settle()
    assert sorted(map(tuple, running.outputs)) == [(1, 1), (1, 200), (2, 1), (2, 200)]


def test_operator_that_was_built_twice_goes_on_when_it_is_built_on_a_new_control(spark, feed, again):
    """As the error says."""
    source = feed("k long")
    control = megaphone.Control(spark, workers=2, bins=BINS)

    def cell(control):
        running = again(megaphone.state_machine(control, source.frame, "k", count, OUT))
        source.send([(1,)])
        running.settle()
        return running

    cell(control)
    with pytest.raises(Exception, match=r"notebook cell is run.*make a new Control"):
        cell(control)
    running = cell(megaphone.Control(spark, workers=2, bins=BINS))
    assert max(row.n for row in running.outputs) == len(source.sent)


def test_migration_under_way_is_resumed_after_a_restart(spark, feed, again):
    source = feed("k long")
    control = megaphone.Control(spark, workers=2, bins=BINS)
    running = again(machine(control, source.frame))
    source.send(*map(some, range(3)))
    running.settle()
    migration = control.migrate([1] * BINS, "fluid")
    running.until(lambda: migration.completed >= 2, "two steps")
    running.query.stop()
    control = megaphone.Control(spark, workers=2, bins=BINS)
    running = again(machine(control, source.frame))
    source.send(*map(some, range(3, 6)))
    running.settle()
    (resumed,) = control.history()
    assert resumed.wait(120).phase == "done"
    assert resumed.completed == len(resumed.plan.steps)
    assert (control.status()[0].assignment.owners == 1).all()
    assert Counter(map(tuple, running.outputs)) == everything(source.sent)


def test_what_is_pending_survives_a_restart_and_a_killed_worker(spark, feed, again):
    source = feed("k long, t long, again boolean")
    for number in range(3):
        control = megaphone.Control(spark, workers=2, bins=BINS)
        frame = megaphone.unary(control, source.frame, "k", remind, OUT, time="t")
        running = again(frame)
        source.send([(key, 5 * number, True) for key in range(KEYS)])
        running.settle()
        kill(control.status()[0].workers[0].pid)
    source.send([(0, 1000, False)])
    running.settle()
    # Of times 0, 5 and 10, each twice; key 0 once more, at a time that the frontier has not passed.
    assert Counter(map(tuple, running.outputs)) == Counter((key, n) for key in range(KEYS) for n in range(1, 7))


def test_second_bounded_run_goes_on_where_the_first_one_ended(spark, feed, again):
    source = feed("k long, t long, again boolean")
    for number in range(3):
        control = megaphone.Control(spark, workers=2, bins=BINS)
        source.send([(key, 20 * number, True) for key in range(KEYS)])
        running = again(megaphone.unary(control, source.frame, "k", remind, OUT, time="t"), availableNow=True)
        running.query.awaitTermination()
    assert Counter(map(tuple, running.outputs)) == Counter((key, n) for key in range(KEYS) for n in range(1, 7))


def test_bounded_run_that_dies_as_it_closes_loses_nothing_of_the_next(spark, feed, again, tmp_path):
    source = feed("k long, t long, again boolean")
    for number in range(2):
        control = megaphone.Control(spark, workers=2, bins=BINS)
        source.send([(key, 20 * number, True) for key in range(KEYS)])
        running = again(megaphone.unary(control, source.frame, "k", remind, OUT, time="t"), availableNow=True)
        running.query.awaitTermination()
        # As if the driver had died before Spark could commit the epoch in which the inputs were closed.
        last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
    assert Counter(map(tuple, running.outputs)) == Counter((key, n) for key in range(KEYS) for n in range(1, 5))


def test_task_that_outlives_its_run_begins_no_other(spark, feed, start):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("k long")
    running = start(machine(control, source.frame))
    source.send(some(0))
    running.settle()
    question = PlanQuestion(Key(str(running.query.id), "an earlier run", control.name), 0, -1, "executor")
    with pytest.raises(megaphone.PlanError, match=r"run an earlier run of query .* has ended"):
        control.coordinator._begun(question)
    source.send(some(1))
    running.settle()
    assert Counter(map(tuple, running.outputs)) == everything(source.sent)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"exchange": "j"}, "operator count is keyed by k in the checkpoint, j in the query"),
        ({"bins": 32}, "the checkpoint has 16 bins, the control 32"),
        ({"name": "tally"}, "operator count is in the checkpoint and not in the query"),
        ({"columns": "k long, j string"}, "operator count reads k int64, j int64 in the checkpoint, k int64, j string"),
        ({"time": "k"}, "operator count tells time by epoch in the checkpoint, column k in the query"),
    ],
)
def test_change_that_does_not_fit_is_refused_and_named(spark, feed, again, change, told):
    source = feed("k long, j long")

    def query(bins=BINS, exchange="k", name="count", columns="k long, j long", time=None):
        control = megaphone.Control(spark, workers=2, bins=bins)
        names = [f"cast({part.split()[0]} as {part.split()[1]})" for part in columns.split(", ")]
        frame = source.frame.selectExpr(
            *(f"{n} as {p.split()[0]}" for n, p in zip(names, columns.split(", "), strict=True))
        )
        fold = lambda key, value, n: ((n or 0) + 1, [(1, 1)])  # noqa: E731
        return megaphone.state_machine(control, frame, exchange, fold, OUT, name=name, time=time)

    running = again(query())
    source.send([(1, 1)])
    running.settle()
    running = again(query(**change))
    source.send([(1, 1)])
    with pytest.raises(Exception, match="CheckpointError") as failure:
        running.settle()
    assert told in str(failure.value)
    running = again(query())
    running.settle()


def test_log_levels_off(spark, feed, start, tmp_path):
    control = megaphone.Control(spark, workers=2, bins=BINS, snapshot_share=0.5)
    source = feed("k long")
    running = start(machine(control, source.frame))
    counts = []
    for round in range(7):
        source.send(*(some(30 * round + epoch) for epoch in range(30)))
        running.settle()
        folder = tmp_path / "checkpoint0" / "megaphone" / "control0" / "log"
        counts.append(sum(1 for path in folder.iterdir()))
    # Two entries an epoch; bins are kept when they are 64 epochs old, and the log is cut every 16.
    assert max(counts) < 2 * 150, counts
    assert counts[-1] < 2 * 30 * 7 * 0.75
    assert Counter(map(tuple, running.outputs)) == everything(source.sent)


def test_restart_without_its_state_is_refused(spark, feed, again, tmp_path):
    source = feed("k long")
    running = again(machine(megaphone.Control(spark, workers=1, bins=BINS), source.frame))
    source.send(some(0))
    running.settle()
    running.query.stop()
    shutil.rmtree(tmp_path / "checkpoint" / "megaphone")
    running = again(machine(megaphone.Control(spark, workers=1, bins=BINS), source.frame))
    source.send(some(1))
    with pytest.raises(Exception, match="has no state of its operators; start with a new checkpoint location"):
        running.settle()


def test_workers_recover_in_parallel(spark, feed, again, tmp_path):
    source = feed("k long")

    def slow(key, _, n):
        # While it recovers, and only then: long enough for the others to begin.
        if (tmp_path / "slow").exists():
            time.sleep(0.05)
        return count(key, None, n)

    for number in range(2):
        control = megaphone.Control(spark, workers=3, bins=BINS)
        running = again(machine(control, source.frame, slow))
        source.send(*map(some, range(4 * number, 4 * number + 4)))
        running.settle()
        running.query.stop() if number == 0 else None
        (tmp_path / "slow").touch()
    recoveries = control.status()[0].recoveries
    assert sorted(recovery.worker for recovery in recoveries) == [0, 1, 2]
    assert max(recovery.began_s for recovery in recoveries) < min(recovery.ended_s for recovery in recoveries)
    assert Counter(map(tuple, running.outputs)) == everything(source.sent)


def test_worker_that_was_stopped_comes_back_as_nobody(spark, feed, start, wait_until):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("k long")
    running = start(machine(control, source.frame))
    source.send(some(0))
    running.settle()
    old = {worker.pid for worker in control.status()[0].workers}
    stopped = min(old)
    os.kill(stopped, signal.SIGSTOP)
    try:
        source.send(*map(some, range(1, 4)))
        # The task that feeds it waits until the coordinator has given it up.
        running.settle()
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: not psutil.pid_exists(stopped), "the end of the stale worker")
    source.send(*map(some, range(4, 6)))
    running.settle()
    assert stopped not in {worker.pid for worker in control.status()[0].workers}
    assert Counter(map(tuple, running.outputs)) == everything(source.sent)
