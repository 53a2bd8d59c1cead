"""Would catch epochs that wait for a plan to be made, a plan that is followed from where the bins are not any more, a
command that is written down and refused, and a warning that is written in every epoch while something stays broken.
"""

import logging
import threading
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from megaphone import PlanError
from megaphone.configuration import Assignment, Move
from megaphone.control.plan import Plan, Step
from megaphone.control.strategies import Pace
from megaphone.dataflow.operators import Input, key_operator
from megaphone.durability.manifest import shape_of
from megaphone.durability.store import Store
from megaphone.engine.spark import run as module
from megaphone.engine.spark.memoir import CUT_EVERY
from megaphone.engine.spark.messages import Key, PlanQuestion
from megaphone.engine.spark.rpc import Caller
from megaphone.engine.spark.run import TRIES, PickledSpec, Run, Terms

BINS = 4
SCHEMA = pa.schema([("k", pa.int64())])
SHAPE = shape_of(key_operator("op", Input(SCHEMA, ("k",)), max, SCHEMA), ("k",))
KEY = Key("q", "r", "c")


@pytest.fixture
def run(tmp_path):
    specs = {"op": PickledSpec(b"a fold", True, 1, SHAPE, "epoch")}
    terms = Terms(Assignment.round_robin(BINS, 2), 2, specs, str(tmp_path), "control0", 0.05, False, None)
    run = Run(KEY, terms, 0, Caller("s"), lambda: 1, lambda _: False, lambda _: None)
    yield run
    run.close()


@pytest.fixture
def commands(tmp_path):
    """The numbers of the commands that are written down."""
    return lambda: Store(str(tmp_path), "control0").numbers("commands")


def to(owners, strategy="all_at_once"):
    """Plans a migration to an assignment."""
    return lambda basis: Pace.of(strategy).plan(basis.expected, Assignment(owners))


class Slow:
    """A strategy that begins, and then waits until it is told to go on."""

    def __init__(self):
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.bases = []

    def __call__(self, basis):
        self.bases.append(basis)
        self.begun.set()
        assert self.may_go_on.wait(60)
        return to([1] * BINS)(basis)


def in_thread(call, *arguments):
    """Call something in a thread of its own; what is returned waits for its result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call(*arguments)), daemon=True)
    thread.start()

    def result():
        thread.join(60)
        return results[0]

    return result


@pytest.mark.parametrize("ask", ["submit", "draft"])
def test_epoch_is_opened_while_a_plan_is_made(run, ask):
    slow = Slow()
    result = in_thread(getattr(run, ask), slow)
    assert slow.begun.wait(60)
    assert in_thread(run.plan, PlanQuestion(KEY, 0, -1, "driver"))().epoch == 0
    slow.may_go_on.set()
    assert len(result().plan.moves) == BINS // 2
    assert len(slow.bases) == 1


def test_plan_is_made_again_from_where_the_bins_will_be_by_then(run, commands):
    slow = Slow()
    result = in_thread(run.submit, slow)
    assert slow.begun.wait(60)
    first = run.submit(to([0] * BINS))
    slow.may_go_on.set()
    second = result()
    assert [(move.bin, move.source) for move in second.plan.moves] == [(bin, 0) for bin in range(BINS)]
    assert run.epochs.controller.under_way == (first, second)
    assert (commands(), first.number, second.number) == ([0, 1], 0, 1)


def is_free(lock):
    """Could another thread have it?"""

    def look():
        free = lock.acquire(blocking=False)
        if free:
            lock.release()
        return free

    return in_thread(look)()


def test_plan_that_is_always_too_late_is_made_while_nothing_else_is_accepted(run):
    """Else it might never be accepted."""
    free = []

    def planner(basis):
        free.append(is_free(run.lock))
        if free[-1]:
            run.submit(to([len(free) % 2] * BINS))
        return to([0, 0, 1, 1])(basis)

    assert run.submit(planner).plan.moves
    assert free == [True] * TRIES + [False]
    assert run.epochs.controller.expected == Assignment([0, 0, 1, 1])


def test_plan_that_was_in_time_when_it_was_made_and_is_not_any_more_is_refused(run, commands):
    def planner(basis):
        for epoch in range(3):
            run.epochs.open(epoch)
        return Pace.of(at=1).plan(basis.expected, Assignment([1] * BINS))

    with pytest.raises(PlanError, match=r"^reconfiguration at time 1 is behind the frontier 3; choose 3 or later$"):
        run.submit(planner)
    assert commands() == []


def plan_of(*moves, **said):
    return Plan(BINS, (Step(tuple(Move(*move) for move in moves)),), **said)


REFUSED = {
    "bin 1.7": plan_of((1.7, 0, 1)),
    "worker True": plan_of((0, 0, True)),
    "a gap of 0.5": plan_of((0, 0, 1), gap=0.5),
    "a gap of 2**70": plan_of((0, 0, 1), gap=2**70),
    "a strategy that is no text": plan_of((0, 0, 1), strategy=b"fluid"),
    "steps that are none": Plan(BINS, (((0, 0, 1),),)),
}


@pytest.mark.parametrize("plan", REFUSED.values(), ids=REFUSED)
def test_plan_that_is_refused_is_not_written_down(run, commands, plan):
    before = run.epochs.controller.expected
    with pytest.raises(PlanError):
        run.submit(lambda basis: plan)
    assert (commands(), run.epochs.controller.history) == ([], [])
    assert run.epochs.controller.expected is before


@pytest.mark.parametrize("workers", [True, 0, 2.0, "3", BINS + 1, 10**20])
def test_rescale_that_is_refused_changes_nothing(run, commands, workers):
    with pytest.raises(PlanError, match="workers asked for"):
        run.submit(lambda basis: Plan(BINS, ()), workers)
    assert (commands(), run.epochs.wanted) == ([], 2)


def test_plan_is_followed_as_it_was_read_back(run, tmp_path):
    """Numbers of NumPy's are numbers, now and after a restart."""
    numpy = np.int64
    migration = run.submit(lambda basis: plan_of((numpy(0), numpy(0), numpy(2)), gap=numpy(3)), numpy(3))
    stored = Store(str(tmp_path), "control0").read_command(0)
    assert (Plan.from_json(stored.plan), stored.workers) == (migration.plan, 3)
    (move,) = migration.plan.moves
    assert {type(number) for number in (move.bin, move.target, migration.plan.gap, migration.then_workers)} == {int}


def test_command_that_is_refused_is_not_written_down(run, commands):
    with pytest.raises(PlanError, match="no migration is under way"):
        run.tell("cancel")
    assert commands() == []
    run.submit(to([1] * BINS))
    run.epochs.clear(0)
    run.plan(PlanQuestion(KEY, 0, -1, "driver"))
    run.tell("cancel")
    with pytest.raises(PlanError, match="cancelled already"):
        run.tell("pause")
    assert commands() == [0, 1]


def test_log_that_cannot_be_cut_is_told_once_a_minute(run, tmp_path, caplog, monkeypatch):
    seconds = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    caplog.set_level(logging.WARNING, "megaphone")
    plan = tmp_path / "megaphone" / "control0" / "plans" / "000000000007-0001"
    plan.parent.mkdir()
    plan.write_bytes(b"torn")
    for epoch in range(0, 125 * CUT_EVERY, CUT_EVERY):
        run._cut(epoch, 0, [])
        seconds[0] += 1
    assert [record.message[:34] for record in caplog.records] == ["the log of query q cannot be cut, "] * 3
