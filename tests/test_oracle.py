"""Any input, any plans: the same output as no migration, on the workers the configuration names, to the end.

Would catch whatever the parts' own tests miss: the paper's three properties (Correctness, Migration, Completion) on the
local engine, against `testing.recompute`, which knows neither bins nor workers nor frontiers.
"""

from collections import Counter
from heapq import heapify, heappop, heappush

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megaphone.bins import Bins
from megaphone.configuration import Assignment, Configuration
from megaphone.control.plan import Plan, Step
from megaphone.control.strategies import make_plan
from megaphone.control.targets import balanced
from megaphone.dataflow.folds import vectorised
from megaphone.dataflow.hashing import hash_columns
from megaphone.dataflow.operators import Input, OperatorSpec, bin_operator, key_operator
from megaphone.dataflow.records import runs
from megaphone.engine.local import LocalEngine
from megaphone.progress import CLOSED, Time
from megaphone.testing import check_operator, make_records, recompute, recompute_machine

WORKERS, BINS = 3, 8
SCHEMA = pa.schema([("key", pa.string()), ("time", pa.int64()), ("n", pa.int64())])
OUTPUT = pa.schema([("time", pa.int64()), ("key", pa.string()), ("n", pa.int64())])
KEYS = list("abcdefgh")
BIN_OF = dict(zip(KEYS, Bins.of_count(BINS).of_hashes(hash_columns([pa.array(KEYS)])).tolist(), strict=True))


class Witness:
    """Sees every call of a fold: on which worker, at which time, for which keys."""

    def __init__(self):
        self.worker = None
        self.seen = []

    def saw(self, time, keys):
        self.seen += [(self.worker, time, key) for key in keys]

    def watch(self, fold):
        return Watched(fold, self)


class Watched:
    """A fold whose witness knows the worker that calls it."""

    def __init__(self, fold, witness):
        self.fold, self.witness = fold, witness

    def __getattr__(self, name):
        return getattr(self.fold, name)

    def apply(self, due, states, bounds, worker, watch):
        self.witness.worker = worker
        return self.fold.apply(due, states, bounds, worker, watch)


def machine(witness):
    """Count to three, then forget the key."""

    def fold(key, value, count):
        time, _ = value
        witness.saw(time, key)
        count = (count or 0) + 1
        return None if count == 3 else count, [(time, key, count)]

    return fold


def unary(witness):
    """Sum up; a record with n > 0 comes back n later, with n - 1."""

    def fold(time, data, state, notificator):
        witness.saw(time, [key for key, _, _ in data])
        for key, _, n in data:
            state[key] = state.get(key, 0) + n + 1
            if n > 0:
                notificator.notify_at(time + n, (key, time + n, n - 1))
        return [(time, key, state[key]) for key in sorted({key for key, _, _ in data})]

    return fold


def binary(witness):
    """What is on the left adds, what is on the right doubles, and each comes back on the other side."""

    def fold(time, left, right, state, left_later, right_later):
        witness.saw(time, [key for data in (left, right) for key, _, _ in data])
        for data, later in ((left, right_later), (right, left_later)):
            for key, _, n in data:
                state[key] = state.get(key, 0) + n + 1 if data is left else state.get(key, 0) * 2 + 1
                if n > 0:
                    later.notify_at(time + n, (key, time + n, n - 1))
        return [(time, key, state[key]) for key in sorted({key for data in (left, right) for key, _, _ in data})]

    return fold


def vector(witness):
    """`unary`, a call for many bins: what falls due before the bin's bound it does itself, the rest it post-dates."""
    scalar = unary(witness)

    class Agenda:
        def __init__(self, rows):
            self.rows = rows
            heapify(self.rows)

        def notify_at(self, time, record):
            heappush(self.rows, (time, *record))

    @vectorised
    def fold(records, states, notificator):
        outputs, later = [], []
        for start, stop in runs(records.bins):
            bin, part = int(records.bins[start]), records.slice(start, stop)
            rows = [column.to_pylist() for column in part.data.columns]
            agenda = Agenda(list(zip(part.times.tolist(), *rows, strict=True)))
            while agenda.rows and agenda.rows[0][0] < notificator.bounds[bin]:
                time, data = agenda.rows[0][0], []
                while agenda.rows and agenda.rows[0][0] == time:
                    data.append(heappop(agenda.rows)[1:])
                outputs += scalar(time, data, states[bin], agenda)
            later += [(bin, *row) for row in agenda.rows]
        notificator.notify_at(make_records(later, SCHEMA))
        return dict(zip(OUTPUT.names, zip(*outputs, strict=True), strict=True)) if outputs else None

    return fold


def input_of(clock, lateness=0):
    return Input(SCHEMA, ("key",)) if clock == "epoch" else Input(SCHEMA, ("key",), "time", lateness)


def build(kind, clock, lateness, witness):
    inputs = [input_of(clock, lateness)] * (2 if kind == "binary" else 1)
    if kind == "machine":
        made = key_operator(kind, inputs[0], machine(witness), OUTPUT, None)
    else:
        fold = {"unary": unary, "binary": binary, "vector": vector}[kind](witness)
        made = bin_operator(kind, inputs, fold, OUTPUT, dict)
    return OperatorSpec(made.name, made.inputs, witness.watch(made.fold))


def oracle(kind, inputs):
    """What must come out: (time, output) pairs for the rows of each input."""
    if kind == "machine":
        return recompute_machine(machine(Witness()), [(t, key, (t, n)) for key, t, n in inputs[0]])
    timed = [[(row[1], row) for row in rows] for rows in inputs]
    fold = binary(Witness()) if kind == "binary" else unary(Witness())
    return recompute(fold, timed, [lambda row: row[0]] * len(inputs))


class Run:
    """An engine, what went into it, what came out of it, and every assignment there has been."""

    def __init__(self, kind, clock, lateness=0):
        self.kind, self.clock, self.lateness = kind, clock, lateness
        self.witness = Witness()
        self.engine = LocalEngine(build(kind, clock, lateness, self.witness), WORKERS, BINS)
        self.rows = [[] for _ in self.engine.spec.inputs]
        self.late = 0
        self.output = []
        self.migrations = []
        self.assignments = {}
        self.engine.epochs.open = self._noting(self.engine.epochs.open)

    @property
    def frontier(self):
        return self.engine.epochs.operators[self.kind].frontier

    def epoch(self, *inputs):
        now = self.engine.epochs.epoch + 1
        given = []
        for kept, rows in zip(self.rows, inputs, strict=True):
            timed = [(key, now if self.clock == "epoch" else time, n) for key, time, n in rows]
            in_time = [row for row in timed if self.clock == "epoch" or self.frontier.less_equal(row[1])]
            self.late += len(timed) - len(in_time)
            kept += in_time
            given.append(timed)
        self.output += self.engine.epoch(*given)

    def empty_epoch(self):
        self.epoch(*([] for _ in self.rows))

    def migrate(self, target, strategy="fluid", **options):
        return self.submit(make_plan(self.engine.epochs.controller.expected, target, strategy, **options))

    def submit(self, plan):
        self.migrations.append(self.engine.migrate(plan))
        return self.migrations[-1]

    def close(self):
        self.output += self.engine.close()

    def check(self):
        """Correctness, Migration, Completion."""
        self.close()
        assert Counter((row.time, tuple(row)) for row in self.output) == Counter(oracle(self.kind, self.rows))
        assert self.engine.epochs.operators[self.kind].late == self.late
        configuration = Configuration.of(sorted(self.assignments.items(), key=lambda entry: entry[0]))
        for worker, time, key in self.witness.seen:
            assert worker == configuration.owner(Time(time), BIN_OF[key]), f"{key} at {time} on worker {worker}"
        assert min(host.output_frontier for host in self.engine.hosts.values()) == CLOSED
        assert {migration.phase for migration in self.migrations} <= {"done", "cancelled"}
        for worker, host in self.engine.hosts.items():
            assert np.flatnonzero(host.resident).tolist() == configuration.last.bins_of(worker).tolist()
            assert not host._pending

    def _noting(self, open):
        def noting(epoch, closing):
            plan = open(epoch, closing)
            self.assignments.update(plan.configuration)
            return plan

        return noting


keys = st.sampled_from(sorted(BIN_OF))
rows = st.lists(st.tuples(keys, st.integers(0, 40), st.integers(0, 4)), max_size=6)
targets = st.lists(st.integers(0, WORKERS - 1), min_size=BINS, max_size=BINS).map(Assignment)
names = st.sampled_from(["all_at_once", "fluid", "batched", "optimized"])
plans = st.tuples(targets, names, st.integers(1, 4), st.integers(0, 2), st.none() | st.integers(0, 15), st.booleans())
actions = st.lists(
    st.one_of(
        st.tuples(st.just("epoch"), rows, rows),
        st.tuples(st.just("epoch"), rows, rows),
        st.tuples(st.just("migrate"), plans),
        st.tuples(st.sampled_from(["pause", "resume", "cancel"])),
    ),
    max_size=14,
)


def follow(run, action, *details):
    """Do what was drawn, as far as it makes sense now."""
    controller = run.engine.epochs.controller
    if action == "epoch":
        run.epoch(*details[: len(run.rows)])
    elif action == "migrate":
        submit_drawn(run, *details[0])
    elif controller.current is not None and controller.current.phase != "cancelled":
        if action == "cancel":
            controller.cancel(run.engine.epochs.configuration.last)
        else:
            {"pause": controller.pause, "resume": controller.resume}[action]()


def submit_drawn(run, target, name, batch, gap, ahead, every_step):
    """A plan for now, or for a time ahead: its first step only, or each step two times after the one before."""
    now = max(run.engine.epochs.now, 0)
    size = batch if name == "batched" else None
    plan = make_plan(run.engine.epochs.controller.expected, target, name, batch=size, gap=gap)
    if ahead is not None:
        count = len(plan.steps) if every_step else 1
        times = [Time(now + ahead + 2 * number) for number in range(count)] + [None] * len(plan.steps)
        steps = tuple(Step(step.moves, time) for step, time in zip(plan.steps, times, strict=False))
        plan = Plan(plan.bins, steps, gap, name)
    run.submit(plan)


@pytest.mark.parametrize("clock", ["epoch", "column"])
@pytest.mark.parametrize("kind", ["machine", "unary", "binary", "vector"])
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=actions, lateness=st.integers(0, 10))
def test_any_input_and_any_plans_give_what_no_migration_gives(kind, clock, drawn, lateness):
    run = Run(kind, clock, lateness)
    for action in drawn:
        follow(run, *action)
    current = run.engine.epochs.controller.current
    if current is not None and current.phase == "paused":
        run.engine.epochs.controller.resume()
    run.check()


EVERYTHING = [(key, time, n) for key in BIN_OF for time, n in ((3, 4), (11, 2), (17, 0))]


def moved_by(shift):
    return Assignment((np.arange(BINS) + shift) % WORKERS)


@pytest.mark.parametrize("clock", ["epoch", "column"])
@pytest.mark.parametrize("kind", ["machine", "unary", "binary", "vector"])
def test_two_migrations_back_to_back(kind, clock):
    run = Run(kind, clock, lateness=5)
    data = [EVERYTHING] * len(run.rows)
    run.epoch(*data)
    run.migrate(moved_by(1), "all_at_once")
    run.migrate(moved_by(2), "all_at_once")
    for _ in range(3):
        run.epoch(*data)
    assert [migration.phase for migration in run.migrations] == ["done", "done"]
    run.check()


@pytest.mark.parametrize("kind", ["unary", "vector"])
def test_migrations_at_adjacent_times(kind):
    """The second time is passed in the same epoch as the first: the bin must rest on each worker in between."""
    run = Run(kind, "column")
    run.epoch([("a", 3, 4), ("b", 3, 1)])
    expected = run.engine.epochs.controller.expected
    first = make_plan(expected, moved_by(1), "all_at_once").steps[0]
    second = make_plan(moved_by(1), moved_by(2), "all_at_once").steps[0]
    run.submit(Plan(BINS, (Step(first.moves, Time(10)), Step(second.moves, Time(11)))))
    run.epoch([(key, time, 0) for key in BIN_OF for time in (9, 10, 11, 12, 30)])
    run.check()


@pytest.mark.parametrize("kind", ["unary", "binary", "vector"])
@pytest.mark.parametrize("clock", ["epoch", "column"])
def test_pending_records_fire_after_they_moved(kind, clock):
    run = Run(kind, clock)
    later = [(key, 2, 4) for key in BIN_OF]
    run.epoch(*[later] * len(run.rows))
    if clock == "column":
        run.epoch(*[[("a", 3, 0)]] * len(run.rows))
    fired = len(run.witness.seen)
    run.migrate(moved_by(1), "all_at_once")
    run.empty_epoch()
    assert run.migrations[0].issued == 1
    run.close()
    old = {key: (BIN_OF[key] % WORKERS) for key in BIN_OF}
    after = run.witness.seen[fired:]
    assert {key for _, _, key in after} == set(BIN_OF)
    assert all(worker != old[key] for worker, _, key in after)
    run.check()


@pytest.mark.parametrize("kind", ["unary", "binary", "vector"])
def test_future_migration_splits_the_times_of_one_epoch_between_two_workers(kind):
    """One epoch passes the migration time and what was post-dated beyond it: old owner before, new owner after."""
    run = Run(kind, "column")
    data = [[("a", 1, 0)]] * len(run.rows)
    run.epoch(*data)
    run.migrate(moved_by(1), "all_at_once", at=Time(10))
    run.epoch(*[[(key, 8, 4) for key in BIN_OF] + [("a", 40, 0)]] * len(run.rows))
    assert {time for _, time, _ in run.witness.seen} <= set(range(10))
    run.check()
    assert {time for _, time, _ in run.witness.seen} >= {8, 12, 15, 17, 18}


def test_migration_prepared_far_ahead_is_done_when_the_inputs_end():
    """By epoch, held bins used to keep what was post-dated past the migration for ever."""
    run = Run("unary", "epoch")
    migration = run.migrate(moved_by(1), "fluid", at=Time(1000))
    run.epoch([(key, 0, 4) for key in BIN_OF])
    run.check()
    assert migration.phase == "done"


def test_closing_ends_every_queued_migration():
    run = Run("machine", "column")
    for shift in (1, 2, 3):
        run.migrate(moved_by(shift), "fluid", gap=1)
    run.epoch(EVERYTHING)
    run.check()
    assert [migration.phase for migration in run.migrations] == ["done"] * 3


def test_settling_ends_a_migration_without_data():
    run = Run("unary", "column")
    run.epoch(EVERYTHING)
    run.migrate(moved_by(1), "fluid", gap=2)
    run.output += run.engine.settle()
    assert run.migrations[0].phase == "done"
    run.check()


def test_draining_and_refilling_a_worker_loses_nothing():
    run = Run("unary", "epoch")
    for workers in (2, 1, 3):
        run.epoch(EVERYTHING)
        run.migrate(balanced(run.engine.epochs.controller.expected, workers), "optimized")
    for _ in range(6):
        run.epoch(EVERYTHING)
    run.check()


@pytest.mark.parametrize("clock", ["epoch", "column"])
def test_retained_configurations_stay_few_in_a_thousand_steps(clock):
    witness = Witness()
    engine = LocalEngine(build("unary", clock, 0, witness), workers=2, bins=1024)
    current = engine.epochs.controller.expected
    migration = engine.migrate(make_plan(current, Assignment(1 - current.owners), "fluid"))
    most = 0
    for time in range(1030):
        engine.epoch([("a", time, 0)])
        most = max(most, len(engine.epochs.configuration))
    assert migration.phase == "done"
    assert len(migration.plan.steps) == 1024
    assert most <= 2


def test_late_records_are_counted_and_left_out():
    run = Run("unary", "column", lateness=2)
    run.epoch([("a", 10, 0)])
    run.epoch([("a", 7, 0), ("a", 8, 0), ("b", 9, 0)])
    assert run.late == 1
    run.check()


def test_records_after_the_end_are_late():
    run = Run("unary", "epoch")
    run.epoch([("a", 0, 0)])
    run.close()
    run.engine.epoch([("a", 5, 0)])
    assert run.engine.epochs.operators["unary"].late == 1


@pytest.mark.parametrize("kind", ["machine", "unary", "binary", "vector"])
def test_operators_keep_the_contract_of_operators(kind):
    spec = build(kind, "column", 0, Witness())
    check_operator(spec, [[EVERYTHING] * len(spec.inputs), [[("a", 19, 3)]] * len(spec.inputs)])
