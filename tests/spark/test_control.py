"""The verbs of a control, on one query that runs through all of this file.

Would catch a migration that an idle stream never completes, a verb that loses or doubles state, and bad input that is
not refused or that harms the query.
"""

import os
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import megaphone
from megaphone import Assignment, Move, Plan, PlanError, Step

WORKERS, BINS, KEYS = 3, 16, 50


def count(key, _, n):
    """How often a key was seen, and where."""
    n = (n or 0) + 1
    return n, [(key, n, os.getpid())]


@dataclass
class Counting:
    """A running count, and a way to check it."""

    control: megaphone.Control
    feed: Any
    running: Any

    @property
    def status(self) -> megaphone.Status:
        (status,) = self.control.status()
        return status

    @property
    def owners(self) -> list[int]:
        return self.status.assignment.owners.tolist()

    def send(self, epochs: int = 1) -> None:
        """Some keys more, and wait for them."""
        for _ in range(epochs):
            self.feed.send([(random.randrange(KEYS),) for _ in range(20)])
            self.running.settle()

    def check(self) -> None:
        """Every record is counted once, in order, and by the owner of its bin since the last migration."""
        self.send()
        seen = Counter((row.k, row.n) for row in self.running.outputs)
        totals = Counter(key for rows in self.feed.sent for (key,) in rows)
        assert seen == Counter((key, n) for key, total in totals.items() for n in range(1, total + 1))
        last = self.running.by_epoch[max(epoch for epoch, rows in self.running.by_epoch.items() if rows)]
        pids = {worker.pid for worker in self.status.workers if worker.bins}
        assert {row.pid for row in last} <= pids


@pytest.fixture(scope="module")
def counting(spark, new_feed, new_query, tmp_path_factory):
    """A count that runs; each test leaves it running, with nothing under way."""
    random.seed(7)
    folder = tmp_path_factory.mktemp("control")
    control = megaphone.Control(spark, workers=WORKERS, bins=BINS)
    feed = new_feed(folder / "feed", "k long")
    frame = megaphone.state_machine(control, feed.frame, "k", count, "k long, n long, pid int")
    running = new_query(frame, folder / "checkpoint")
    try:
        counting = Counting(control, feed, running)
        counting.send(2)
        yield counting
    finally:
        running.query.stop()


def shifted(counting, by=1) -> list[int]:
    """Every bin on the next worker."""
    return [(owner + by) % WORKERS for owner in counting.owners]


def test_idle_stream_completes_its_migration(counting):
    counting.running.settle()
    target = shifted(counting)
    migration = counting.control.migrate(target, "batched", batch=6).wait(120)
    assert migration.phase == "done"
    assert (migration.completed, migration.bins_moved, counting.owners) == (3, BINS, target)
    assert migration.bytes_moved > 0
    counting.check()


def test_two_migrations_back_to_back_both_complete(counting):
    target = shifted(counting, 2)
    first = counting.control.migrate(shifted(counting), "optimized")
    second = counting.control.migrate(target, "all_at_once")
    second.wait(120)
    assert (first.phase, second.phase) == ("done", "done")
    assert counting.owners == target
    counting.check()


def test_update_moves_some_bins_at_once(counting):
    to = {bin: (counting.owners[bin] + 1) % WORKERS for bin in (3, 5)}
    before = counting.owners
    migration = counting.control.update(to).wait(120)
    assert (migration.completed, counting.owners) == (1, [to.get(bin, owner) for bin, owner in enumerate(before)])
    assert counting.control.update(to).phase == "done"
    counting.check()


def test_paused_migration_goes_on_when_resumed(counting, wait_until):
    migration = counting.control.migrate(shifted(counting), "fluid")
    counting.control.pause()
    wait_until(lambda: migration.completed == migration.issued, "the step in flight")
    completed = migration.completed
    counting.send(2)
    assert (migration.phase, migration.completed) == ("paused", completed)
    assert completed < BINS
    counting.control.resume()
    assert migration.wait(120).phase == "done"
    counting.check()


def test_cancelled_migration_keeps_what_has_moved(counting, wait_until):
    before, target = counting.owners, shifted(counting)
    # A gap that never ends: cancelled, not complete, whatever the machine does.
    migration = counting.control.migrate(target, "batched", batch=3, gap=10_000)
    queued = counting.control.migrate(before, "fluid")
    wait_until(lambda: migration.completed == 1, "the first step")
    counting.control.cancel()
    assert (migration.wait(120).phase, queued.wait(120).phase) == ("cancelled", "cancelled")
    assert counting.owners == target[:3] + before[3:]
    counting.check()
    assert counting.control.rebalance().wait(120).phase == "done"
    counting.check()


def test_drained_worker_can_be_filled_again(counting):
    counting.control.drain(0, "all_at_once").wait(120)
    assert 0 not in counting.owners
    counting.send(2)
    counting.control.rebalance("all_at_once", by="bins").wait(120)
    assert max(Counter(counting.owners).values()) == -(-BINS // WORKERS)
    counting.check()


def test_dry_run_changes_nothing(counting):
    before = counting.owners
    plan = counting.control.plan(shifted(counting), "optimized", gap=2)
    assert (len(plan.moves), plan.gap) == (BINS, 2)
    assert plan.estimate.steps == len(plan.steps)
    assert plan.estimate.seconds > 0
    drain, grown = counting.control.plan("drain", who=1), counting.control.plan("rescale", workers=5)
    assert {move.source for move in drain.moves} == {1}
    assert {move.target for move in grown.moves} == {3, 4}
    counting.send()
    assert counting.owners == before
    assert counting.status.migration is None


def test_state_is_weighed_and_load_is_seen_where_it_is(counting, wait_until):
    wait_until(lambda: counting.send() or counting.status.measured == 1.0, "sizes of all bins")
    status = counting.status
    assert sum(worker.state_bytes for worker in status.workers) == sum(status.state_bytes.values()) > 0
    assert sum(worker.records_per_s for worker in status.workers) > 0
    assert all(0 < worker.busy < 1 for worker in status.workers if worker.bins)
    plan = counting.control.plan(shifted(counting), "all_at_once")
    migration = counting.control.migrate(plan).wait(120)
    # Nothing came in between: what was weighed is what travels.
    assert migration.bytes_moved == pytest.approx(plan.estimate.bytes, rel=0.5)
    counting.check()


def test_rebalance_evens_the_load_and_then_leaves_it(counting):
    counting.control.migrate([0] * BINS, "all_at_once").wait(120)
    counting.send(3)
    assert counting.status.imbalance == pytest.approx(WORKERS)
    assert counting.control.rebalance().wait(120).bins_moved > 0
    assert counting.status.imbalance < 1.5
    counting.check()


def test_adaptive_migration_takes_fewer_steps_than_bins(counting):
    epoch = counting.status.epoch
    migration = counting.control.migrate(shifted(counting), latency_target=60.0).wait(120)
    assert (migration.phase, migration.bins_moved, migration.plan.strategy) == ("done", BINS, "adaptive")
    # One bin, two, four and so on: not one epoch for each.
    assert counting.status.epoch - epoch < BINS
    counting.check()


def moves(*triples) -> Plan:
    """A plan of one step."""
    return Plan(BINS, (Step(tuple(Move(*triple) for triple in triples)),))


def shifted_from(owners) -> list[int]:
    """Every bin on another worker."""
    return [(owner + 1) % WORKERS for owner in owners]


REFUSED = {
    "bin out of range": (lambda c, own: c.update({BINS: 0}), "bin 16 of 16; choose 0 to 15"),
    "bin below zero": (lambda c, own: c.migrate({-1: 0}), "bin -1 of 16; choose 0 to 15"),
    "worker out of range": (lambda c, own: c.update({0: 7}), "worker 7, but there are 3 workers; choose 0 to 2"),
    "worker out of any range": (lambda c, own: c.migrate([2**40] * BINS), "but there are 3 workers; choose 0 to 2"),
    "worker that is none": (lambda c, own: c.migrate({0: "one"}), "bin 0 on worker 'one'; choose a whole number"),
    "worker that is true": (lambda c, own: c.migrate([True] * BINS), "bin 0 on worker True; choose a whole number"),
    "drain of true": (lambda c, own: c.drain(True), "worker True of 3; choose a whole number, 0 to 2"),
    "drain of a number in words": (lambda c, own: c.drain("1"), "no worker on host '1'; choose a worker's number"),
    "plan and a strategy": (
        lambda c, own: c.migrate(c.plan(shifted_from(own)), strategy="fluid"),
        "a plan has no use for strategy; leave it out",
    ),
    "plan and a gap": (lambda c, own: c.migrate(c.plan(shifted_from(own)), gap=0), "a plan has no use for gap"),
    "rebalance to workers": (lambda c, own: c.plan("rebalance", workers=3), "a rebalance has no use for workers"),
    "drain by load": (lambda c, own: c.plan("drain", who=1, by="load"), "a drain has no use for by; leave it out"),
    "target from a worker": (lambda c, own: c.plan({0: 0}, who=1), "a target has no use for who; leave it out"),
    "time behind, nothing to move": (lambda c, own: c.migrate(own, at=0), "time 0 is behind the frontier"),
    "time behind in a dry run": (lambda c, own: c.plan("rescale", workers=5, at=0), "time 0 is behind the frontier"),
    "rescale to very many": (lambda c, own: c.rescale(10**20), "there are 16 bins, one at least for each"),
    "dry run with very many": (lambda c, own: c.plan("rescale", workers=10**9), "there are 16 bins, one at least"),
    "another query": (lambda c, own: c.of("counts"), "control of 'counts'; give the query that start"),
    "directory that is none": (lambda c, own: c.watch(3), "a directory 3; give its path"),
    "map too short": (lambda c, own: c.migrate([0, 1]), "a map of 2 owners for 16 bins; give one owner for each bin"),
    "time behind": (lambda c, own: c.update({0: (own[0] + 1) % 3}, at=0), "time 0 is behind the frontier .* or later"),
    "contradiction": (
        lambda c, own: c.migrate(moves((0, own[0], (own[0] + 1) % 3), (0, own[0], (own[0] + 2) % 3))),
        "bin 0 would go to workers .* and .* in one step; choose one, or two steps",
    ),
    "wrong source": (
        lambda c, own: c.migrate(moves((0, (own[0] + 1) % 3, own[0]))),
        "bin 0 is on worker . by then, not on worker .",
    ),
    "no such strategy": (
        lambda c, own: c.migrate([0] * BINS, "fluent"),
        "no strategy named 'fluent'; choose adaptive, all_at_once, batched, fluid or optimized",
    ),
    "empty batches": (lambda c, own: c.migrate([0] * BINS, batch=0), "batches of 0 bins; choose 1 or more"),
    "gap below zero": (lambda c, own: c.rebalance(gap=-1), "a gap of -1 epochs; choose 0 or more"),
    "plan for other bins": (lambda c, own: c.migrate(Plan(4, ())), "plan is for 4 bins, the operators have 16"),
    "target for other bins": (
        lambda c, own: c.migrate(Assignment([0, 1])),
        "target is for 2 bins, the operators have 16",
    ),
    "no worker": (lambda c, own: c.rescale(0), "0 workers asked for; choose 1 or more"),
    "rescale by no strategy": (lambda c, own: c.rescale(5, "fluent"), "no strategy named 'fluent'"),
    "drain of nobody": (lambda c, own: c.drain(3), "worker 3 of 3; choose 0 to 2"),
    "drain of a host that is none": (
        lambda c, own: c.drain("nowhere"),
        "no worker on host 'nowhere'; choose a worker's number, or a host: .",
    ),
    "drain of all workers": (
        lambda c, own: c.drain(c.status()[0].workers[0].host),
        "without workers 0, 1, 2 of 3 none is left to take their bins; add workers first",
    ),
    "balance by nothing": (lambda c, own: c.rebalance(by="luck"), "balance by 'luck'; choose load or bins"),
    "target for a strategy of fixed steps": (
        lambda c, own: c.migrate([0] * BINS, "fluid", latency_target=1),
        "a latency target for strategy 'fluid'; choose adaptive, or leave the target out",
    ),
    "no latency at all": (lambda c, own: c.rebalance(latency_target=0), "a latency target of 0 s; choose more than 0"),
    "plan of nothing": (lambda c, own: c.plan("move"), "no plan for 'move'; choose drain, rebalance or rescale"),
    "plan of a rescale to nothing": (lambda c, own: c.plan("rescale"), "a rescale to how many workers"),
    "nothing to pause": (lambda c, own: c.pause(), "no migration is under way"),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_bad_input_is_refused_and_changes_nothing(counting, refused):
    ask, reason = REFUSED[refused]
    before, epoch, workers = counting.owners, counting.status.epoch, counting.status.workers
    with pytest.raises(PlanError, match=reason):
        ask(counting.control, before)
    after = counting.status
    assert (after.assignment.owners.tolist(), after.migration, len(after.workers)) == (before, None, len(workers))
    assert after.epoch >= epoch
    assert counting.running.query.isActive


UNMADE = {
    "3.0 bins asked for": {"bins": 3.0},
    "True workers asked for; choose a whole number": {"workers": True},
    "17 workers asked for, but there are 16 bins": {"workers": 17, "bins": 16},
    "2.5 slots asked for; choose a whole number": {"slots": 2.5},
    "a snapshot share of 'x'; choose a number": {"snapshot_share": "x"},
    "a snapshot share of 1.5; choose one from 0 to 1": {"snapshot_share": 1.5},
    "control name ''; choose letters": {"name": ""},
    "bin 1 on worker True; choose a whole number": {"bins": 2, "assignment": [0, True]},
    "bin 1 on worker 2, but there are 2 workers; choose 0 to 1": {"bins": 2, "assignment": [0, 2]},
    "an assignment of 1 bins of 2; give a worker for every bin": {"bins": 2, "assignment": {0: 1}},
}


@pytest.mark.parametrize("sentence", UNMADE)
def test_control_that_could_not_work_is_refused(spark, sentence):
    with pytest.raises(PlanError, match=sentence):
        megaphone.Control(spark, **{"workers": 2, **UNMADE[sentence]})


def test_plan_that_waits_for_a_time_does_not_pretend_to_know_its_end(counting):
    estimate = counting.control.plan(shifted(counting), at=100_000_000).estimate
    assert str(estimate).endswith("in 1 steps, not before time 100000000")


def test_query_goes_on_after_what_was_refused(counting):
    counting.control.migrate(shifted(counting), "all_at_once").wait(120)
    counting.check()
    assert sum(counting.status.late.values()) == 0


def test_watched_directory_is_followed(counting, tmp_path, wait_until):
    def drop(name, text):
        # Written elsewhere first: a plan must not be read when half of it is there.
        (tmp_path / f"{name}.draft").write_bytes(text)
        (tmp_path / f"{name}.draft").rename(tmp_path / f"{name}.json")

    def answer(name, suffix):
        return (
            wait_until((tmp_path / f"{name}.{suffix}").exists, suffix) and (tmp_path / f"{name}.{suffix}").read_text()
        )

    target = shifted(counting)
    plan = counting.control.plan(target, "batched", batch=8)
    watch = counting.control.watch(tmp_path)
    try:
        drop("broken", b'{"megaphone_plan": 1, "bins": 16}')
        drop("noise", b"\xff\xfe\x00")
        drop("far", moves((0, counting.owners[0], 9)).to_json().encode())
        assert answer("broken", "refused").startswith("malformed plan: Object missing required field `steps`")
        assert answer("noise", "refused").startswith("not a plan: ")
        assert "bin 0 would go to worker 9, but there are 3 workers" in answer("far", "refused")
        drop("good", plan.to_json().encode())
        assert answer("good", "accepted").startswith("batched")
        assert answer("good", "done") == "batched done: 2 of 2 steps, 16 of 16 bins\n"
    finally:
        watch.stop()
    assert counting.owners == target
    assert not (tmp_path / "good.refused").exists()
    counting.check()


def test_directory_to_watch_must_be_there(counting, tmp_path):
    with pytest.raises(PlanError, match="is not a directory; create it first"):
        counting.control.watch(tmp_path / "nowhere")
