"""Would catch a bin that is charged for another's time, and time that nobody is charged for."""

import numpy as np
import pyarrow as pa
import pytest

from megaphone.bins import WorkerId
from megaphone.dataflow.folds import BinFold, KeyFold, VectorFold
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.stopwatch import Stopwatch
from megaphone.progress import Frontier, Time
from megaphone.testing import make_records

SCHEMA = pa.schema([("key", pa.int64()), ("takes", pa.int64())])
OUTPUT = pa.schema([("key", pa.int64())])
BINS = 4


class Clock:
    """Goes when work is done."""

    def __init__(self):
        self.now = 1000

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def hosted(fold, clock):
    """A host that goes by the test's clock, after some records: two of bin 1, one of bin 3."""
    host = Host(WorkerId(0), fold, BINS, range(BINS))
    host.watch = Stopwatch(BINS, clock)
    host.receive(make_records([(1, 0, 1, 50), (3, 0, 3, 700), (1, 0, 1, 50)], SCHEMA))
    host.advance(Frontier(Time(1)))
    return host


def by_key(clock):
    def fold(key, takes, state):
        clock.now += takes
        return takes, []

    return KeyFold("wait", (SCHEMA,), OUTPUT, ("key",), fold)


def by_bin(clock):
    def fold(time, rows, state, notificator):
        clock.now += sum(row.takes for row in rows)
        return ()

    return BinFold("wait", (SCHEMA,), OUTPUT, dict, fold)


def all_at_once(clock):
    def fold(records, states, notificator):
        clock.now += int(records.column("takes").sum())
        return {"key": []}

    return VectorFold("wait", (SCHEMA,), OUTPUT, dict, fold)


@pytest.mark.parametrize("make", [by_key, by_bin])
def test_fold_that_goes_bin_by_bin_charges_each_for_its_own(make, clock):
    host = hosted(make(clock), clock)
    assert host.watch.spent.tolist() == [0, 100, 0, 700]
    assert host.applied.tolist() == [0, 2, 0, 1]


def test_fold_that_takes_all_bins_at_once_charges_them_by_their_records(clock):
    assert hosted(all_at_once(clock), clock).watch.spent.tolist() == pytest.approx([0, 533, 0, 266], abs=1)


def test_time_adds_up_until_it_is_wiped_away(clock):
    host = hosted(by_key(clock), clock)
    host.receive(make_records([(2, 1, 2, 9)], SCHEMA))
    host.advance(Frontier(Time(2)))
    assert host.watch.spent.tolist() == [0, 100, 9, 700]
    host.watch.spent[:] = 0
    host.advance(Frontier(Time(3)))
    assert not np.any(host.watch.spent)
