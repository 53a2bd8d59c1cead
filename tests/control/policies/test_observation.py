"""Would catch a policy that sees bins where they are not going to be, or a load that was long ago."""

import json

import numpy as np
import pyarrow as pa
import pytest

from megaphone.configuration import Assignment
from megaphone.control.meter import Meter
from megaphone.control.policies.observation import Flow, Observation
from megaphone.control.strategies import make_plan
from megaphone.dataflow.operators import Input, key_operator
from megaphone.engine.local import LocalEngine

BINS = 4
KEYS = Input(pa.schema([("k", pa.int64())]), keys=("k",))
NUMBER = pa.schema([("n", pa.int64())])


class Clock:
    """Goes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def running():
    """Four epochs of a second, with ten records each, and their clock."""
    clock = Clock()
    spec = key_operator("count", KEYS, lambda k, _, n: ((n or 0) + 1, []), NUMBER)
    engine = LocalEngine(spec, workers=2, bins=BINS)
    engine.epochs.meter = Meter(["count"], BINS, clock)
    for _ in range(4):
        engine.epoch([(key,) for key in range(10)])
        clock.now += 1.0
    return engine, clock


def seen(engine):
    return Observation.of(engine.epochs, at_s=7.0)


def test_rates_are_those_of_the_epochs_that_are_over(running):
    engine, _ = running
    engine.epoch([])
    found = seen(engine)
    flow = found.flows["count"]
    assert (flow.applied, flow.arrived, found.records.sum()) == pytest.approx((10, 10, 10))
    assert flow.work == pytest.approx(found.work.sum())
    assert flow.work > 0
    assert (found.at_s, found.epoch, found.workers, found.moving) == (7.0, 4, 2, False)


def test_bins_are_where_they_are_going_to_be(running):
    engine, _ = running
    target = Assignment([1, 1, 0, 0])
    engine.migrate(make_plan(engine.epochs.configuration.last, target, "fluid"))
    assert (seen(engine).assignment, seen(engine).moving) == (target, True)
    engine.settle()
    assert (seen(engine).assignment, seen(engine).moving) == (target, False)


def test_load_of_a_query_that_has_come_to_rest_fades(running):
    engine, clock = running
    before = seen(engine)
    clock.now += 300
    after = seen(engine)
    assert after.records.sum() < 0.01 * before.records.sum()
    assert after.flows["count"].arrived < 0.01 * before.flows["count"].arrived
    # A record takes as long as it took.
    assert after.flows["count"].true_rate == pytest.approx(before.flows["count"].true_rate)


def test_epoch_that_takes_long_is_no_rest(running):
    engine, clock = running
    engine.epochs.open(engine.epochs.epoch + 1)
    before = seen(engine)
    clock.now += 300
    assert seen(engine).records.sum() == before.records.sum() > 0


def test_json_has_a_number_for_each_bin(running):
    engine, _ = running
    told = json.loads(seen(engine).to_json())
    assert told["owners"] == [0, 1, 0, 1]
    assert all(len(told[name]) == BINS for name in ("records_per_s", "busy", "bytes"))
    assert sum(told["records_per_s"]) == pytest.approx(told["operators"]["count"]["applied_per_s"], rel=1e-3)
    assert (told["epoch"], told["workers"], told["moving"]) == (3, 2, False)


def test_operator_that_does_nothing_takes_nothing():
    assert Flow(0.0, 0.0, 0.0).demand == 0.0
    assert Flow(1000.0, 0.0, 0.1).demand == 0.0
    assert np.isinf(Flow(1000.0, 1000.0, 0.0).true_rate)
