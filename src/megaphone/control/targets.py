"""Targets: where a migration should end.

Each gives every bin one owner, moves no bin that need not move, and gives the same answer whenever asked.
Neighbours: strategies.py finds the steps.  Paper: the evaluation's migrations; the rest is ours.
"""

from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heapreplace
from typing import Any

import numpy as np
import numpy.typing as npt

from megaphone.bins import WorkerId
from megaphone.checks import whole
from megaphone.configuration import Assignment
from megaphone.errors import PlanError

Owner = tuple[int, int]
"""A bin and its new worker."""

Weights = npt.NDArray[Any]
"""A number for each bin."""


def balanced(current: Assignment, workers: int) -> Assignment:
    """Every worker 0 to workers-1 within one bin of even, by the fewest moves; other workers end empty.

    >>> balanced(Assignment([0, 0, 0, 0]), workers=2)
    Assignment([0, 0, 1, 1])
    >>> balanced(Assignment([0, 1, 2, 0]), workers=2)
    Assignment([0, 1, 1, 0])
    """
    workers = whole(workers, "{} workers asked for", 1)
    shares = _shares(current, workers)
    return current.after(zip(_surplus(current, shares), _wanting(current, shares), strict=True))


def without(
    current: Assignment, leaving: Collection[WorkerId], workers: int, weights: Weights | None = None
) -> Assignment:
    """The bins of some workers on the others of 0 to workers-1, the heaviest first, each where the least is by then.

    Without weights, all bins weigh the same.

    >>> without(Assignment([0, 1, 2, 0]), [WorkerId(0)], workers=3)
    Assignment([1, 1, 2, 2])
    """
    others = [WorkerId(other) for other in range(workers) if other not in leaving]
    if not others:
        names = ", ".join(map(str, sorted(leaving)))
        raise PlanError(f"without workers {names} of {workers} none is left to take their bins; add workers first")
    weights = np.ones(len(current)) if weights is None else weights
    bins = np.flatnonzero(np.isin(current.owners, list(leaving)))
    heaviest_first = bins[np.argsort(-weights[bins], kind="stable")]
    return current.after(_onto_least(current, heaviest_first.tolist(), others, weights))


def skewed(current: Assignment) -> Assignment:
    """The paper's imbalance: the first half of each odd worker's bins on its even neighbour.

    A quarter of the state moves if it was even before, and the loads become 1.5 to 0.5.

    >>> skewed(Assignment.round_robin(bins=8, workers=2))
    Assignment([0, 0, 0, 0, 0, 1, 0, 1])
    """
    if len(current.workers()) < 2:
        raise PlanError(f"all bins are on worker {current.workers()[0]}; a skew takes two workers or more")
    return current.after(_half_to_neighbour(current))


def passed_on(current: Assignment, workers: int) -> Assignment:
    """The first half of each worker's bins on the next of 0 to workers-1: half of the state moves, and stays even.

    >>> passed_on(Assignment.round_robin(bins=8, workers=2), workers=2)
    Assignment([1, 0, 1, 0, 0, 1, 0, 1])
    """
    if workers < 2:
        raise PlanError(f"{workers} workers have nobody to pass bins on to; choose 2 or more")
    return current.after(_half_to_next(current, workers))


def _half_to_next(current: Assignment, workers: int) -> Iterator[Owner]:
    for worker in current.workers():
        bins = current.bins_of(worker).tolist()
        yield from ((bin, (worker + 1) % workers) for bin in bins[: len(bins) // 2])


def _half_to_neighbour(current: Assignment) -> Iterator[Owner]:
    for worker in current.workers():
        if worker % 2:
            bins = current.bins_of(worker).tolist()
            yield from ((bin, worker - 1) for bin in bins[: len(bins) // 2])


def _shares(current: Assignment, workers: int) -> dict[WorkerId, int]:
    """How many bins each worker is to have; who has most now keeps the odd ones, which then need not move."""
    even, odd = divmod(len(current), workers)
    ids = [WorkerId(worker) for worker in range(workers)]
    by_load = sorted(ids, key=lambda worker: -len(current.bins_of(worker)))
    return {worker: even + (rank < odd) for rank, worker in enumerate(by_load)}


def _surplus(current: Assignment, shares: dict[WorkerId, int]) -> list[int]:
    """The bins that must leave their worker: the last ones of those with more than their share."""
    over = (current.bins_of(worker)[shares.get(worker, 0) :] for worker in current.workers())
    return sorted(bin for bins in over for bin in bins.tolist())


def _wanting(current: Assignment, shares: dict[WorkerId, int]) -> list[WorkerId]:
    """The workers below their share, each as often as it lacks a bin, in turn."""
    lacks = ((worker, share - len(current.bins_of(worker))) for worker, share in shares.items())
    return [worker for _, worker in sorted((turn, worker) for worker, lack in lacks for turn in range(lack))]


def _onto_least(
    current: Assignment, bins: Iterable[int], workers: Iterable[WorkerId], weights: Weights
) -> Iterator[Owner]:
    """Each bin in turn to the worker that has the least by then, the lowest number first."""
    loads = [(float(weights[current.bins_of(worker)].sum()), worker) for worker in workers]
    heapify(loads)
    for bin in bins:
        load, worker = loads[0]
        heapreplace(loads, (load + float(weights[bin]), worker))
        yield bin, worker
