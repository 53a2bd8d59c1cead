"""Would catch a histogram that loses samples or misstates a percentile, and latency counted from the wrong moment."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.harness.latency import Histogram
from megaphone.harness.schedule import Schedule
from megaphone.harness.timeline import INTERVAL_NS, Epoch, Timeline


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.floats(0.01, 1.0))
def test_quantile_is_within_a_thirty_second_of_the_truth(samples, q):
    histogram = Histogram()
    histogram.record(np.array(samples))
    truth = sorted(samples)[max(0, int(np.ceil(q * len(samples))) - 1)]
    assert truth <= histogram.quantile(q) <= truth * (1 + 1 / 32) + 1


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50), st.lists(st.integers(0, 10**12), max_size=50))
def test_merging_is_recording_together(some, others):
    one, two, both = Histogram(), Histogram(), Histogram()
    one.record(np.array(some, np.int64))
    two.record(np.array(others, np.int64))
    both.record(np.array(some + others, np.int64))
    merged = one.merge([two])
    assert [merged.quantile(q) for q in (0.5, 0.99, 1)] == [both.quantile(q) for q in (0.5, 0.99, 1)]
    assert (len(merged), merged.max) == (len(both), both.max)


def test_every_record_is_one_sample():
    timeline = Timeline(Schedule(start_ns=0, rate=1000))
    timeline.add(Epoch(0, 700, done_ns=10**9))
    timeline.add(Epoch(700, 2000, done_ns=3 * 10**9))
    assert sum(len(histogram) for histogram in timeline.intervals.values()) == 2000


def test_stall_shows_in_the_interval_where_records_were_due():
    timeline = Timeline(Schedule(start_ns=0, rate=1000))
    timeline.add(Epoch(0, 1000, done_ns=10**9))
    timeline.add(Epoch(1000, 4000, done_ns=9 * 10**9))
    rows = {row["second"]: row for row in timeline.rows()}
    assert rows[0.75]["max_ms"] == pytest.approx(250)
    assert rows[1.0]["max_ms"] == pytest.approx(8000)
    assert timeline.between(0, 4 * INTERVAL_NS).max == 10**9


def test_schedule_does_not_wait_for_the_system():
    schedule = Schedule(start_ns=5_000_000_000, rate=20_000)
    assert schedule.due_by(5_000_000_000) == 0
    assert schedule.due_by(6_000_000_000) == 20_000
    assert schedule.due_ns(20_000) == 6_000_000_000


def test_every_percentile_is_told_under_its_true_name():
    histogram = Histogram()
    histogram.record(np.arange(1, 100_001) * 10_000)
    told = histogram.summary()
    truth = {"p25_ms": 250, "p50_ms": 500, "p75_ms": 750, "p95_ms": 950, "p99_ms": 990, "p99.9_ms": 999, "max_ms": 1000}
    assert {name: told[name] for name in truth} == pytest.approx(truth, rel=1 / 32)
    assert (told["max_ms"], told["records"]) == (1000, 100_000)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=100))
def test_saved_histogram_is_read_back(samples):
    histogram = Histogram()
    histogram.record(np.array(samples))
    read = Histogram.read(json.loads(json.dumps(histogram.saved())))
    assert (read.summary(), read.ccdf()) == (histogram.summary(), histogram.ccdf())


def test_ccdf_is_the_share_at_or_above():
    histogram = Histogram()
    histogram.record(np.array([10**6] * 90 + [10**7] * 9 + [10**9]))
    assert [round(share, 2) for _, share in histogram.ccdf()] == [1.0, 0.1, 0.01]
    assert histogram.ccdf()[-1][0] == 1000
