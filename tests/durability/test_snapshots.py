"""Would catch a snapshot of an epoch that was never committed, of a bin whose records wait elsewhere, or of one that a
fold changed while it was being written; and a full disk after which no snapshot is ever taken again.
"""

import contextlib
import errno
import threading
from concurrent.futures import Executor, Future

import numpy as np
import pyarrow as pa
import pytest

from megaphone.bins import BinId, WorkerId
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.operators import Input, key_operator
from megaphone.dataflow.state import unpack
from megaphone.durability import snapshots
from megaphone.durability.ledger import Ledger
from megaphone.durability.snapshots import Snapshots
from megaphone.durability.store import BinFile, Store
from megaphone.progress import Frontier, Time
from megaphone.testing import make_records

BINS = 4
SCHEMA = pa.schema([("word", pa.string())])
SPEC = key_operator("op", Input(SCHEMA, ("word",)), lambda key, value, n: ((n or 0) + 1, []), SCHEMA)
NONE_HELD = np.zeros(BINS, np.bool_)


class Later(Executor):
    """Does things when told to."""

    def __init__(self):
        self.waiting = []

    def submit(self, call, /, *args, **kwargs):
        self.waiting.append((Future(), call, args))
        return self.waiting[-1][0]

    def work(self):
        while self.waiting:
            future, call, args = self.waiting.pop(0)
            try:
                future.set_result(call(*args))
            except Exception as error:
                future.set_exception(error)


class Place:
    """A worker with every bin, and its snapshots."""

    def __init__(self, root, share=1.0):
        self.store = Store(str(root), "control")
        self.host = Host(WorkerId(0), SPEC.fold, BINS, range(BINS))
        self.ledger = Ledger(BINS)
        self.pool = Later()
        self.snapshots = Snapshots(self.store, "op", self.ledger, share, self.pool)
        self.staying = threading.Lock()

    def apply(self, epoch, *bins, size=100):
        """An epoch that changes some bins, with what the one before left to do."""
        self.snapshots.settle(self.host)
        self.snapshots.committed(epoch - 1)
        self.host.receive(make_records([(bin, epoch, "a") for bin in bins], SCHEMA))
        self.host.touched[:] = False
        self.host.advance(Frontier(Time(epoch + 1)))
        self.ledger.touch(self.host.touched, epoch)
        self.snapshots.logged(epoch, size)

    def rest(self, epoch, held=NONE_HELD, moving=False):
        self.snapshots.rest(self.host, epoch, held, self.staying, moving)

    def write(self, epoch):
        """The epoch's rest, in which copies are written that were made before."""
        self.rest(epoch)
        self.pool.work()

    def files(self):
        return [file for file, _ in self.store.snapshots("op")]

    def state(self, file):
        (parts,) = self.store.read_snapshot("op", file).values()
        return unpack(BinId(file.bins[0]), parts).state


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "YOUNG", 0)
    return Place(tmp_path)


def patient(place):
    """There is time for every bin."""
    place.snapshots._last_s -= 1000


def test_round_is_copied_written_and_noted(place):
    patient(place)
    place.apply(0, 0, 1)
    place.rest(0)
    place.apply(1)
    place.rest(1)
    assert place.files() == []
    assert place.snapshots._copies is None
    place.pool.work()
    assert place.files() == [BinFile(0, (0, 1))]
    assert place.ledger.dirty.tolist() == [True, True, False, False]
    place.apply(2)
    assert not place.ledger.dirty.any()
    assert place.ledger.needed_from(2) == 3


def test_stalest_bins_come_first_and_a_slow_one_is_made_up_for_before_the_next(place):
    place.apply(0, 2)
    place.apply(1, 0, 3)
    place.apply(2, 1)
    place.snapshots._rate = 1e-9
    for expected in (2, 0, 3, 1):
        place.rest(2)
        assert [packed.bin for packed in place.snapshots._copies.bins] == [expected]
        place.ledger.kept(expected, 2)
        place.rest(2)
        assert place.snapshots._copies is None
        place.snapshots._left_s = 0.0


def test_time_that_nobody_needed_is_not_saved_up(place):
    place.apply(0, 0, 1, 2, 3)
    place.snapshots._left_s = 1e9
    place.snapshots._rate = 1e-9
    place.rest(0)
    assert len(place.snapshots.copied) == 1


def test_silence_is_not_saved_up(place, monkeypatch):
    monkeypatch.setattr(snapshots, "LONGEST_S", 0.0)
    place.apply(0, 0)
    patient(place)
    place.rest(0)
    assert place.snapshots.copied == []


def test_snapshots_wait_while_bins_move_as_long_as_the_log_is_small(place, monkeypatch):
    monkeypatch.setattr(snapshots, "LOG_BYTES", 1000)
    place.apply(0, 0)
    place.rest(0, moving=True)
    assert place.snapshots.copied == []
    place.rest(0)
    place.apply(1, 1)
    place.rest(1, moving=True)
    assert place.pool.waiting == []
    place.apply(2, size=5000)
    place.rest(2, moving=True)
    place.pool.work()
    assert place.files() == [BinFile(0, (0,))]


def test_clean_bins_are_left_alone(place):
    patient(place)
    place.apply(0, 2)
    place.rest(0)
    place.apply(1, 1)
    place.write(1)
    place.apply(2)
    patient(place)
    place.rest(2)
    assert [packed.bin for packed in place.snapshots._copies.bins] == [1]


def test_held_bins_are_left_alone(place):
    patient(place)
    place.apply(0, 0, 1, 2, 3)
    place.rest(0, np.array([False, True, False, True]))
    assert [packed.bin for packed in place.snapshots._copies.bins] == [0, 2]


def test_young_bins_are_left_alone_as_long_as_the_log_is_small(place, monkeypatch):
    monkeypatch.setattr(snapshots, "YOUNG", 3)
    monkeypatch.setattr(snapshots, "LOG_BYTES", 1000)
    patient(place)
    place.apply(0, 0)
    place.apply(1, 1)
    place.apply(2)
    place.rest(2)
    assert place.snapshots._copies is None
    place.apply(3)
    place.rest(3)
    assert [packed.bin for packed in place.snapshots._copies.bins] == [0]
    place.apply(4, 0, size=5000)
    place.write(4)
    place.apply(5)
    patient(place)
    place.rest(5)
    assert [packed.bin for packed in place.snapshots._copies.bins] == [1, 0]


def test_no_share_takes_none(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "YOUNG", 0)
    place = Place(tmp_path, share=0.0)
    place.apply(0, 0)
    place.rest(0)
    place.apply(1)
    place.rest(1)
    assert place.pool.waiting == []


def test_bins_of_an_epoch_that_was_not_committed_are_never_written(place):
    place.apply(0, 0)
    place.rest(0)
    place.snapshots.committed(-1)
    place.pool.work()
    assert place.files() == []
    place.snapshots.committed(0)
    place.write(0)
    assert place.files() == []


def test_snapshot_is_of_its_epoch_whatever_the_fold_has_done_since(place):
    place.apply(0, 0)
    place.rest(0)
    for epoch in range(1, 4):
        place.apply(epoch, 0)
    place.write(3)
    (file,) = place.files()
    assert file == BinFile(0, (0,))
    assert place.state(file) == {"a": 1}
    place.apply(4)
    assert place.ledger.needed_from(4) == 1


def test_bin_that_left_before_it_was_copied_is_left_out(place):
    patient(place)
    place.apply(0, 0, 1)
    host = place.host

    class Staying(contextlib.nullcontext):
        def __enter__(self):
            if host.resident[0]:
                host.release(BinId(0))

    place.snapshots.rest(host, 0, NONE_HELD, Staying())
    place.apply(1)
    place.write(1)
    assert place.files() == [BinFile(0, (1,))]


def test_bin_that_left_while_it_was_written_is_not_noted(place):
    place.apply(0, 0)
    place.rest(0)
    place.apply(1)
    place.write(1)
    place.host.release(BinId(0))
    place.ledger.take(0)
    place.apply(2)
    assert place.ledger.take(0) == Ledger(1).take(0)


def test_slow_writer_is_waited_for_before_more_is_copied(place):
    place.apply(0, 0)
    place.rest(0)
    place.apply(1, 1)
    place.rest(1)
    place.apply(2)
    place.rest(2)
    assert place.snapshots._copies is None
    place.pool.work()
    place.rest(2)
    # It is written, but the ledger does not know yet.
    assert place.snapshots._copies is None
    place.apply(3)
    place.rest(3)
    assert [packed.bin for packed in place.snapshots._copies.bins] == [1]


def test_full_disk_loses_nothing_and_the_bin_has_its_turn_again(place, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    place.apply(0, 0)
    place.rest(0)
    place.apply(1)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write_snapshot", full)
        place.write(1)
    place.apply(2)
    assert place.ledger.needed_from(2) == 0
    place.rest(2)
    place.apply(3)
    place.write(3)
    assert place.files() == [BinFile(2, (0,))]
    place.apply(4)
    assert place.ledger.needed_from(4) == 5


def test_disk_that_fills_up_half_way_keeps_what_was_written(place, monkeypatch):
    monkeypatch.setattr(snapshots, "TOGETHER", 0)
    patient(place)
    place.apply(0, 0, 1)
    place.rest(0)
    place.apply(1)
    write = Store.write_snapshot

    def filling(store, operator, epoch, bins):
        if 1 in bins:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(store, operator, epoch, bins)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write_snapshot", filling)
        place.write(1)
    place.apply(2)
    assert place.ledger.dirty.tolist() == [False, True, False, False]


def test_bin_that_cannot_be_pickled_does_not_keep_the_others_from_theirs(place):
    patient(place)
    place.apply(0, 0, 1)
    place.host.states[BinId(0)]["lock"] = (line for line in ())
    place.rest(0)
    assert place.snapshots.refused == [(0, "TypeError: cannot pickle 'generator' object")]
    place.apply(1)
    place.write(1)
    assert place.files() == [BinFile(0, (1,))]


def test_bin_that_could_not_be_pickled_is_tried_again_later(place, monkeypatch, caplog):
    monkeypatch.setattr(snapshots, "YOUNG", 2)
    monkeypatch.setattr(snapshots, "LOG_BYTES", 0)
    place.apply(0, 0)
    place.host.states[BinId(0)]["lines"] = (line for line in ())
    for epoch in range(1, 4):
        patient(place)
        place.apply(epoch)
        place.rest(epoch)
        assert bool(place.snapshots.refused) == (epoch == 1)
    del place.host.states[BinId(0)]["lines"]
    place.apply(4)
    patient(place)
    place.rest(4)
    assert [packed.bin for packed in place.snapshots._copies.bins] == [0]
    assert sum("cannot be kept" in record.message for record in caplog.records) == 1
