"""Goals: where each verb wants the bins, given where they are and what they have to do.

Neighbours: control.py asks, control/targets.py and control/balance.py choose.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control import targets
from megaphone.control.balance import even, imbalance
from megaphone.control.plan import Plan, step_to
from megaphone.control.targets import Weights
from megaphone.engine.spark.run import Run
from megaphone.errors import PlanError

By = Literal["load", "bins"]

FLOOR = 0.01
"""Of the mean load: what a bin counts at least, so that idle ones are spread too."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Where the bins are to end, and how many workers that takes."""

    target: Assignment
    workers: int


def rescaled(run: Run, workers: int) -> Goal:
    """The bins evenly on another number of workers."""
    # First: a target lists its workers.
    run.epochs.with_workers(workers)
    return Goal(targets.balanced(run.epochs.controller.expected, workers), workers)


def rebalanced(run: Run, by: By) -> Goal:
    """The same load, or the same number of bins, on every worker."""
    if by not in ("load", "bins"):
        raise PlanError(f"balance by '{by}'; choose load or bins")
    current, workers, meter = run.epochs.controller.expected, run.epochs.workers, run.epochs.meter
    if by == "bins" or not meter.rates.any():
        return Goal(targets.balanced(current, workers), workers)
    return Goal(even(current, meter.rates, meter.sizes, workers), workers)


def drained(run: Run, who: int | str) -> Goal:
    """A worker's bins, or those of all workers of a host, on the others."""
    workers = run.epochs.workers
    leaving = _workers_on(run, who) if isinstance(who, str) and not who.isdecimal() else {WorkerId(int(who))}
    for worker in leaving:
        if not 0 <= worker < workers:
            raise PlanError(f"worker {worker} of {workers}; choose 0 to {workers - 1}")
    weights = _weights(run)
    return Goal(targets.without(run.epochs.controller.expected, leaving, workers, weights), workers)


def moved(run: Run, target: Any) -> Goal:
    """The bins as the user says."""
    workers, current = run.epochs.workers, run.epochs.controller.expected
    if isinstance(target, Assignment):
        return Goal(target, workers)
    step = step_to(current, pairs(target, len(current)))
    return Goal(Plan(len(current), (step,)).check(current, workers), workers)


def pairs(owners: Mapping[int, int] | Iterable[int], bins: int) -> list[tuple[int, int]]:
    """Bins and their workers, from a mapping or from a worker for every bin."""
    pairs = list(owners.items() if isinstance(owners, Mapping) else enumerate(owners))
    if not isinstance(owners, Mapping) and len(pairs) != bins:
        raise PlanError(f"a map of {len(pairs)} owners for {bins} bins; give one owner for each bin")
    for bin, worker in pairs:
        if not (isinstance(bin, Integral) and isinstance(worker, Integral)):
            raise PlanError(f"bin {bin!r} on worker {worker!r}; give both as integers")
    return [(int(bin), int(worker)) for bin, worker in pairs]


def imbalance_of(run: Run) -> float:
    """The busiest worker's load over the mean."""
    return imbalance(run.epochs.configuration.last, run.epochs.meter.rates, run.epochs.workers)


def _weights(run: Run) -> Weights | None:
    rates = run.epochs.meter.rates
    return np.maximum(rates, FLOOR * rates.mean()) if rates.any() else None


def _workers_on(run: Run, host: str) -> set[WorkerId]:
    residents = run.placement.residents
    hosts = sorted({join.host for join in residents.values()})
    if host not in hosts:
        raise PlanError(f"no worker on host '{host}'; choose a worker's number, or a host: {', '.join(hosts)}")
    return {worker for worker, join in residents.items() if join.host == host and worker < run.epochs.workers}
