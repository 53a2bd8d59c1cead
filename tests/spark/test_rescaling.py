"""More and fewer workers than slots, and other numbers of workers while the query runs.

Would catch a worker whose slot nobody feeds, bins lost with a surplus worker, and a surplus worker that stays.
"""

import os
from collections import Counter

import pytest

import megaphone
from megaphone.errors import PlanError

BINS, KEYS = 16, 60


def count(key, _, n):
    """A running count, and where."""
    n = (n or 0) + 1
    return n, [(key, n, os.getpid())]


def counting(spark, feed, workers, slots):
    """A count on some workers, fed through some slots."""
    control = megaphone.Control(spark, workers=workers, bins=BINS, slots=slots)
    source = feed("k long")
    return control, source, megaphone.state_machine(control, source.frame, "k", count, "k long, n long, pid int")


def workers(control) -> dict[int, tuple[int, int]]:
    """The process of each worker, and how many bins it has."""
    (status,) = control.status()
    return {worker.worker: (worker.pid, worker.bins) for worker in status.workers}


def check(running, source) -> None:
    """One more record of each key, and every count is right."""
    source.send([(key,) for key in range(KEYS)])
    running.settle()
    times = len(source.sent)
    assert Counter((row.k, row.n) for row in running.outputs) == Counter(
        (key, n) for key in range(KEYS) for n in range(1, times + 1)
    )


def test_more_workers_than_slots(spark, feed, start):
    control, source, counts = counting(spark, feed, workers=5, slots=2)
    running = start(counts)
    check(running, source)
    control.migrate([4 - bin % 5 for bin in range(BINS)], "optimized").wait(120)
    check(running, source)
    assert len({row.pid for row in running.outputs}) == 5
    assert {row.pid for row in running.outputs} == {pid for pid, _ in workers(control).values()}


def test_more_slots_than_workers(spark, feed, start):
    control, source, counts = counting(spark, feed, workers=1, slots=3)
    running = start(counts)
    check(running, source)
    check(running, source)
    assert {row.pid for row in running.outputs} == {workers(control)[0][0]}


def test_number_of_workers_changes_while_the_query_runs(spark, feed, start, wait_until, worker_processes):
    control, source, counts = counting(spark, feed, workers=1, slots=2)
    running = start(counts)
    check(running, source)
    assert control.rescale(4, "batched", batch=5).wait(120).bins_moved == BINS - BINS // 4
    check(running, source)
    four = workers(control)
    assert [bins for _, bins in four.values()] == [4, 4, 4, 4]
    assert {row.pid for row in running.by_epoch[max(running.by_epoch)]} == {pid for pid, _ in four.values()}
    assert control.rescale(2, "all_at_once").wait(120).phase == "done"
    wait_until(lambda: len(workers(control)) == 2, "two workers")
    gone = {pid for worker, (pid, _) in four.items() if worker >= 2}
    wait_until(lambda: not gone & worker_processes().keys(), "the end of the surplus processes")
    check(running, source)
    # What went may come again: as new processes, with nothing left of the old ones.
    assert control.rescale(3, "fluid").wait(120).phase == "done"
    check(running, source)
    assert sorted(bins for _, bins in workers(control).values()) == [5, 5, 6]


def test_surplus_workers_end_when_they_own_nothing_already(spark, feed, start, wait_until):
    control, source, counts = counting(spark, feed, workers=3, slots=2)
    running = start(counts)
    check(running, source)
    control.drain(2, "all_at_once").wait(120)
    # Nothing is left to move, and no data comes: the process must go all the same.
    assert control.rescale(2).wait(120).plan.steps == ()
    wait_until(lambda: len(workers(control)) == 2, "two workers")
    check(running, source)


def test_worker_that_is_wanted_again_stays(spark, feed, start):
    control, source, counts = counting(spark, feed, workers=3, slots=2)
    running = start(counts)
    check(running, source)
    control.rescale(2, "fluid")
    last = control.migrate([2] * BINS, "all_at_once")
    assert last.wait(120).phase == "done"
    check(running, source)
    check(running, source)
    assert workers(control)[2][1] == BINS


def test_rescaling_twice_to_the_same_number_ends_no_worker_that_owns_bins(spark, feed, start, wait_until):
    control, source, counts = counting(spark, feed, workers=4, slots=2)
    running = start(counts)
    check(running, source)
    first = control.rescale(2, "fluid")
    assert control.rescale(2).wait(120).plan.steps == ()
    assert first.wait(120).phase == "done"
    check(running, source)
    wait_until(lambda: len(workers(control)) == 2, "two workers")
    assert control.status()[0].recoveries == ()


def test_verb_right_after_a_restart_means_the_run_that_is_alive(spark, feed, new_query, tmp_path):
    """And is done there, once: it is not found in the checkpoint at the next start."""
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("k long")
    counts = megaphone.state_machine(control, source.frame, "k", count, "k long, n long, pid int")
    phases, runs = [], []
    for start in range(3):
        running = new_query(counts, tmp_path / "checkpoint")
        try:
            if start < 2:
                phases.append(control.migrate([start] * BINS).wait(120).phase)
            source.send([(key,) for key in range(10)])
            running.settle()
            (status,) = control.status()
            runs.append((status.run, [migration.number for migration in control.history()]))
            assert status.run == str(running.query.runId)
        finally:
            running.query.stop()
        with pytest.raises(PlanError, match="no query is running"):
            control.migrate([0] * BINS)
    assert phases == ["done", "done"]
    assert [numbers for _, numbers in runs] == [[0], [0, 1], [0, 1]]
    assert set(status.assignment.owners) == {1}


def test_rescale_right_after_another_gets_its_workers(spark, feed, start, wait_until, monkeypatch):
    """The first used to let go of workers that the second was waiting for; and what is refused leaves none behind."""
    control, source, counts = counting(spark, feed, workers=2, slots=2)
    running = start(counts)
    check(running, source)
    first = control.rescale(1, "all_at_once")
    second = control.rescale(3, "all_at_once")
    assert (first.wait(120).phase, second.wait(120).phase) == ("done", "done")
    check(running, source)
    assert sorted(bins for _, bins in workers(control).values()) == [5, 5, 6]
    for refused in (lambda: control.rescale(4, at=0), lambda: control.plan("rescale", workers=4, at=0)):
        with pytest.raises(PlanError, match="time 0 is behind the frontier"):
            refused()
    check(running, source)
    assert len(workers(control)) == 3

    def wait_and_go_on(of, number):
        wait_for_workers(of, number)
        assert len(workers(control)) == 4
        check(running, source)

    wait_for_workers = control._await_workers
    monkeypatch.setattr(control, "_await_workers", wait_and_go_on)
    with pytest.raises(PlanError, match="is behind the frontier"):
        control.rescale(4, at=control.status()[0].epoch + 2)
    wait_until(lambda: len(workers(control)) == 3, "the end of the worker of a rescale that was refused")
    check(running, source)
