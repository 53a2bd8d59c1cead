"""Event time on Spark: records that wait for their time, and reconfigurations that have one.

Would catch a pending record that stays behind when its bin moves, an update that takes effect a record too early or
too late, and a late record that is applied, or not counted.
"""

import os
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

import megaphone

BINS, KEYS = 8, 30


def alarm(time, data, state, notificator):
    """Each record rings again a hundred times later; `n` counts a key's rings and records."""
    for row in data:
        state[row.k] = state.get(row.k, 0) + 1
        if not row.ring:
            notificator.notify_at(time + 100, row._replace(ring=True))
        yield row.k, row.ring, time, state[row.k], os.getpid()


OUTPUT = "k long, ring boolean, time long, n long, pid int"


@pytest.fixture
def alarms(spark, feed, start):
    """Alarms on two workers, all bins on the first."""
    control = megaphone.Control(spark, workers=2, bins=BINS, assignment=[0] * BINS)
    source = feed("k long, t long, ring boolean")
    running = start(megaphone.unary(control, source.frame, "k", alarm, OUTPUT, time="t", name="alarm"))
    return control, source, running


def rows(time, keys=range(KEYS)):
    """A record for each key at a time."""
    return [(key, time, False) for key in keys]


def pids(control):
    """The process of each worker."""
    (status,) = control.status()
    return [worker.pid for worker in status.workers]


def bins_by_worker(control):
    (status,) = control.status()
    assert [len(status.assignment.bins_of(worker.worker)) for worker in status.workers] == [
        worker.bins for worker in status.workers
    ]
    return [worker.bins for worker in status.workers]


def last_of(time, data, state, notificator):
    """The times of a bin, as they are applied."""
    return [(row[0], time) for row in data]


@pytest.fixture
def berlin(spark):
    """A session whose clock leaves out an hour on the 29th of March."""
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(("kind", "zone"), [("timestamp", "Europe/Berlin"), ("timestamp_ntz", "UTC")])
def test_timestamp_is_a_moment_and_one_without_a_zone_is_taken_as_written(spark, berlin, kind, zone):
    """By way of the session's zone, 02:30 was the same moment as 03:30, and came after 03:00."""
    control = megaphone.Control(spark, workers=2, bins=8)
    rows = spark.sql(f"SELECT id AS k, CAST('2026-03-29 0' || id || ':30:00' AS {kind}) AS at FROM range(5)")
    given = megaphone.unary(control, rows, "k", last_of, "k long, t long", time="at").collect()
    written = [datetime(2026, 3, 29, k, 30, tzinfo=ZoneInfo(zone)) for k in range(5)]
    assert sorted(map(tuple, given)) == [(k, int(at.timestamp()) * 1_000_000) for k, at in enumerate(written)]


def test_pending_records_fire_where_their_bin_has_moved(alarms):
    control, source, running = alarms
    source.send(rows(10), rows(20, [0]))
    running.settle()
    migration = control.migrate([1] * BINS, "fluid").wait(120)
    assert migration.bins_moved == BINS
    source.send(rows(500, [0]))
    running.settle()
    old, new = pids(control)
    applied = {(row.ring, row.time, row.pid) for row in running.outputs if row.k != 0}
    assert applied == {(False, 10, old), (True, 110, new)}
    assert sorted(row.n for row in running.outputs if row.k == 1) == [1, 2]
    assert sum(row.ring for row in running.outputs) == KEYS + 1


def test_future_update_takes_effect_exactly_at_its_time(alarms):
    control, source, running = alarms
    source.send(rows(10))
    running.settle()
    migration = control.update([1] * BINS, at=150)
    source.send([row for time in (149, 150, 151) for row in rows(time)], rows(120, range(5)))
    running.settle()
    # The frontier is at 151, past the update: but what came with it had to wait for the bins.
    assert migration.wait(120).phase == "done"
    source.send(rows(1000, [0]))
    running.settle()
    old, new = pids(control)
    assert {row.time for row in running.outputs if row.pid == old} == {10, 110, 149}
    assert {row.time for row in running.outputs if row.pid == new} >= {150, 151, 249, 250, 251}
    assert len(running.outputs) == 4 * KEYS * 2
    (status,) = control.status()
    assert status.late == {"alarm": 5}


def test_update_waits_until_the_frontier_reaches_its_time(alarms):
    control, source, running = alarms
    source.send(rows(10))
    running.settle()
    migration = control.update({0: 1}, at=150)
    source.send(rows(149))
    running.settle()
    assert (migration.issued, migration.completed) == (1, 0)
    assert bins_by_worker(control) == [BINS, 0]
    source.send(rows(150))
    running.settle()
    assert migration.wait(120).phase == "done"
    assert bins_by_worker(control) == [BINS - 1, 1]


def test_late_record_is_late_to_a_worker_that_is_new(alarms):
    control, source, running = alarms
    source.send(rows(10))
    running.settle()
    control.update([1] * BINS, at=150)
    # The second of these is the first epoch of the new worker; its records at 120 are late there as anywhere.
    source.send(rows(150), rows(120) + rows(151), rows(1000, [0]))
    running.settle()
    (status,) = control.status()
    assert status.late == {"alarm": KEYS}
    assert not [row for row in running.outputs if row.time == 120]


def test_timestamps_are_times_in_microseconds(spark, feed, start):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("k long, at timestamp")

    def tell(time, data, state, notificator):
        yield from ((row.k, time) for row in data)

    running = start(
        megaphone.unary(control, source.frame, "k", tell, "k long, time long", time="at", lateness=1_000_000)
    )
    source.send([(1, "1970-01-01T00:00:05Z"), (2, "1970-01-01T00:00:06.500Z")], [(3, "1970-01-01T00:01:00Z")])
    running.settle()
    assert sorted(map(tuple, running.outputs)) == [(1, 5_000_000), (2, 6_500_000)]
