"""Forecast: what a plan would cost, before anything moves.

Bytes are those of its bins. Every step takes an epoch and its gap; the bytes take as long as they did lately on top.
How long a plan takes that waits for a time to come, nobody knows: times come with data.
Neighbours: meter.py has measured, control's `plan` shows it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from megaphone.control.controller import Migration
from megaphone.control.meter import Reading
from megaphone.control.pacing import stride
from megaphone.control.plan import Estimate, Plan
from megaphone.progress import BEGIN, Time


def forecast(plan: Plan, meter: Reading, now: Time = BEGIN) -> Plan:
    """The plan, with an estimate; `now` is the time that the query has reached."""
    moves, last = plan.moves, plan.last_time
    total = meter.bytes_of(moves)
    steps = sum(1 for _ in _strides(plan, meter, meter.weights(moves))) if plan.latency_target else len(plan.steps)
    if last is not None and last > now:
        return replace(plan, estimate=Estimate(steps, total, None, meter.measured(moves), last))
    waits = steps + plan.gap * max(0, steps - 1)
    seconds = waits * meter.step_s + total / meter.bytes_per_s
    return replace(plan, estimate=Estimate(steps, total, seconds, meter.measured(moves)))


def left(migration: Migration, meter: Reading, now: Time = BEGIN) -> Estimate:
    """What is still to come of a migration."""
    rest = replace(migration.plan, steps=migration.plan.steps[migration.completed :])
    estimate = forecast(rest, meter, now).estimate
    assert estimate is not None
    return estimate


def _strides(plan: Plan, meter: Reading, weights: Sequence[float]) -> Iterator[int]:
    """The sizes of an adaptive plan's steps, if moving takes as long as it did lately."""
    assert plan.latency_target is not None
    done, count = 0, 1
    while done < len(weights):
        yield count
        moved = sum(weights[done : done + count])
        took = meter.steady_s + moved / meter.bytes_per_s
        done += count
        # Not a copy of the rest, which may be a million, for every step.
        rest = map(weights.__getitem__, range(done, len(weights)))
        count = stride(rest, moved, took, meter.steady_s, plan.latency_target)
