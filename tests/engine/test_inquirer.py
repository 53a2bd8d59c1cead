"""Would catch a bin that is moved though its worker could have said that it cannot, and a migration that never begins.

A run and its workers as they are on Spark, in this process: plans, calls and files are real, only Spark is missing.
"""

import contextlib
import pickle
import socket
import time

import numpy as np
import pyarrow as pa
import pytest

from megaphone.bins import Bins, WorkerId
from megaphone.configuration import Assignment
from megaphone.control.forecast import forecast
from megaphone.control.strategies import make_plan
from megaphone.dataflow.exchange import encode
from megaphone.dataflow.hashing import hash_columns
from megaphone.dataflow.operators import Input, key_operator
from megaphone.dataflow.records import Records
from megaphone.dataflow.routing import address
from megaphone.durability.manifest import shape_of
from megaphone.engine.spark import inquirer
from megaphone.engine.spark.feed import _exchange
from megaphone.engine.spark.messages import (
    AliveQuestion,
    ApplyRequest,
    Join,
    Key,
    PlanQuestion,
    ReportMessage,
    SpecQuestion,
    StuckMessage,
    WorkerConfig,
    dump,
    load,
)
from megaphone.engine.spark.orders import orders_for
from megaphone.engine.spark.rpc import Caller, Service, listen
from megaphone.engine.spark.run import PickledSpec, Run, Terms
from megaphone.engine.spark.worker import Worker
from megaphone.errors import FoldError
from megaphone.progress import Time

BINS = 8
WORDS = pa.schema([("word", pa.string())])
OUTPUT = pa.schema([("word", pa.string()), ("n", pa.int64())])
REASON = "TypeError: cannot pickle 'generator' object"


def count(word, _, state):
    """What is called `hoard` keeps what cannot be pickled from the second time on."""
    n = (state[0] if state else 0) + 1
    return (n, (letter for letter in word) if word == "hoard" and n > 1 else None), [(word, n)]


SPEC = key_operator("count", Input(WORDS, ("word",)), count, OUTPUT, None)


def bin_of(word):
    return int(Bins.of_count(BINS).of_hashes(hash_columns([pa.array([word])]))[0])


HOARD = bin_of("hoard")


class Query(Service):
    """A query on two workers: started, fed, stopped, and started again."""

    def __init__(self, folder):
        super().__init__()
        self._folder, self._caller, self._listeners = folder, Caller("secret"), []
        self.actions = {
            "spec": lambda raw: dump(
                self.run.spec(WorkerId((asked := load(raw, SpecQuestion)).worker), asked.operator)
            ),
            "alive": lambda raw: dump(self.run.alive(load(raw, AliveQuestion))),
            "stuck": lambda raw: dump(self.run.stuck(load(raw, StuckMessage))),
        }
        self._listeners, self.address = listen(self, "secret", folder / "c.sock", None)
        self.epoch, self.attempt = 0, 0
        self.start()

    def start(self):
        self.attempt += 1
        self.key = Key("query", f"run{self.attempt}", "control")
        shape = shape_of(SPEC, ("word",))
        specs = {"count": PickledSpec(pickle.dumps(SPEC), True, 1, shape, "epoch")}
        checkpoint = str(self._folder / "checkpoint")
        terms = Terms(Assignment.round_robin(BINS, 2), 2, specs, checkpoint, "control0", 0.0, False)
        self.run = Run(self.key, terms, self.epoch, self._caller, lambda: 1, lambda _: False, lambda _: None)
        self.workers = {}

    def stop(self):
        self.run.close()
        for listeners, ends, _ in self.workers.values():
            for one in listeners:
                one.shutdown()
            for end in ends:
                end.close()

    def close(self):
        self.stop()
        for listener in self._listeners:
            listener.shutdown()

    def feed(self, *words):
        """An epoch, until it is committed."""
        plan = self.run.plan(PlanQuestion(self.key, self.epoch, -1, "executor"))
        for birth in plan.spawn:
            self._bear(birth)
        told, epoch, output = plan.operators["count"], self.epoch, []
        records = Records.at(
            Time(epoch), np.array(list(map(bin_of, words)), np.uint32), pa.record_batch({"word": words})
        )
        routed = dict(address(plan.read_configuration(), records)) if words else {}
        for worker in map(WorkerId, plan.workers):
            payloads = [(0, encode([routed[worker]]))] if worker in routed else []
            orders = orders_for(worker, "count", epoch, told, lambda worker: self._seats()[worker])
            request = ApplyRequest(self._seats()[worker].incarnation, orders, epoch + 1, [epoch], len(payloads))
            outputs, report = _exchange(self._caller, self._seats()[worker], request, payloads)
            self.run.report(ReportMessage(self.key, "count", epoch, [report], [epoch], epoch + 1))
            output += [tuple(row.values()) for batch in outputs for row in batch.to_pylist()]
        self.epoch += 1
        return sorted(output)

    def _seats(self):
        return {WorkerId(worker): seat for worker, seat in self.run.placement.seats().items()}

    def _bear(self, birth):
        config = WorkerConfig(
            self.key, birth.worker, birth.incarnation, self.address, self.address, "secret", True, None
        )
        worker = Worker(config)
        path = self._folder / f"w{self.attempt}-{birth.incarnation}.sock"
        listeners, seat = listen(worker, "secret", path, None)
        ends = socket.socketpair()
        self.workers[birth.worker] = listeners, ends, worker
        join = Join(self.key, birth.worker, birth.incarnation, seat, 1, "host", None)
        self.run.placement.joined(join, ends[0])

    @property
    def owners(self):
        return self.run.epochs.configuration.last

    @property
    def last(self):
        return self.run.epochs.controller.history[-1]

    def migrate(self, *bins, **options):
        """Move bins to the other worker."""

        def plan(basis):
            owners = basis.expected.owners
            target = basis.expected.after((bin, 1 - int(owners[bin])) for bin in bins)
            return make_plan(basis.expected, target, "all_at_once", **options)

        return self.run.submit(plan)

    @contextlib.contextmanager
    def busy(self):
        """The workers have no time for anything."""
        with contextlib.ExitStack() as stack:
            for _, _, worker in self.workers.values():
                stack.enter_context(worker._tenancies["count"]._applying)
            yield


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def query(tmp_path):
    with contextlib.closing(Query(tmp_path)) as query:
        yield query


@pytest.fixture
def hoarding(query):
    """A query with a state that cannot travel."""
    query.feed("hoard", "a")
    query.feed("hoard", "a")
    return query


def sentence(query):
    where = f"bin {HOARD} on worker {query.owners.owners[HOARD]}"
    return f"state of operator count in {where} cannot travel: {REASON}; keep only what can be pickled"


def test_migration_of_a_bin_that_cannot_travel_fails_and_the_query_goes_on(hoarding):
    before, target = hoarding.owners, Assignment([0, 1, 2, 2, 1, 0, 0, 2])
    failed = hoarding.run.submit(lambda basis: make_plan(before, target, "fluid"), 3)
    behind = hoarding.run.submit(lambda basis: make_plan(target, before, "fluid"))
    failed.wait(60)
    assert (failed.phase, failed.bins_moved, failed.reason) == ("failed", 0, sentence(hoarding))
    assert (behind.phase, behind.reason) == ("failed", "migration 0, which comes before it, has failed")
    assert hoarding.feed("a", "hoard") == [("a", 3), ("hoard", 3)]
    assert (hoarding.owners, hoarding.run.epochs.wanted) == (before, 2)
    assert not any(hoarding.run.bell() for _ in range(3))


def test_migration_that_has_failed_stays_so_whenever_the_driver_dies(hoarding):
    before, reason = hoarding.owners, sentence(hoarding)
    hoarding.migrate(HOARD).wait(60)
    for _ in range(2):
        hoarding.stop()
        hoarding.start()
        assert (hoarding.last.phase, hoarding.last.reason) == ("failed", reason)
        hoarding.feed()
        assert hoarding.owners == before


def test_migration_of_bins_that_can_travel_begins_with_the_next_epoch(query):
    query.feed("a", "b")
    query.feed("a", "b")
    migration = query.migrate(*range(BINS))
    before = query.owners
    until(lambda: migration.cleared)
    assert query.feed("a", "b") == [("a", 3), ("b", 3)]
    assert not (before.owners == query.owners.owners).any()


def test_dry_run_says_that_a_bin_cannot_travel(hoarding):
    meter, here = hoarding.run.epochs.meter.reading, hoarding.owners
    plans = [make_plan(here, here.after([(bin, 1 - int(here.owners[bin]))])) for bin in (HOARD, bin_of("a"))]
    told = [hoarding.run.foresee(forecast(plan, meter)) for plan in plans]
    assert [plan.estimate.obstacle for plan in told] == [sentence(hoarding), None]
    assert f"; it would fail: {sentence(hoarding)}" in str(told[0])


def gone(query):
    """The workers are there no more, and others are not there yet."""
    for worker in list(query.run.placement.residents):
        query.run.placement.dismiss(worker)
    return contextlib.nullcontext()


@pytest.mark.parametrize("hinder", [Query.busy, gone])
def test_worker_that_does_not_answer_holds_no_migration_up_for_long(query, monkeypatch, hinder):
    monkeypatch.setattr(inquirer, "PATIENCE_S", 0.2)
    monkeypatch.setattr(inquirer, "GRACE_S", 0.1)
    query.feed("a")
    with hinder(query):
        migration = query.migrate(bin_of("a"))
        until(lambda: migration.cleared)
    assert query.run.epochs.wants_epoch


def test_what_a_busy_worker_knew_last_counts(hoarding, monkeypatch):
    monkeypatch.setattr(inquirer, "PATIENCE_S", 0.2)
    reason = hoarding.migrate(HOARD).wait(60).reason
    could = hoarding.migrate(bin_of("a"))
    until(lambda: could.cleared)
    hoarding.run.tell("cancel")
    hoarding.feed("hoard", "a")
    with hoarding.busy():
        cannot = hoarding.migrate(HOARD).wait(60)
        could = hoarding.migrate(bin_of("a"))
        until(lambda: could.cleared)
    assert (cannot.phase, cannot.reason) == ("failed", reason)


def test_bounded_run_does_not_end_before_it_is_known_whether_a_step_can_be_issued(query):
    query.run.bounded = True
    query.feed("a")
    query.run._closed_inputs = True
    assert not query.run.bell()
    with query.busy():
        migration = query.migrate(bin_of("a"))
        assert query.run.bell()
        query.run.tell("pause")
        assert not query.run.bell()
        query.run.tell("resume")
        assert query.run.bell()
    until(lambda: migration.cleared)
    while query.run.bell():
        query.feed()
    assert migration.phase == "done"


@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_migration_is_stopped_while_its_bins_are_asked_for(query, verb):
    query.feed("a")
    before = query.owners
    with query.busy():
        first = query.migrate(bin_of("a"))
        query.run.tell(verb)
        second = query.migrate(bin_of("hoard"))
    if verb == "pause":
        until(lambda: first.cleared)
        query.feed("a")
        assert (first.phase, query.owners) == ("paused", before)
        query.run.tell("resume")
    else:
        assert first.phase == "cancelled"
    until(lambda: query.feed("a") and second.phase == "done")
    assert first.phase == {"cancel": "cancelled", "pause": "done"}[verb]


def test_bins_are_asked_for_anew_after_the_driver_died(query):
    query.feed("a")
    with query.busy():
        migration = query.migrate(bin_of("a"))
        query.stop()
    assert migration.phase == "interrupted"
    query.start()
    assert query.feed("a") == [("a", 2)]
    until(lambda: query.run.epochs.controller.ready(Time(query.epoch)))
    query.feed()
    assert query.feed("a") == [("a", 3)]
    assert (query.last.phase, query.last.bins_moved) == ("done", 1)


def test_failure_of_a_step_that_was_issued_is_known_to_who_starts_the_query_again(query):
    """Its state could travel when it was asked for, and not any more when its time came."""
    query.feed("hoard", "a")
    before = query.owners
    migration = query.migrate(HOARD, bin_of("a"), at=Time(2))
    until(lambda: migration.cleared)
    assert query.feed("hoard", "a") == [("a", 2), ("hoard", 2)]
    with pytest.raises(FoldError, match=f"state of operator count in bin {HOARD} on worker .* cannot travel"):
        query.feed("hoard", "a")
    query.stop()
    reason = f"state of operator count in bin {HOARD} on worker {before.owners[HOARD]} cannot travel: {REASON}"
    assert (migration.phase, migration.reason[: len(reason)]) == ("failed", reason)
    for n in (3, 4):
        query.start()
        assert (query.last.phase, query.last.reason, query.last.bins_moved) == ("failed", migration.reason, 0)
        assert query.feed("hoard", "a") == [("a", n), ("hoard", n)]
        assert query.owners == before
        query.stop()
    query.start()
