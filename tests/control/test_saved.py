"""Would catch anything that the control side knows and forgets in a crash: after it, other plans or another history.

At every epoch of a run its epochs are saved, sent through bytes and restored; from then on the twin must do as the
original does.
"""

from dataclasses import asdict, replace
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment, Configuration
from megaphone.control import controller as controllers
from megaphone.control import meter
from megaphone.control.controller import Migration, MigrationSummary
from megaphone.control.epochs import Epochs, Report, input_frontier
from megaphone.control.plan import Plan, Step
from megaphone.control.saved import Saved, restore, save
from megaphone.control.strategies import make_plan
from megaphone.errors import PlanError
from megaphone.progress import BEGIN, END, Frontier, Time

WORKERS, BINS = 3, 6
NAMES = ("left", "right")


class Original:
    """Epochs, and a record of everything that was said to them and that they said."""

    def __init__(self, clock):
        self.clocks = {"left": (clock, 1), "right": (clock, 2)}
        self.epochs = Epochs(Assignment.round_robin(BINS, WORKERS), WORKERS, self.clocks)
        self.plans = {}
        self.said = []
        self.twins = []

    def tell(self, what):
        """Say something to the epochs, and note it with the answer."""
        answer = what(self.epochs)
        self.said.append((what, answer))
        return answer

    def save(self):
        """A twin is born, who hears everything from here on."""
        saved = msgspec.msgpack.decode(msgspec.msgpack.encode(save(self.epochs)), type=Saved)
        configuration = Configuration.of(self.epochs.configuration.entries)
        twin = restore(saved, configuration, self.clocks, self.plans.__getitem__)
        twin.controller.remember(self.epochs.controller.past)
        assert save(twin) == saved
        self.twins.append((twin, len(self.said)))

    def check(self):
        for twin, since in self.twins:
            for what, answer in self.said[since:]:
                assert what(twin) == answer
            assert save(twin) == save(self.epochs)
            assert twin.configuration.entries == self.epochs.configuration.entries
            assert twin.controller.expected == self.epochs.controller.expected
            assert (twin.wants_epoch, twin.now) == (self.epochs.wants_epoch, self.epochs.now)
            assert list(map(history, twin.controller.history)) == list(map(history, self.epochs.controller.history))

    # -- what happens

    def epoch(self, advances, bytes_in, closing=False):
        self.save()
        plan = self.tell(lambda epochs, at=self.epochs.epoch + 1: epochs.open(at, closing))
        for name, advance in zip(NAMES, advances, strict=True):
            self._report(plan, name, advance, bytes_in)

    def _report(self, plan, name, advance, bytes_in):
        told, (clock, inputs) = plan.operators[name], self.clocks[name]
        seen = [Time(max(told.frontier, 0) + advance)] * inputs
        frontier = input_frontier(clock, plan.epoch, plan.closing, seen, [0] * inputs, told.frontier).bound
        output = min([frontier, *(time for _, time in told.holds)])
        reports = [Report(worker, Time(output), 3, 1, bytes_in, 9, plan.epoch) for worker in plan.workers]
        self.tell(lambda epochs: epochs.report(name, plan.epoch, reports, seen, frontier))

    def migrate(self, owners, name, batch, gap, ahead):
        expected = self.epochs.controller.expected
        plan = make_plan(expected, Assignment(owners), name, batch=batch if name == "batched" else None, gap=gap)
        if ahead is not None and plan.steps:
            first = Step(plan.steps[0].moves, Time(max(self.epochs.now, 0) + ahead))
            plan = Plan(BINS, (first, *plan.steps[1:]), gap, name)
        number = len(self.plans)
        self.plans[number] = plan
        self.tell(lambda epochs: _submit(epochs, plan, number))

    def command(self, verb):
        self.tell(lambda epochs: _command(epochs, verb))


def _submit(epochs, plan, number):
    migration = epochs.submit(plan, WORKERS, number)
    # When it was asked for is told by the clock on the wall.
    migration.asked_s = 0.0
    return history(migration)


def _command(epochs, verb):
    try:
        if verb == "cancel":
            return history(epochs.controller.cancel(epochs.configuration.last))
        if verb == "hold":
            return history(_held(epochs.controller))
        if verb == "fail":
            last = max((migration.number for migration in epochs.controller.history), default=-1)
            return history(epochs.fail(last, "why", epochs.epoch + 1))
        return history({"pause": epochs.controller.pause, "resume": epochs.controller.resume}[verb]())
    except PlanError as error:
        return str(error)


def _held(controller):
    """It is not known any more whether its bins can travel."""
    migration = controller._require()
    migration.cleared = False
    return migration


def history(migration):
    """A migration to be compared; when it ended is told by a clock that stands."""
    if migration is None:
        return None
    if isinstance(migration, MigrationSummary):
        return replace(migration, asked_s=0.0)
    known = {name: getattr(migration, name) for name in Migration.__slots__ if not name.startswith("_")}
    return known | {"ended": migration._ended.is_set()}


@pytest.fixture(autouse=True)
def clock_that_stands(monkeypatch):
    monkeypatch.setattr(controllers.time, "time", lambda: 1234.5)
    # How large an adaptive step is, too, is told by a clock.
    monkeypatch.setattr(meter, "time", SimpleNamespace(monotonic=lambda: 12.5))


owners = st.lists(st.integers(0, WORKERS - 1), min_size=BINS, max_size=BINS)
strategies = st.sampled_from(["adaptive", "all_at_once", "fluid", "batched", "optimized"])
advance = st.integers(0, 9)
epochs = st.tuples(st.just("epoch"), st.tuples(advance, advance), st.integers(0, 9))
migrations = st.tuples(
    st.just("migrate"), owners, strategies, st.integers(1, 3), st.integers(0, 2), st.none() | st.integers(0, 12)
)
commands = st.tuples(st.just("command"), st.sampled_from(["pause", "resume", "cancel", "hold", "fail"]))
ending = st.tuples(st.just("epoch"), st.just((0, 0)), st.just(0), st.just(True))
actions = st.lists(st.one_of(epochs, epochs, epochs, migrations, commands), max_size=14)


@pytest.mark.parametrize("clock", ["epoch", "column"])
@given(drawn=actions, end=st.lists(ending, max_size=3))
def test_restored_epochs_go_on_as_the_saved_ones(clock, drawn, end):
    original = Original(clock)
    for what, *details in [*drawn, *end]:
        getattr(original, what)(*details)
    original.save()
    original.check()


def test_what_is_saved_in_every_epoch_does_not_grow_with_the_migrations_that_have_ended():
    """It used to repeat the last fifty of them, ten times a second."""
    original = Original("epoch")
    sizes = []
    for number in range(40):
        original.migrate([number % WORKERS] * BINS, "all_at_once", 1, 0, None)
        for _ in range(3):
            original.epoch((0, 0), 4)
        assert original.epochs.controller.current is None
        sizes.append(len(msgspec.msgpack.encode(save(original.epochs))))
    assert max(sizes[3:]) - min(sizes[3:]) < 16
    assert original.epochs.controller.ended == {"done": 40}


def test_migration_that_had_ended_is_not_waited_for():
    original = Original("epoch")
    original.migrate([0] * BINS, "all_at_once", 1, 0, None)
    for _ in range(3):
        original.epoch((0, 0), 4)
    original.save()
    twin, _ = original.twins[-1]
    assert twin.controller.history[0].wait(timeout=0).phase == "done"
    assert twin.controller.current is None


# -- inputs that ended and are open again -----------------------------------------------------------------------------


@pytest.mark.parametrize("clock", ["epoch", "column"])
def test_new_run_goes_on_where_the_inputs_were_before_they_ended(clock):
    original = Original(clock)
    original.epoch((7, 5), 0)
    original.epoch((0, 0), 0, closing=True)
    epochs = original.epochs
    assert {operator.frontier.bound for operator in epochs.operators.values()} == {END}
    epochs.reopen()
    expected = [2, 2] if clock == "epoch" else [7, 5]
    assert [operator.frontier.bound for operator in epochs.operators.values()] == expected
    assert [operator.output_frontier for operator in epochs.operators.values()] == [Frontier(Time(t)) for t in expected]
    assert not epochs.open(2).closing


@pytest.mark.parametrize("clock", ["epoch", "column"])
@pytest.mark.parametrize("ahead", [None, 1000])
def test_bins_moved_when_the_inputs_had_ended_are_found_at_every_time_of_a_new_run(clock, ahead):
    """Their moves bear the time after all times, or one far ahead; records of a new run come before it."""
    original = Original(clock)
    original.epoch((7, 5), 0)
    original.migrate([1] * BINS, "fluid", 1, 0, ahead)
    for _ in range(2 * BINS + 2):
        original.epoch((0, 0), 0, closing=True)
    epochs = original.epochs
    assert epochs.controller.current is None
    version = epochs.version
    epochs.reopen()
    assert epochs.version > version
    assert epochs.configuration.entries == ((BEGIN, Assignment([1] * BINS)),)
    epochs.submit(make_plan(epochs.controller.expected, Assignment([2] * BINS), "all_at_once"))
    plan = epochs.open(epochs.epoch + 1)
    assert len(plan.operators["left"].moves) == BINS or plan.operators["left"].holds
    assert plan.configuration[-1][1] == Assignment([2] * BINS)


def test_what_was_never_closed_is_not_opened():
    original = Original("column")
    original.epoch((7, 5), 0)
    before = save(original.epochs)
    original.epochs.reopen()
    assert save(original.epochs) == before


def test_saved_epochs_are_plain_data():
    original = Original("column")
    original.migrate([1] * BINS, "fluid", 1, 0, 5)
    original.epoch((3, 4), 5)
    saved = save(original.epochs)
    assert msgspec.to_builtins(saved)["operators"].keys() == {"left", "right"}
    assert asdict(saved)["epoch"] == 0
    assert WorkerId(0) in saved.operators["left"].output
