"""Goals: where each verb wants the bins, given where they are and what they have to do.

What is asked for is checked here, once and at once; what comes of it may be worked out again from another basis.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from megaphone import checks
from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control import targets
from megaphone.control.balance import even
from megaphone.control.basis import Basis
from megaphone.control.plan import Plan, step_to
from megaphone.control.targets import Weights
from megaphone.errors import PlanError

By = Literal["load", "bins"]

Goal = Callable[[Basis], Assignment]
"""Where the bins are to end."""

FLOOR = 0.01
"""Of the mean load: what a bin counts at least, so that idle ones are spread too."""


def rescaled(workers: Any, bins: int) -> Goal:
    """The bins evenly on another number of workers."""
    count = checks.worker_count(workers, bins)
    return lambda basis: targets.balanced(basis.expected, count)


def rebalanced(by: Any) -> Goal:
    """The same load, or the same number of bins, on every worker."""
    by = checks.choice(by, "balance by {}", ("load", "bins"))

    def rebalanced(basis: Basis) -> Assignment:
        current, reading = basis.expected, basis.reading
        if by == "bins" or not reading.rates.any():
            return targets.balanced(current, basis.workers)
        return even(current, reading.rates, reading.sizes, basis.workers)

    return rebalanced


def drained(who: Any, hosts: Mapping[WorkerId, str]) -> Goal:
    """A worker's bins, or those of all workers of a host, on the others."""
    if isinstance(who, str):
        there = _workers_on(who, hosts)
        return lambda basis: _without([worker for worker in there if worker < basis.workers], basis)
    return lambda basis: _without([WorkerId(checks.worker(who, basis.workers))], basis)


def moved(target: Any, bins: int) -> Goal:
    """The bins as the user says."""
    if isinstance(target, Assignment):
        return lambda basis: target
    owners = checks.owner_pairs(target, bins)

    def moved(basis: Basis) -> Assignment:
        return Plan(bins, (step_to(basis.expected, owners),)).check(basis.expected, basis.workers)

    return moved


def _without(leaving: Sequence[WorkerId], basis: Basis) -> Assignment:
    return targets.without(basis.expected, leaving, basis.workers, _weights(basis))


def _weights(basis: Basis) -> Weights | None:
    rates = basis.reading.rates
    return np.maximum(rates, FLOOR * rates.mean()) if rates.any() else None


def _workers_on(host: str, hosts: Mapping[WorkerId, str]) -> list[WorkerId]:
    if host not in hosts.values():
        there = ", ".join(sorted(set(hosts.values())))
        raise PlanError(f"no worker on host {checks.shown(host)}; choose a worker's number, or a host: {there}")
    return [worker for worker, name in hosts.items() if name == host]
