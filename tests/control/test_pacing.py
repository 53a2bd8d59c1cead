"""Would catch an adaptive migration that breaks its latency target and goes on as before, crawls, or stands still.

And one that, planned once more after a crash, takes other steps than it took.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.configuration import Assignment
from megaphone.control.controller import Controller
from megaphone.control.epochs import Epochs, Report
from megaphone.control.load import Tally
from megaphone.control.meter import Meter
from megaphone.control.pacing import GROWTH, SAFETY, allowance, stride
from megaphone.control.plan import Plan
from megaphone.control.strategies import make_plan
from megaphone.errors import PlanError
from megaphone.progress import Time

BINS = 64
positive = st.floats(0.001, 100)


@given(st.lists(positive, max_size=50), positive, positive, positive, positive)
def test_at_least_one_bin_goes_and_never_more_than_twice_the_last_step(weights, moved, took, steady, target):
    count = stride(weights, moved, took, steady, target)
    assert count >= 1
    assert count == 1 or sum(weights[:count]) <= GROWTH * moved * (1 + 1e-9)


@given(positive, positive, positive)
def test_step_that_broke_the_target_is_followed_by_a_smaller_one(moved, steady, spare):
    target = 2 * steady + spare
    longest = target - steady
    assert allowance(moved, longest * 1.01, steady, target) < moved


@given(positive, st.floats(0.01, 10), positive)
def test_next_step_would_stay_within_the_target_if_bytes_take_as_long_as_before(moved, cost, steady):
    target = 2 * steady + 1.0
    allowed = allowance(moved, steady + cost, steady, target)
    assert steady + cost * allowed / moved <= steady + SAFETY * 1.0 + 1e-9


@pytest.mark.parametrize("target", [1.0, 3.0, 4.0])
def test_target_that_even_two_steady_epochs_break_moves_one_bin_at_a_time(target):
    assert stride([1.0] * 9, moved=4, took_s=2.5, steady_s=2.0, target_s=target) == 1


class Machine:
    """A query whose epochs take as long as it says, by a clock of its own."""

    def __init__(self, seconds_per_byte, target):
        self.now = 0.0
        self.seconds_per_byte = seconds_per_byte
        current = Assignment.round_robin(BINS, 2)
        self.epochs = Epochs(current, 2, {"op": ("epoch", 1)})
        self.epochs.meter = Meter(["op"], BINS, lambda: self.now)
        self.size = 1000
        for _ in range(3):
            self.epoch()
        plan = make_plan(current, Assignment([0] * BINS), latency_target=target)
        self.migration = self.epochs.submit(plan)

    def epoch(self):
        """One epoch; how many bins moved in it, and how long it took."""
        begin = self.now
        plan = self.epochs.open(self.epochs.epoch + 1)
        moves = plan.operators["op"].moves
        self.now += 0.1 + len(moves) * self.size * self.seconds_per_byte
        sizes = Tally.of(range(BINS), [self.size] * BINS)
        reports = [Report(worker, Time(plan.epoch + 1), sizes=sizes) for worker in plan.workers]
        self.epochs.report("op", plan.epoch, reports, [Time(0)], Time(plan.epoch + 1))
        return len(moves), self.now - begin

    def run(self):
        steps = []
        while self.migration.ended_s is None:
            steps.append(self.epoch())
        return [step for step in steps if step[0]]


def test_cheap_moves_double_from_step_to_step():
    steps = Machine(seconds_per_byte=0.0, target=0.5).run()
    assert [bins for bins, _ in steps] == [1, 2, 4, 8, 16, 1]


def test_dear_moves_settle_within_the_target():
    # A bin takes 50 ms, so that four fit into the 0.24 s that 0.8 * (0.5 - 2 * 0.1) leave.
    steps = Machine(seconds_per_byte=50e-6, target=0.5).run()
    assert sum(bins for bins, _ in steps) == BINS // 2
    # Who has just missed the epoch waits for it, and then for the next, which is steady.
    assert max(seconds for _, seconds in steps) + 0.1 <= 0.5
    assert max(bins for bins, _ in steps) == 4


def test_steps_shrink_when_moving_becomes_slower():
    machine = Machine(seconds_per_byte=10e-6, target=0.5)
    for _ in range(4):
        machine.epoch()
    machine.seconds_per_byte = 100e-6
    first, *rest = [step for step in machine.run() if step[0]]
    assert first[1] > 0.5
    assert all(seconds + 0.1 <= 0.5 for _, seconds in rest)


def test_progress_counts_bins_whatever_the_steps():
    machine = Machine(seconds_per_byte=0.0, target=0.5)
    for moved in (0, 1, 3, 7):
        machine.epoch()
        assert machine.migration.bins_moved == moved
    assert str(machine.migration) == "adaptive running: 7 of 32 bins"


def test_bin_that_moves_twice_is_never_in_one_step():
    controller = Controller(Assignment([0, 0]))
    there = make_plan(Assignment([0, 0]), Assignment([1, 0]), "fluid")
    back = make_plan(Assignment([1, 0]), Assignment([0, 0]), "fluid")
    plan = type(there)(2, there.steps + back.steps, latency_target=1.0)
    controller.submit(plan, 2, Time(0)).stride = 5
    assert str(controller.next_step(Time(0), Time(0))) == "0:0>1"


@pytest.mark.parametrize("target", [0, -1, float("inf"), float("nan")])
def test_target_that_is_none_is_refused(target):
    with pytest.raises(PlanError, match=f"a latency target of {target} s; choose "):
        make_plan(Assignment([0]), Assignment([1]), latency_target=target)
    with pytest.raises(PlanError, match=f"a latency target of {target} s; choose "):
        Plan(1, (), strategy="adaptive", latency_target=target).check(Assignment([0]), 2)


def test_target_is_for_the_adaptive_strategy_alone():
    with pytest.raises(PlanError, match="a latency target for strategy 'fluid'; choose adaptive, or leave the target"):
        make_plan(Assignment([0]), Assignment([1]), "fluid", latency_target=1.0)
    assert make_plan(Assignment([0]), Assignment([1]), "adaptive").latency_target == 1.0
    assert make_plan(Assignment([0]), Assignment([1])).strategy == "batched"
