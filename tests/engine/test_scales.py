"""Would catch a size that is wrong or long out of date, and weighing that takes time from the records."""

import contextlib

import numpy as np
import pyarrow as pa
import pytest

from megaphone.bins import BinId, WorkerId
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.operators import Input, key_operator
from megaphone.dataflow.records import Records
from megaphone.dataflow.state import pack
from megaphone.engine.spark import scales as module
from megaphone.engine.spark.scales import Scales
from megaphone.progress import Frontier, Time

WORD = pa.schema([("word", pa.string())])
NOBODY = contextlib.nullcontext()


class Clock:
    """Goes on by as much as it is told to, and a little with every look."""

    def __init__(self):
        self.now, self.look = 0.0, 0.0

    def monotonic(self):
        self.now += self.look
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def keep(word, _, kept):
    return (kept or "") + word, []


@pytest.fixture
def host():
    return Host(WorkerId(0), key_operator("op", Input(WORD, ("word",)), keep, WORD).fold, 8, range(4))


def feed(host, scales, bin, *words):
    host.receive(Records.at(Time(host.frontier.bound + 1), np.full(len(words), bin), pa.record_batch({"word": words})))
    host.applied[:] = 0
    host.advance(Frontier(Time(host.frontier.bound + 2)))
    scales.count(host.applied)


def weighed(scales, host, clock, after=1.0):
    clock.now += after
    scales.weigh(host, NOBODY)
    bins, sizes = scales.read().read()
    return dict(zip(bins.tolist(), sizes.tolist(), strict=True))


def test_bins_that_are_here_are_weighed_once(host, clock):
    scales = Scales(8)
    feed(host, scales, 2, "x" * 10_000)
    found = weighed(scales, host, clock)
    assert sorted(found) == [0, 1, 2, 3]
    assert found[2] == sum(pack(host.copy(BinId(2))).sizes) > 10_000
    assert weighed(scales, host, clock) == {}


def test_bin_is_weighed_again_when_it_may_have_doubled(host, clock):
    scales = Scales(8)
    feed(host, scales, 1, *["a" * 32] * 100)
    first = weighed(scales, host, clock)[1]
    feed(host, scales, 1, *["a" * 32] * 20)
    assert weighed(scales, host, clock) == {}
    feed(host, scales, 1, *["a" * 32] * 100)
    assert weighed(scales, host, clock)[1] > 2 * first


def test_bin_that_stays_small_is_weighed_ever_less_often(host, clock):
    scales, times = Scales(8), 0
    for _ in range(100):
        feed(host, scales, 1, "a")
        host.states[BinId(1)].clear()
        times += 1 in weighed(scales, host, clock)
    assert times == 6


def test_size_that_was_known_anyway_is_not_weighed(host, clock):
    scales = Scales(8)
    scales.note([(3, 123_456)])
    assert weighed(scales, host, clock)[3] == 123_456
    feed(host, scales, 3, "a")
    assert weighed(scales, host, clock) == {}


def test_no_more_than_its_share_of_the_time_is_taken(host, clock):
    scales = Scales(8)
    clock.look = 0.004
    # A hundredth of a second has been saved up: enough to begin three bins, at 4 ms each.
    assert len(weighed(scales, host, clock, after=1.0)) == 3
    assert len(weighed(scales, host, clock, after=0.0)) == 0
    assert len(weighed(scales, host, clock, after=1.0)) == 1


def test_state_that_cannot_be_pickled_stays_unknown_and_is_left_alone(host, clock):
    scales = Scales(8)
    host.states[BinId(0)] = (pa.nulls(1) for _ in "x")
    assert sorted(weighed(scales, host, clock)) == [1, 2, 3]
    assert scales.refused == [(0, "TypeError: cannot pickle 'generator' object")]
    assert sorted(scales.weighed) == [1, 2, 3]
    assert weighed(scales, host, clock) == {}


def test_host_counts_the_records_of_each_bin(host):
    host.receive(Records.at(Time(0), np.array([3, 1, 3, 3, 0]), pa.record_batch({"word": list("abcde")})))
    host.advance(Frontier(Time(1)))
    host.receive(Records.at(Time(1), np.array([3, 7]), pa.record_batch({"word": list("fg")})))
    host.advance(Frontier(Time(2)))
    # Bin 7 is elsewhere: its record waits.
    assert host.applied.tolist() == [1, 1, 0, 4, 0, 0, 0, 0]
    many = np.array([0, 3] * 50)
    host.receive(Records.at(Time(2), many, pa.record_batch({"word": ["h"] * 100})))
    host.advance(Frontier(Time(3)))
    assert host.applied.tolist() == [51, 1, 0, 54, 0, 0, 0, 0]
