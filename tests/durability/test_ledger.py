"""Would catch a bin believed safe that only the log has, and a log that is kept for a bin that is safe."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from megaphone.durability.ledger import NEVER, Ledger, Line

BINS = 3


class Model:
    """A ledger that remembers every epoch that changed a bin, and every snapshot."""

    def __init__(self):
        self.changed = [set() for _ in range(BINS)]
        self.stored = [NEVER] * BINS

    def needed(self, bin):
        return min((epoch for epoch in self.changed[bin] if epoch > self.stored[bin]), default=None)


bins = st.integers(0, BINS - 1)
events = st.lists(st.tuples(st.sampled_from(["touch", "keep", "move"]), st.sets(bins), bins), max_size=30)


@given(events)
def test_log_is_needed_from_the_first_change_that_no_snapshot_has(drawn):
    here, there, model, owner = Ledger(BINS), Ledger(BINS), Model(), [0] * BINS
    ledgers = [here, there]
    for epoch, (what, some, one) in enumerate(drawn):
        for number, ledger in enumerate(ledgers):
            mine = np.array([owner[bin] == number and bin in some for bin in range(BINS)])
            ledger.touch(mine, epoch)
        for bin in some:
            model.changed[bin].add(epoch)
        if what == "keep":
            model.stored[one] = epoch
            ledgers[owner[one]].kept(one, epoch)
        elif what == "move":
            line = ledgers[owner[one]].take(one)
            owner[one] = 1 - owner[one]
            ledgers[owner[one]].put(one, line)
        for number, ledger in enumerate(ledgers):
            needs = [model.needed(bin) for bin in range(BINS) if owner[bin] == number]
            assert ledger.needed_from(epoch) == min((need for need in needs if need is not None), default=epoch + 1)
            dirty = {bin for bin in range(BINS) if owner[bin] == number and model.needed(bin) is not None}
            assert set(np.flatnonzero(ledger.dirty)) == dirty


def touched(*epochs):
    ledger = Ledger(1)
    for epoch in epochs:
        ledger.touch(np.array([True]), epoch)
    return ledger


def test_blank_bins_need_nothing():
    assert Ledger(4).needed_from(9) == 10


def test_records_that_came_before_a_clean_bin_are_needed():
    ledger = touched(5)
    ledger.put(0, Line(since=3, touched=3))
    assert ledger.needed_from(7) == 5


def test_records_that_came_before_a_changed_bin_and_its_changes_are_needed():
    for early, changed in ((5, 3), (3, 5)):
        ledger = touched(early)
        ledger.put(0, touched(changed).take(0))
        assert ledger.needed_from(7) == 3
        assert ledger.touched[0] == 5


def test_line_that_leaves_is_blank_afterwards():
    ledger = touched(5)
    assert ledger.take(0) == Line(since=4, touched=5)
    assert ledger.take(0) == Line()


def test_snapshot_older_than_the_last_one_changes_nothing():
    ledger = touched(3, 5)
    ledger.kept(0, 5)
    ledger.kept(0, 3)
    assert not ledger.dirty[0]


def test_change_after_a_snapshot_is_needed_though_it_came_before_the_snapshot_was_noted():
    ledger = touched(3, 4)
    ledger.kept(0, 3)
    assert ledger.needed_from(4) == 4
