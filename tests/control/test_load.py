"""Would catch a rate that a restart or an idle minute distorts, and a size that is claimed and was never measured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import WorkerId
from megaphone.control.load import HALF_LIFE_S, NOTHING, UNKNOWN, Done, Load, Tally

counts = st.dictionaries(st.integers(0, 2**20), st.integers(0, 2**62))


@given(counts)
def test_tally_says_what_it_was_told_in_twelve_bytes_a_bin(told):
    tally = Tally.of(list(told), list(told.values()))
    bins, numbers = tally.read()
    assert dict(zip(bins.tolist(), numbers.tolist(), strict=True)) == told
    assert len(tally.bins) + len(tally.numbers) == 12 * len(told)


def test_tally_leaves_out_what_was_not_touched():
    bins, numbers = Tally.of_all(np.array([0, 5, 0, 7])).read()
    assert (bins.tolist(), numbers.tolist()) == ([1, 3], [5, 7])


def applied(load, seconds, worker=0, busy_ns=0, **by_bin):
    load.hear(WorkerId(worker), Tally.of([int(b[1:]) for b in by_bin], list(by_bin.values())), NOTHING, busy_ns)
    load.pass_time(seconds)


@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=60))
def test_steady_rate_is_seen_from_the_first_epoch_on_whatever_the_epochs(seconds):
    load = Load(2)
    for each in seconds:
        load.hear(WorkerId(0), Tally.of([1], [1_000_000 * each]), NOTHING, int(4e8 * each))
        load.pass_time(each)
    assert load.rates.tolist() == pytest.approx([0, 1_000_000], rel=1e-4)
    assert load.busy(WorkerId(0)) == pytest.approx(0.4, rel=1e-4)


def test_what_was_a_half_life_ago_counts_half():
    load = Load(1)
    applied(load, 1.0, b0=1000)
    before = load.rates[0] * 1.0
    applied(load, HALF_LIFE_S)
    assert load.rates[0] == pytest.approx(before / 2 / (0.5 + HALF_LIFE_S))
    assert load.applied.tolist() == [1000]


def test_size_that_nobody_measured_is_the_mean_of_the_others():
    load = Load(4)
    assert load.sizes.tolist() == [0] * 4
    load.hear(WorkerId(0), NOTHING, Tally.of([0, 2], [100, 300]), 0)
    assert load.sizes.tolist() == [100, 200, 300, 200]
    assert load.bytes.tolist() == [100, UNKNOWN, 300, UNKNOWN]
    load.hear(WorkerId(1), NOTHING, Tally.of([0], [140]), 0)
    assert load.sizes.tolist() == [140, 220, 300, 220]


def test_time_of_each_bin_is_a_part_of_each_second():
    load = Load(3)
    for _ in range(4):
        load.hear(WorkerId(0), NOTHING, NOTHING, 0, Tally.of([0, 2], [100_000_000, 400_000_000]))
        load.pass_time(0.5)
    assert load.work.tolist() == pytest.approx([0.2, 0, 0.8])


def test_what_comes_in_is_told_apart_from_what_is_applied():
    # Every epoch has what came while the one before was on, and takes a quarter longer.
    load, seconds = Load(1), 1.0
    for _ in range(30):
        applied(load, 1.25 * seconds, b0=1000 * seconds)
        seconds *= 1.25
    assert load.arrived == pytest.approx(1000, rel=1e-3)
    assert load.rates[0] == pytest.approx(800, rel=1e-3)


def test_backlog_of_the_first_epoch_did_not_come_in_a_moment():
    load = Load(1)
    applied(load, 2.0, b0=1_000_000)
    for _ in range(5):
        applied(load, 1.0, b0=100)
    # The second epoch has what came in two seconds.
    assert load.arrived == pytest.approx(100 * 5 / 6, rel=0.05)


def test_rates_fade_while_no_epoch_comes_as_they_would_if_one_did():
    load, same = Load(1), Load(1)
    for one in (load, same):
        applied(one, 1.0, b0=1000)
        applied(one, 1.0, b0=1000)
    applied(same, 40.0)
    assert load.faded(0.0) == 1.0
    assert load.rates[0] * load.faded(40.0) == pytest.approx(same.rates[0])
    assert Load(1).faded(1.0) == 0.0


def test_what_each_worker_has_done_is_summed_up():
    load = Load(4)
    applied(load, 1.0, worker=1, busy_ns=3, b0=5, b2=6)
    applied(load, 1.0, worker=1, busy_ns=4, b0=1)
    assert load.done == {WorkerId(1): Done(12, 7)}
