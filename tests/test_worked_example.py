"""The paper's worked example (Fig. 4), frontier by frontier: two workers count words, and b moves between them.

Would catch a part that keeps the one rule by itself but not together with its neighbours: here the paper's F, Host,
Configuration and Pending are wired by hand, as an engine would wire them. On Spark F holds nothing (decision 0003).
"""

import pyarrow as pa
import pytest

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Assignment, Configuration, Move, Update
from megaphone.control.stream import Pending, Reconfiguration
from megaphone.dataflow.folds import KeyFold
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.state import pack, unpack
from megaphone.progress import Frontier, Time
from megaphone.testing import make_records
from paper import Router

A, B, C = range(3)
WORDS = "abc"
INPUT = pa.schema([("word", pa.string()), ("diff", pa.int64())])
OUTPUT = pa.schema([("word", pa.string()), ("count", pa.int64())])


def count(word, diff, total):
    total = (total or 0) + diff
    return total, [(word, total)]


class Dataflow:
    """F and S of two workers; a and b start on worker 0, c on worker 1."""

    def __init__(self):
        self.configuration = Configuration(Assignment([0, 0, 1, 1]))
        self.pending = Pending()
        fold = KeyFold("count", (INPUT,), OUTPUT, ("word",), count)
        self.f = [Router(self.configuration, at(42)) for _ in range(2)]
        self.s = [Host(WorkerId(w), fold, 4, owned) for w, owned in enumerate([[A, B], [C, 3]])]
        self.data = [at(0), at(0)]

    def receive(self, worker, time, bin, diff):
        self._send(self.f[worker].receive(make_records([(bin, time, WORDS[bin], diff)], INPUT)))

    def advance_data(self, *bounds):
        self.data = [at(bound) for bound in bounds]

    def advance_control(self, bound):
        for router in self.f:
            self._send(router.advance(at(bound)))

    def update(self, time, bin, source, target):
        """F integrates an update that its control frontier has passed; the bin is held where it is."""
        self.configuration.insert(Update(Time(time), ((BinId(bin), WorkerId(target)),)))
        self.pending.add(Reconfiguration(Time(time), (Move(BinId(bin), WorkerId(source), WorkerId(target)),)))

    def apply(self):
        """S applies what neither the data nor the control input can still precede."""
        frontier = min(*self.data, *(router.control for router in self.f))
        outputs = []
        for host in self.s:
            host.unhold()
            for bin, time in self.pending.holds().items():
                host.hold(bin, time)
            outputs += host.advance(frontier).output.to_pylist()
        return [(row["word"], row["count"]) for row in outputs]

    def migrate(self):
        """F extracts each bin whose time S's output frontier has reached, and ships it to its new owner."""
        shipped = [pack(self.s[move.source].release(move.bin)) for move in self._due()]
        for packed in shipped:
            self.s[1].install(unpack(packed.bin, [bytearray(part) for part in packed.parts]))
        return [WORDS[packed.bin] for packed in shipped]

    @property
    def output_frontier(self):
        return min(host.output_frontier for host in self.s)

    def queued(self, worker):
        return sorted(
            (time, word)
            for records in self.f[worker].held
            for time, word in zip(records.times.tolist(), records.data["word"].to_pylist(), strict=True)
        )

    def _due(self):
        return self.pending.on_output_frontier(self.output_frontier)

    def _send(self, addressed):
        for worker, records in addressed:
            self.s[worker].receive(records)


def at(bound):
    return Frontier(Time(bound))


@pytest.fixture
def flow():
    """The first snapshot, with counts from before: (44, a, 3) and (43, c, 5) wait, for control has only reached 42."""
    flow = Dataflow()
    for worker, bin, diff in ((0, A, 1), (0, B, 2), (1, C, 3)):
        flow.receive(worker, 40, bin, diff)
    flow.advance_data(42, 42)
    assert sorted(flow.apply()) == [("a", 1), ("b", 2), ("c", 3)]
    flow.receive(0, 44, A, 3)
    flow.receive(1, 43, C, 5)
    return flow


@pytest.fixture
def integrated(flow):
    """Control has passed 45, and the update (45, b, worker 1) has been integrated at both Fs."""
    flow.receive(1, 45, B, 7)
    flow.advance_data(45, 45)
    flow.advance_control(45)
    assert sorted(flow.apply()) == [("a", 4), ("c", 8)]
    flow.update(45, B, 0, 1)
    return flow


def test_records_wait_while_the_control_frontier_is_behind_them(flow):
    flow.advance_data(50, 50)
    assert (flow.queued(0), flow.queued(1)) == ([(44, "a")], [(43, "c")])
    assert flow.apply() == []
    assert flow.output_frontier == at(42)


def test_records_are_forwarded_and_applied_when_the_control_frontier_passes_them(flow):
    flow.receive(1, 45, B, 7)
    flow.advance_data(50, 50)
    flow.advance_control(45)
    assert (flow.queued(0), flow.queued(1)) == ([], [(45, "b")])
    assert sorted(flow.apply()) == [("a", 4), ("c", 8)]
    assert flow.output_frontier == at(45)


def test_update_changes_nothing_while_control_has_not_passed_it(flow):
    flow.receive(1, 45, B, 7)
    flow.advance_data(50, 50)
    flow.advance_control(45)
    flow.apply()
    assert flow.migrate() == []
    assert [bool(host.resident[B]) for host in flow.s] == [True, False]


def test_queued_input_goes_to_the_new_owner_and_waits_there_for_the_state(integrated):
    integrated.advance_control(46)
    integrated.advance_data(46, 46)
    assert integrated.queued(1) == []
    assert integrated.apply() == []
    assert integrated.output_frontier == at(45)


def test_state_is_shipped_when_the_output_frontier_has_reached_the_time(integrated):
    integrated.advance_control(46)
    integrated.advance_data(46, 46)
    integrated.apply()
    assert integrated.migrate() == ["b"]
    assert [bool(host.resident[B]) for host in integrated.s] == [False, True]
    assert integrated.apply() == [("b", 9)]
    assert integrated.output_frontier == at(46)
    assert integrated.s[1].states[BinId(B)] == {"b": 9}


def test_state_is_not_shipped_while_earlier_records_can_arrive(flow):
    """F1's data input may still send at 44: b must wait for it on worker 0."""
    flow.receive(1, 45, B, 7)
    flow.update(45, B, 0, 1)
    flow.advance_data(46, 44)
    flow.advance_control(46)
    assert flow.apply() == [("c", 8)]
    assert flow.migrate() == []
    flow.receive(1, 44, B, 10)
    flow.advance_data(46, 46)
    assert sorted(flow.apply()) == [("a", 4), ("b", 12)]
    assert flow.migrate() == ["b"]
    assert flow.apply() == [("b", 19)]


def test_record_ahead_of_the_data_frontier_is_routed_but_not_applied(integrated):
    """The third snapshot: control is at 55, F1's data at 53, and F0 holds a record at 55."""
    integrated.advance_control(46)
    integrated.advance_data(46, 46)
    integrated.apply()
    integrated.migrate()
    integrated.advance_control(55)
    integrated.receive(0, 55, B, 1)
    integrated.advance_data(60, 53)
    assert integrated.apply() == [("b", 9)]
    assert integrated.output_frontier == at(53)
    assert integrated.queued(0) == [(55, "b")]
    integrated.advance_control(56)
    assert (integrated.queued(0), integrated.apply()) == ([], [])
    integrated.advance_data(60, 56)
    assert integrated.apply() == [("b", 10)]
    assert integrated.output_frontier == at(56)
