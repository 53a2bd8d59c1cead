"""Targets: where a migration should end.

Each gives every bin one owner, moves no bin that need not move, and gives the same answer whenever asked.
Neighbours: strategies.py finds the steps.  Paper: the evaluation's migrations; the rest is ours.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heapreplace

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.errors import PlanError

Owner = tuple[int, int]
"""A bin and its new worker."""


def balanced(current: Assignment, workers: int) -> Assignment:
    """Every worker 0 to workers-1 within one bin of even, by the fewest moves; other workers end empty.

    >>> balanced(Assignment([0, 0, 0, 0]), workers=2)
    Assignment([0, 0, 1, 1])
    >>> balanced(Assignment([0, 1, 2, 0]), workers=2)
    Assignment([0, 1, 1, 0])
    """
    if workers < 1:
        raise PlanError(f"{workers} workers asked for; choose 1 or more")
    shares = _shares(current, workers)
    return current.after(zip(_surplus(current, shares), _wanting(current, shares), strict=True))


def without(current: Assignment, worker: WorkerId, workers: int) -> Assignment:
    """The bins of `worker` on the others of 0 to workers-1, each where the fewest are by then.

    >>> without(Assignment([0, 1, 2, 0]), WorkerId(0), workers=3)
    Assignment([1, 1, 2, 2])
    """
    others = [other for other in range(workers) if other != worker]
    if not others:
        raise PlanError(f"worker {worker} is the only one of {workers}: nobody can take its bins")
    return current.after(_onto_least(current, current.bins_of(worker).tolist(), others))


def skewed(current: Assignment) -> Assignment:
    """The paper's imbalance: the first half of each odd worker's bins on its even neighbour.

    A quarter of the state moves if it was even before, and the loads become 1.5 to 0.5.

    >>> skewed(Assignment.round_robin(bins=8, workers=2))
    Assignment([0, 0, 0, 0, 0, 1, 0, 1])
    """
    if len(current.workers()) < 2:
        raise PlanError(f"all bins are on worker {current.workers()[0]}; a skew takes two workers or more")
    return current.after(_half_to_neighbour(current))


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


def _onto_least(current: Assignment, bins: Iterable[int], workers: Iterable[int]) -> Iterator[Owner]:
    """Each bin in turn to the worker that has the fewest by then, the lowest number first."""
    loads = [(len(current.bins_of(WorkerId(worker))), worker) for worker in workers]
    heapify(loads)
    for bin in bins:
        load, worker = loads[0]
        heapreplace(loads, (load + 1, worker))
        yield bin, worker
