"""Would catch a scaler that flaps, creeps up step by step, grows where workers do not help, or shrinks into trouble."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from megaphone.configuration import Assignment
from megaphone.control.policies.observation import Flow, Observation
from megaphone.control.policies.scaler import Scaler
from megaphone.errors import PlanError

BINS, EVERY_S, COOLDOWN_S = 64, 2.0, 60.0
LOW, HIGH, MOST = 0.3, 0.7, 40


@dataclass
class Query:
    """A query as Spark would run it: every record takes Spark's time, then that of a worker among others."""

    worker_s: float
    """A worker's time for a record."""
    spark_s: float = 0.0
    """Spark's own time for a record."""
    cores: int = 1000
    workers: int = 1

    def observation(self, look, offered, noise=1.0):
        """What is seen when so many records a second are offered."""
        worker_s = self.worker_s * max(1.0, self.workers / self.cores) * noise
        applied = min(offered, 1 / (self.spark_s + worker_s / self.workers))
        work = np.full(BINS, applied * worker_s / BINS)
        flows = {"op": Flow(offered, applied, applied * worker_s)}
        owners = Assignment.round_robin(BINS, self.workers)
        sizes = np.zeros(BINS, np.int64)
        return Observation(look * EVERY_S, look, self.workers, False, owners, work * 0 + 1.0, work, sizes, flows)

    def busy(self, offered):
        return offered * self.worker_s / self.workers


def followed(scaler, query, offered, noises=None):
    """Every wish is granted at once: when, and how many workers each time."""
    acted = []
    for look, rate in enumerate(offered):
        wish = scaler.decide(query.observation(look, rate, 1.0 if noises is None else noises[look]))
        if wish is not None:
            acted.append((look * EVERY_S, wish.workers))
            query.workers = wish.workers
    return acted


rates = st.floats(100, 200_000)
costs = st.floats(1e-6, 1e-4)


@given(rates, costs, st.integers(1, MOST))
def test_one_decision_is_enough_from_any_number_of_workers(rate, worker_s, workers):
    query, scaler = Query(worker_s, workers=workers), Scaler(MOST, low=LOW, high=HIGH)
    acted = followed(scaler, query, [rate] * 200)
    assert len(acted) <= 1
    assert query.busy(rate) <= HIGH or query.workers == MOST
    # One worker fewer would be busier than half-way between low and high, or it was not idle enough to ask.
    fewer = rate * worker_s / max(query.workers - 1, 1e-9)
    assert query.workers == 1 or query.busy(rate) >= LOW or fewer > (LOW + HIGH) / 2


@settings(max_examples=60)
@example(rate=151877.0, worker_s=1.3224463126592358e-05, workers=3, seed=3)
@given(rates, costs, st.integers(1, MOST), st.integers(0, 2**32))
def test_stationary_load_with_noise_is_settled_after_a_few_changes(rate, worker_s, workers, seed):
    random = np.random.default_rng(seed)
    query, scaler = Query(worker_s, workers=workers), Scaler(MOST, low=LOW, high=HIGH)
    offered, noises = rate * random.uniform(0.95, 1.05, 400), random.uniform(0.95, 1.05, 400)
    acted = followed(scaler, query, offered, noises)
    assert len(acted) <= 3
    # A load at one of the bounds, or that so many workers can just do, is seen to be over it at whatever look the noise
    # lifts it there; and it is followed once.
    assert len([at for at, _ in acted if at > 200 * EVERY_S]) <= 1
    assert query.busy(rate) <= 1.2 * HIGH or query.workers == MOST


@settings(max_examples=40)
@given(rates, rates, costs, st.integers(1, 60))
def test_swing_is_not_chased_within_the_cooldown(rate, other, worker_s, period):
    scaler = Scaler(MOST, low=LOW, high=HIGH, patience=1, cooldown=COOLDOWN_S)
    offered = [rate if look // period % 2 else other for look in range(600)]
    acted = followed(scaler, Query(worker_s), offered)
    gaps = np.diff([at for at, _ in acted])
    assert (gaps >= COOLDOWN_S).all()
    # A need that comes back soon doubles the pause.
    assert (gaps[:-1] + gaps[1:] >= 3 * COOLDOWN_S).all()
    assert len(acted) <= 1200 / (4 * COOLDOWN_S) + 4


def test_query_that_falls_behind_gets_as_many_as_its_input_takes():
    # A worker is busy 60% of the time, no more: Spark takes the rest. 12,000 records/s are a fifth too many.
    query, scaler = Query(worker_s=60e-6, spark_s=40e-6), Scaler(MOST, low=LOW, high=HIGH)
    ((_, workers),) = followed(scaler, query, [12_000] * 100)
    assert 12_000 * (query.spark_s + query.worker_s / workers) < 1


def test_workers_are_not_asked_for_where_spark_is_what_takes_the_time():
    query, scaler = Query(worker_s=1e-6, spark_s=100e-6, workers=2), Scaler(MOST, low=LOW, high=HIGH)
    assert followed(scaler, query, [20_000] * 100) == []
    assert scaler.history[-1].reason.endswith("Spark itself takes the rest, and more workers would not help")


def test_time_that_spark_takes_for_itself_is_remembered():
    # Two workers are idle most of the time; one would keep up but for Spark's own time.
    query, scaler = Query(worker_s=30e-6, spark_s=80e-6, workers=2), Scaler(MOST, low=LOW, high=HIGH)
    acted = followed(scaler, query, [9_800] * 600)
    assert [workers for _, workers in acted] == [1, 3]
    # With half as much to do, one worker is enough after all.
    assert [workers for _, workers in followed(scaler, query, [4_000] * 200)] == [1]


def test_workers_without_cores_are_not_asked_for_again_and_again():
    # On two cores, four workers do no more than two.
    query, scaler = Query(worker_s=100e-6, cores=2, workers=2), Scaler(MOST, low=LOW, high=HIGH)
    acted = followed(scaler, query, [19_000] * 400)
    assert len(acted) == 1
    assert scaler.history[-1].reason.endswith("they can do no more than fewer could")


def test_operators_share_the_workers():
    flows = {"cheap": Flow(1000, 1000, 0.1), "dear": Flow(10, 10, 0.8)}
    work = np.full(BINS, 0.9 / BINS)
    seen = Observation(0.0, 1, 1, False, Assignment([0] * BINS), work, work, np.zeros(BINS, np.int64), flows)
    # 0.9 of a worker's time, at half of it each.
    assert Scaler(MOST, patience=1).decide(seen).workers == 2


def test_bounds_are_kept():
    busy, idle = Query(worker_s=1e-4, workers=2), Query(worker_s=1e-7, workers=6)
    scaler = Scaler(4, patience=1)
    assert [workers for _, workers in followed(scaler, busy, [1e6] * 50)] == [4]
    assert "there may be no more" in scaler.history[-1].reason
    assert [workers for _, workers in followed(Scaler(8, least=3), idle, [100] * 50)] == [3]
    # A user who asked for more than the bounds allow gets what they allow.
    assert [workers for _, workers in followed(Scaler(2), Query(5e-5, workers=6), [50_000] * 50)] == [2]


def test_nothing_is_wished_while_nothing_is_known_or_bins_move():
    scaler, query = Scaler(4, patience=1), Query(1e-4)
    assert scaler.decide(query.observation(0, offered=0)) is None
    assert scaler.history[-1].reason == "no worker has told how long its records take"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"most": 0}, "at most 0 workers; choose 1 or more"),
        ({"most": 2.5}, "at most 2.5 workers; choose a whole number"),
        ({"most": 2, "low": "0.1"}, "workers busy '0.1' of their time; choose a number"),
        ({"most": 2, "least": 3}, "3 to 2 workers"),
        ({"most": 2, "low": 0.8}, "workers busy from 0.8 to 0.7 of their time"),
        ({"most": 2, "high": 1.5}, "workers busy 1.5 of their time; choose one from 0 to 1"),
        ({"most": 2, "patience": 0}, "a patience of 0 times"),
    ],
)
def test_nonsense_is_refused(options, reason):
    with pytest.raises(PlanError, match=reason):
        Scaler(**options)
