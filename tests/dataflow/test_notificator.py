"""Would catch a post-dated record replayed early, out of order, twice or never, and a queue that slows as it grows."""

import heapq

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from megaphone.dataflow.notificator import Notificator
from megaphone.dataflow.records import Records
from megaphone.progress import END, Time
from megaphone.testing import make_records

SCHEMA = pa.schema([("n", pa.int64())])
pushes = st.lists(st.integers(0, 20), max_size=6).map(lambda times: ("push", times))
drains = st.integers(0, 21).map(lambda bound: ("drain", bound))


def rows_of(records):
    return [] if records is None else list(zip(records.times.tolist(), records.data["n"].to_pylist(), strict=True))


def due_by_heap(heap, bound):
    due = []
    while heap and heap[0][0] < bound:
        due.append(heapq.heappop(heap))
    return due


@given(st.lists(pushes | drains, max_size=40))
def test_equals_a_heap(actions):
    pending, heap, count = Notificator(), [], 0
    for action, what in actions:
        if action == "push":
            rows = [(time, count + i) for i, time in enumerate(what)]
            count += len(rows)
            pending.push(make_records([(0, *row) for row in rows], SCHEMA))
            for row in rows:
                heapq.heappush(heap, row)
        else:
            assert rows_of(pending.drain(Time(what))) == due_by_heap(heap, what)
        assert len(pending) == len(heap)
        assert pending.next_time == (heap[0][0] if heap else END)
        assert rows_of(pending.pending()) == sorted(heap)


def test_a_million_entries_are_no_strain():
    """In a thousand pushes and a thousand drains; one that copied everything each time would move a billion rows."""
    rng = np.random.default_rng(1)
    pending, total = Notificator(), 0
    for _ in range(1000):
        times = rng.integers(0, 1000, 1000)
        data = pa.record_batch([pa.array(times)], schema=SCHEMA)
        pending.push(Records(np.zeros(1000, np.uint32), times, data))
    assert len(pending) == 1_000_000
    for bound in range(1, 1001):
        due = pending.drain(Time(bound))
        assert due is not None
        assert (due.times == bound - 1).all()
        assert due.data["n"].to_numpy().tolist() == due.times.tolist()
        total += len(due)
    assert (total, len(pending)) == (1_000_000, 0)


def test_pushes_are_few_runs():
    pending = Notificator()
    for time in range(2000):
        pending.push(make_records([(0, time, time)], SCHEMA))
    assert len(pending._runs) <= 12


def test_pending_stays():
    pending = Notificator()
    pending.push(make_records([(0, 5, 1)], SCHEMA))
    assert rows_of(pending.pending()) == rows_of(pending.pending()) == [(5, 1)]


def test_nothing_pending_is_none():
    assert Notificator().pending() is None
    assert Notificator().drain(END) is None


def test_records_at_one_time_wait_too():
    pending = Notificator()
    pending.push(Records.at(Time(3), np.zeros(2, np.int64), pa.record_batch([pa.array([1, 2])], schema=SCHEMA)))
    assert pending.drain(Time(3)) is None
    assert rows_of(pending.drain(Time(4))) == [(3, 1), (3, 2)]
