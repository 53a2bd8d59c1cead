"""Would catch the one rule broken at S: a record applied early, twice, out of order, or where its bin no longer is."""

import pyarrow as pa
import pytest

from megaphone.bins import BinId, WorkerId
from megaphone.dataflow.folds import BinFold
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.state import Parcel, pack, unpack
from megaphone.errors import ProtocolError
from megaphone.progress import CLOSED, END, OPEN, Frontier, Time
from megaphone.testing import make_records

SCHEMA = pa.schema([("word", pa.string()), ("again", pa.int64())])
OUTPUT = pa.schema([("time", pa.int64()), ("word", pa.string()), ("n", pa.int64())])


def count(time, data, state, notificator):
    """Count words; a word with `again` > 0 comes back that much later."""
    for word, again in data:
        state[word] = state.get(word, 0) + 1
        if again:
            notificator.notify_at(time + again, (word, 0))
        yield time, word, state[word]


def host(worker=0, owned=(0, 1, 2, 3), bins=4):
    return Host(WorkerId(worker), BinFold("count", (SCHEMA,), OUTPUT, dict, count), bins, owned)


def at(time):
    return Frontier(Time(time))


def give(host, *rows):
    host.receive(make_records([(bin, time, word, again) for bin, time, word, again in rows], SCHEMA))


def rows(outcome):
    return sorted(zip(*(column.to_pylist() for column in outcome.output.columns), strict=True))


def carried(parcel):
    packed = pack(parcel)
    return unpack(packed.bin, [bytearray(part) for part in packed.parts])


def test_record_waits_until_the_frontier_passes_it():
    s = host()
    give(s, (0, 5, "a", 0))
    assert rows(s.advance(at(5))) == []
    assert rows(s.advance(at(6))) == [(5, "a", 1)]
    assert rows(s.advance(at(9))) == []


def test_records_that_come_out_of_order_are_applied_in_time_order():
    s = host()
    give(s, (0, 7, "a", 0))
    give(s, (0, 5, "a", 0), (0, 6, "a", 0))
    assert rows(s.advance(at(10))) == [(5, "a", 1), (6, "a", 2), (7, "a", 3)]


def test_pending_and_fresh_records_are_applied_in_one_time_order():
    s = host()
    give(s, (0, 8, "a", 0))
    s.advance(at(5))
    give(s, (0, 7, "a", 0), (0, 9, "a", 0))
    assert rows(s.advance(at(10))) == [(7, "a", 1), (8, "a", 2), (9, "a", 3)]


def test_data_that_comes_before_its_state_waits_for_it():
    old, new = host(0, [0]), host(1, [])
    give(old, (0, 1, "a", 0))
    give(new, (0, 5, "a", 0))
    old.advance(at(10))
    assert rows(new.advance(at(10))) == []
    new.install(old.release(BinId(0)))
    assert rows(new.advance(at(10))) == [(5, "a", 2)]


def test_held_bin_applies_nothing_at_or_after_the_time():
    s = host()
    s.hold(BinId(0), Time(5))
    give(s, (0, 4, "a", 0), (0, 5, "a", 0), (0, 6, "a", 0), (1, 6, "b", 0))
    assert rows(s.advance(at(10))) == [(4, "a", 1), (6, "b", 1)]
    assert s.output_frontier == at(5)


def test_held_bin_applies_no_record_that_fell_due_before_the_hold():
    s = host()
    give(s, (0, 5, "a", 0))
    s.advance(at(5))
    s.hold(BinId(0), Time(5))
    assert rows(s.advance(at(10))) == []


def test_held_bin_keeps_what_its_own_fold_postdates_past_the_time():
    """The fold posts 3 -> 8 while the frontier goes to 10 at once: 8 belongs to the next owner."""
    s, new = host(0, [0]), host(1, [])
    s.hold(BinId(0), Time(5))
    give(s, (0, 1, "b", 2), (0, 3, "a", 5))
    assert rows(s.advance(at(10))) == [(1, "b", 1), (3, "a", 1), (3, "b", 2)]
    new.install(carried(s.release(BinId(0))))
    assert rows(new.advance(at(10))) == [(8, "a", 2)]


def test_hold_is_lifted_when_the_bin_has_left():
    s = host()
    s.hold(BinId(0), Time(5))
    s.advance(at(10))
    s.release(BinId(0))
    assert s.output_frontier == at(10)


def test_unhold_lifts_every_hold():
    s = host()
    s.hold(BinId(0), Time(5))
    s.hold(BinId(1), Time(6))
    s.unhold()
    s.advance(at(10))
    assert s.output_frontier == at(10)


def test_moved_bin_keeps_its_state_and_its_pending_records():
    old, new = host(0, [0]), host(1, [])
    give(old, (0, 1, "a", 10), (0, 20, "b", 0))
    assert rows(old.advance(at(5))) == [(1, "a", 1)]
    parcel = carried(old.release(BinId(0)))
    assert parcel.state == {"a": 1}
    assert [records.times.tolist() for records in parcel.pending] == [[11, 20]]
    new.install(parcel)
    assert rows(new.advance(at(15))) == [(11, "a", 2)]
    assert rows(new.advance(CLOSED)) == [(20, "b", 1)]
    assert rows(old.advance(CLOSED)) == []


def test_pending_records_of_parcel_and_host_meet_in_time_order():
    old, new = host(0, [0]), host(1, [])
    give(old, (0, 6, "a", 0), (0, 8, "a", 0))
    give(new, (0, 7, "a", 0), (0, 5, "a", 0))
    for s in (old, new):
        s.advance(at(5))
    new.install(carried(old.release(BinId(0))))
    assert rows(new.advance(at(9))) == [(5, "a", 1), (6, "a", 2), (7, "a", 3), (8, "a", 4)]


def test_blank_bin_moves_too():
    old, new = host(0, [0]), host(1, [])
    new.install(carried(old.release(BinId(0))))
    give(new, (0, 1, "a", 0))
    assert rows(new.advance(at(2))) == [(1, "a", 1)]


def test_bin_that_comes_back_has_what_it_learnt_elsewhere():
    one, other = host(0, [0]), host(1, [])
    for time, (s, next) in enumerate([(one, other), (other, one), (one, other)]):
        give(s, (0, time, "a", 0))
        assert rows(s.advance(at(time + 1))) == [(time, "a", time + 1)]
        next.install(carried(s.release(BinId(0))))


def test_bin_that_is_not_here_cannot_be_released():
    s = host(2, [0])
    s.advance(at(40))
    with pytest.raises(ProtocolError, match="bin 1 is not on worker 2 at 40: nothing to release"):
        s.release(BinId(1))
    s.release(BinId(0))
    with pytest.raises(ProtocolError, match="bin 0 is not on worker 2 at 40"):
        s.release(BinId(0))


def test_bin_that_is_here_cannot_be_installed():
    s = host(2)
    s.advance(at(40))
    with pytest.raises(ProtocolError, match="bin 3 is on worker 2 already at 40"):
        s.install(Parcel(BinId(3), {}, ()))


def test_late_records_are_counted_and_not_applied():
    s = host()
    s.advance(at(10))
    give(s, (0, 9, "a", 0), (0, 10, "a", 0), (1, 3, "b", 0))
    outcome = s.advance(at(11))
    assert (outcome.late, outcome.applied, rows(outcome)) == (2, 1, [(10, "a", 1)])
    assert s.advance(at(12)).late == 0


def test_record_that_waits_for_its_bin_is_not_late():
    old, new = host(0, [0]), host(1, [])
    give(new, (0, 5, "a", 0))
    assert new.advance(at(10)).late == 0
    new.install(old.release(BinId(0)))
    outcome = new.advance(at(20))
    assert (outcome.late, outcome.applied) == (0, 1)


def test_output_frontier_follows_the_input_and_waits_for_the_held():
    s = host(0, [0, 1])
    assert s.output_frontier == OPEN
    s.hold(BinId(1), Time(20))
    s.advance(at(10))
    assert s.output_frontier == at(10)
    s.advance(CLOSED)
    assert s.output_frontier == at(20)


def test_hold_of_a_bin_elsewhere_holds_nothing_here():
    s = host(0, [0])
    s.hold(BinId(1), Time(5))
    s.advance(at(10))
    assert s.output_frontier == at(10)


def test_closed_frontier_lets_everything_fall_due():
    s = host()
    give(s, (0, 1, "a", 2**40), (1, END - 1, "b", 0))
    assert rows(s.advance(CLOSED)) == [(1, "a", 1), (1 + 2**40, "a", 2), (END - 1, "b", 1)]


def test_advance_without_records_costs_no_fold():
    s = Host(WorkerId(0), BinFold("never", (SCHEMA,), OUTPUT, dict, lambda *_: 1 / 0), 4, [0])
    assert s.advance(at(10)).output.schema == OUTPUT


def pair(time, left, right, state, left_later, right_later):
    """Say what came, in what order; a left word comes back as a right one."""
    for side, data, later in (("left", left, right_later), ("right", right, left_later)):
        for word, again in data:
            if again:
                later.notify_at(time + again, (f"{side}'s {word}", 0))
            state[len(state)] = word
            yield time, f"{side} {word}", len(state)


def binary(worker=0, owned=(0, 1)):
    return Host(WorkerId(worker), BinFold("pair", (SCHEMA, SCHEMA), OUTPUT, dict, pair), 2, owned)


def test_binary_drains_both_inputs_whichever_had_the_earlier_record():
    """Draining the first input must not hide what is due on the second, nor the other way round."""
    for first, second in ((0, 1), (1, 0)):
        s = binary()
        s.receive(make_records([(0, 5, "a", 0)], SCHEMA), first)
        s.receive(make_records([(0, 6, "b", 0), (0, 30, "c", 0)], SCHEMA), second)
        s.advance(at(1))
        assert [(t, n) for t, _, n in rows(s.advance(at(10)))] == [(5, 1), (6, 2)]
        assert [(t, n) for t, _, n in rows(s.advance(at(40)))] == [(30, 3)]


def test_binary_moves_the_pending_records_of_both_inputs():
    old, new = binary(0), binary(1, [])
    old.receive(make_records([(0, 1, "a", 9), (0, 20, "b", 0)], SCHEMA), 0)
    old.receive(make_records([(0, 15, "c", 0)], SCHEMA), 1)
    assert rows(old.advance(at(5))) == [(1, "left a", 1)]
    new.install(carried(old.release(BinId(0))))
    assert rows(new.advance(CLOSED)) == [(10, "right left's a", 2), (15, "right c", 3), (20, "left b", 4)]
