"""Policies that are followed while a query runs: one query through all of this file, and one that ends.

Would catch a wish that nobody carries out, a refusal or a failing policy that harms the query, a policy that is asked
though it was paused, and a thread that outlives its query.
"""

import logging
import threading
from collections import Counter

import numpy as np
import pytest

import megaphone
from megaphone import Balancer, PlanError, Scaler
from megaphone.configuration import Assignment
from megaphone.control.policies.policy import Migrate, Rescale

WORKERS, BINS, KEYS = 3, 16, 60
EVERY_S = 0.1


def count(key, _, n):
    """A running count."""
    n = (n or 0) + 1
    return n, [(key, n)]


def all_on(worker, reason="a wish"):
    return Migrate(Assignment([worker] * BINS), reason)


class Wishing:
    """A policy that wishes one thing after the other, whatever it sees."""

    def __init__(self, *wishes):
        self.wishes = list(wishes)
        self.asked = 0

    def decide(self, seen):
        self.asked += 1
        return self.wishes.pop(0) if self.wishes and not seen.moving else None


class Failing:
    """A policy with a mistake in it."""

    def decide(self, seen):
        return 1 / 0


class Counting:
    """A running count, and a way to check it."""

    def __init__(self, spark, feed):
        self.control = megaphone.Control(spark, workers=WORKERS, bins=BINS)
        self.feed = feed
        self.frame = megaphone.state_machine(self.control, feed.frame, "k", count, "k long, n long")
        self.running = None

    def send(self):
        """One record of each key, and wait for it."""
        self.feed.send([(key,) for key in range(KEYS)])
        self.running.settle()

    def until(self, condition, what):
        """Keep it busy until something has come about."""
        self.running.until(lambda: self.send() or condition(), what)

    def check(self):
        """Every record is counted once."""
        self.send()
        times = len(self.feed.sent)
        expected = Counter((key, n) for key in range(KEYS) for n in range(1, times + 1))
        assert Counter((row.k, row.n) for row in self.running.outputs) == expected
        assert self.running.query.isActive


@pytest.fixture(scope="module")
def query(spark, new_feed, new_query, tmp_path_factory):
    folder = tmp_path_factory.mktemp("follower")
    counting = Counting(spark, new_feed(folder / "feed", "k long"))
    counting.running = new_query(counting.frame, folder / "checkpoint")
    try:
        counting.send()
        yield counting
    finally:
        counting.running.query.stop()


@pytest.fixture
def counting(query):
    """All of it on worker 0, and nothing under way."""
    if len(query.control.status()[0].workers) < WORKERS:
        query.control.rescale(WORKERS).wait(120)
    query.control.migrate([0] * BINS, "all_at_once").wait(120)
    query.send()
    return query


@pytest.fixture
def follow(counting):
    """Follow policies; it is stopped when the test ends."""
    followers = []

    def follow(*policies, **options):
        followers.append(counting.control.follow(*policies, every=EVERY_S, **options))
        return followers[-1]

    yield follow
    for follower in followers:
        follower.stop()


def test_balancer_evens_the_load_and_then_leaves_it(counting, follow):
    balancer = Balancer(patience=2, cooldown=0.5, by="records")
    follower = follow(balancer, strategy="fluid")
    counting.until(lambda: follower.history and follower.history[0].migration.ended_s, "a migration")
    (status,) = counting.control.status()
    assert status.imbalance < 1.3
    assert follower.history[0].migration.strategy == "fluid"
    assert "has 3.00 times the mean load; moving" in follower.history[0].wish.reason
    counting.until(lambda: balancer.history[-1].times > 5, "some looks at which nothing is wished")
    assert [answer.migration.phase for answer in follower.history] == ["done"]
    counting.check()


def test_scaler_lets_idle_workers_go(counting, follow):
    follower = follow(Scaler(WORKERS, low=0.9, high=1.0, patience=1, cooldown=0.0))
    counting.until(lambda: follower.history, "a wish")
    assert follower.history[0].wish.workers == 1
    counting.until(lambda: len(counting.control.status()[0].workers) == 1, "one worker")
    counting.check()


def test_refusal_is_told_and_harms_nothing(counting, follow, caplog, wait_until):
    nowhere, listed = Migrate(Assignment([9] * BINS), "off it goes"), Migrate([1] * BINS, "a list")
    unlike = [Migrate(Assignment([0]), "too short"), Rescale(2.5, "half a worker")]
    with caplog.at_level(logging.WARNING, "megaphone"):
        follower = follow(Wishing(Rescale(0, "nobody is needed"), nowhere, listed, *unlike, all_on(1)))
        wait_until(lambda: len(follower.history) == 6, "six wishes")
    *refused, followed = follower.history
    assert refused[0].refusal == "0 workers asked for; choose 1 or more"
    assert refused[1].refusal.endswith("but there are 3 workers; choose 0 to 2")
    assert refused[2].refusal == f"a wish to migrate to <list>; give an Assignment of {BINS} bins"
    assert refused[3].refusal.endswith(f"; give an Assignment of {BINS} bins")
    assert refused[4].refusal == "2.5 workers asked for; choose a whole number, 1 or more"
    assert [record.getMessage() for record in caplog.records] == list(map(str, refused))
    assert followed.migration.wait(120).phase == "done"
    assert set(counting.control.status()[0].assignment.owners.tolist()) == {1}
    counting.check()


def test_paused_follower_asks_nobody_until_it_goes_on(counting, follow, wait_until):
    policy = Wishing()
    follower = follow(policy)
    wait_until(lambda: policy.asked, "a question")
    follower.pause()
    # One look may be under way.
    asked = policy.asked + 1
    counting.send()
    policy.wishes.append(all_on(2))
    counting.send()
    counting.send()
    assert policy.asked <= asked
    assert follower.history == []
    follower.resume()
    wait_until(lambda: follower.history, "a wish")
    assert follower.history[0].migration.wait(120).bins_moved == BINS


def test_first_policy_that_wishes_anything_is_followed(follow, wait_until):
    silent, eager, late = Wishing(), Wishing(all_on(1, "first")), Wishing()
    follower = follow(silent, eager, late)
    wait_until(lambda: late.asked, "a look at which nobody wished anything before")
    assert [answer.wish.reason for answer in follower.history] == ["first"]
    assert late.asked < eager.asked


def test_failing_policy_is_not_asked_again_and_harms_nothing(counting, follow, wait_until):
    follower = follow(Failing())
    wait_until(lambda: not follower.following, "the end of the follower")
    assert isinstance(follower.error, ZeroDivisionError)
    counting.check()


def test_what_could_never_be_followed_is_refused_at_once(query):
    for policies, options, reason in (
        ([], {}, "no policy to follow; give one or more"),
        ([Wishing()], {"every": 0}, "a look every 0 s; choose more than 0"),
        ([Wishing()], {"strategy": "fluent"}, "no strategy named 'fluent'"),
    ):
        with pytest.raises(PlanError, match=reason):
            query.control.follow(*policies, **options)


def test_policies_see_each_bin_and_status_what_workers_have_done(counting):
    before = counting.control.status()[0].workers
    counting.send()
    seen = counting.control.observe()
    assert (seen.workers, seen.moving, seen.assignment) == (WORKERS, False, Assignment([0] * BINS))
    assert np.array_equal(seen.work > 0, seen.records > 0)
    after = counting.control.status()[0].workers
    assert [now.applied - then.applied for now, then in zip(after, before, strict=True)] == [KEYS, 0, 0]
    assert after[0].busy_s > before[0].busy_s


def test_follower_waits_for_its_query_and_ends_with_it(spark, feed, start, wait_until):
    counting, policy = Counting(spark, feed("k long")), Wishing(all_on(1))
    assert counting.control.observe() is None
    follower = counting.control.follow(policy, every=EVERY_S)
    counting.running = start(counting.frame)
    wait_until(lambda: follower.history, "a wish")
    assert follower.history[0].migration.wait(120).phase == "done"
    counting.running.query.stop()
    wait_until(lambda: not follower.following, "the end of the follower")
    assert follower.error is None
    assert not [thread for thread in threading.enumerate() if thread.name == "megaphone-policies"]
