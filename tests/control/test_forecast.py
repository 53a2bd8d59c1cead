"""Would catch a dry run that promises what it has not measured, and one that forgets steps, gaps or bytes."""

import pytest

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control.forecast import forecast
from megaphone.control.load import NOTHING, Tally
from megaphone.control.meter import BYTES_PER_S, ENOUGH, EPOCH_S, Meter
from megaphone.control.strategies import make_plan

HERE, THERE = Assignment([0] * 8), Assignment([1] * 8)


class Clock:
    """Goes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def metered(**options):
    clock = Clock()
    return Meter(["left", "right"], 8, clock), clock


def pulled(meter, size, seconds):
    meter.hear("left", WorkerId(0), NOTHING, NOTHING, 0, size, int(seconds * 1e9))


def test_without_a_measurement_the_defaults_are_taken_and_said_to_be():
    meter, _ = metered()
    estimate = forecast(make_plan(HERE, THERE, "batched", batch=4), meter.reading).estimate
    assert (estimate.steps, estimate.bytes, estimate.measured) == (2, 0, 0.0)
    assert estimate.seconds == pytest.approx(2 * EPOCH_S)
    assert meter.bytes_per_s == BYTES_PER_S


def test_bytes_are_those_of_the_bins_on_every_operator():
    meter, _ = metered()
    for name, size in (("left", 1000), ("right", 10)):
        meter.hear(name, WorkerId(0), NOTHING, Tally.of(range(8), [size + bin for bin in range(8)]), 0, 0, 0)
    estimate = forecast(make_plan(HERE, HERE.after([(2, 1), (5, 1)])), meter.reading).estimate
    assert (estimate.bytes, estimate.measured) == (1002 + 1005 + 12 + 15, 1.0)


def test_part_that_was_measured_is_told():
    meter, _ = metered()
    meter.hear("left", WorkerId(0), NOTHING, Tally.of(range(8), [10] * 8), 0, 0, 0)
    meter.hear("right", WorkerId(0), NOTHING, Tally.of(range(2), [30] * 2), 0, 0, 0)
    assert meter.known.mean() == 0.25
    estimate = forecast(make_plan(HERE, THERE), meter.reading).estimate
    assert (estimate.bytes, estimate.measured) == (8 * 40, 0.25)


def test_time_is_epochs_gaps_and_bytes_by_what_was_measured():
    meter, clock = metered()
    for _ in range(5):
        meter.epoch_opens()
        clock.now += 3.0
    meter.hear("left", WorkerId(0), NOTHING, Tally.of(range(8), [50_000_000] * 8), 0, 0, 0)
    meter.hear("right", WorkerId(0), NOTHING, Tally.of(range(8), [0] * 8), 0, 0, 0)
    pulled(meter, 200_000_000, 2.0)
    estimate = forecast(make_plan(HERE, THERE, "batched", batch=2, gap=1), meter.reading).estimate
    assert estimate.steps == 4
    assert estimate.seconds == pytest.approx((4 + 3) * 3.0 + 400 / 100)


def test_plan_that_waits_for_a_time_does_not_pretend_to_know_its_end():
    meter, _ = metered()
    plan = make_plan(HERE, THERE, "batched", batch=4, at=40)
    estimate = forecast(plan, meter.reading, now=39).estimate
    assert (estimate.seconds, estimate.not_before, estimate.steps) == (None, 40, 2)
    estimate = forecast(plan, meter.reading, now=40).estimate
    assert (estimate.seconds, estimate.not_before) == (pytest.approx(2 * EPOCH_S), None)


def test_small_moves_say_nothing_of_speed():
    meter, _ = metered()
    pulled(meter, ENOUGH - 1, 10.0)
    assert meter.bytes_per_s == BYTES_PER_S
    assert meter.bytes_moved == ENOUGH - 1


def test_idle_time_does_not_make_a_step_seem_long():
    meter, clock = metered()
    for idle in (0.1, 60.0, 0.1):
        meter.epoch_opens()
        clock.now += 0.2
        meter.all_have_reported(moving=True)
        clock.now += idle
    meter.epoch_opens()
    assert meter.step_s < 0.4


def test_adaptive_plan_is_thought_through():
    meter, _ = metered()
    for name in ("left", "right"):
        meter.hear(name, WorkerId(0), NOTHING, Tally.of(range(8), [50_000_000] * 8), 0, 0, 0)
    pulled(meter, 100_000_000, 1.0)
    plan = make_plan(HERE, THERE, latency_target=2 * meter.steady_s + 2.6)
    # A bin takes a second, and two fit into 0.8 * 2.6 s.
    assert forecast(plan, meter.reading).estimate.steps == 5
    assert str(forecast(plan, meter.reading)).splitlines()[0].endswith("s; about 800.0 MB in 5 steps and 9.0 s")
