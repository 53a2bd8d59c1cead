"""Would catch a rescale that leaves workers uneven or moves more than it must, and a drain that leaves bins behind."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control.targets import balanced, passed_on, skewed, without
from megaphone.errors import PlanError

assignments = st.lists(st.integers(0, 6), min_size=1, max_size=60).map(Assignment)


def loads(assignment, workers):
    return [len(assignment.bins_of(WorkerId(worker))) for worker in range(workers)]


@given(assignments, st.integers(1, 9))
def test_balanced_is_within_one_bin_of_even(current, workers):
    counts = loads(balanced(current, workers), workers)
    assert sum(counts) == len(current)
    assert max(counts) - min(counts) <= 1


@given(assignments, st.integers(1, 9))
def test_balanced_moves_the_fewest_bins(current, workers):
    """No even assignment keeps more than every worker's bins up to the share, with the odd bins where they are."""
    even, odd = divmod(len(current), workers)
    counts = loads(current, workers)
    kept = sum(min(count, even) for count in counts) + min(odd, sum(count > even for count in counts))
    assert len(list(current.moves_to(balanced(current, workers)))) == len(current) - kept


@given(assignments, st.integers(1, 9))
def test_balanced_stays_where_it_is(current, workers):
    target = balanced(current, workers)
    assert balanced(target, workers) == target == balanced(current, workers)


@given(assignments, st.integers(0, 6), st.integers(2, 9))
def test_drained_worker_ends_empty_and_only_its_bins_move(current, worker, workers):
    target = without(current, {WorkerId(worker)}, workers)
    assert worker not in target.workers()
    assert {move.source for move in current.moves_to(target)} <= {worker}
    assert all(move.target < workers for move in current.moves_to(target))


@given(st.integers(2, 9), st.integers(0, 8), st.integers(1, 60))
def test_draining_an_even_assignment_leaves_it_even(workers, worker, bins):
    worker %= workers
    counts = loads(without(Assignment.round_robin(bins, workers), {WorkerId(worker)}, workers), workers)
    counts.pop(worker)
    assert max(counts) - min(counts) <= 1


@given(assignments, st.sets(st.integers(0, 6), max_size=6), st.lists(st.floats(0.1, 9), min_size=60, max_size=60))
def test_drained_bins_go_where_the_least_load_is(current, leaving, weights):
    weights = np.array(weights[: len(current)])
    target = without(current, leaving, 7, weights)
    assert not leaving & set(target.workers())
    assert {move.source for move in current.moves_to(target)} <= leaving
    by_worker = [weights[target.bins_of(WorkerId(worker))].sum() for worker in set(range(7)) - leaving]
    arrived = [float(weights[move.bin]) for move in current.moves_to(target)]
    before = [weights[current.bins_of(WorkerId(worker))].sum() for worker in set(range(7)) - leaving]
    assert max(by_worker) <= max([*before, min(by_worker) + max(arrived, default=0)]) + 1e-9


@pytest.mark.parametrize("workers", [2, 4, 16])
@pytest.mark.parametrize("bins", [64, 4096])
def test_skew_moves_a_quarter_and_leaves_three_to_one(workers, bins):
    current = Assignment.round_robin(bins, workers)
    target = skewed(current)
    assert len(list(current.moves_to(target))) == bins // 4
    even = bins // workers
    assert loads(target, workers) == [even * 3 // 2, even // 2] * (workers // 2)
    assert all((move.source % 2, move.target) == (1, move.source - 1) for move in current.moves_to(target))


def test_skew_of_an_odd_number_of_workers_leaves_the_last_alone():
    assert Counter(skewed(Assignment.round_robin(12, 3)).owners.tolist()) == {0: 6, 1: 2, 2: 4}


@pytest.mark.parametrize("workers", [2, 3, 16])
def test_passing_on_moves_half_of_the_bins_and_leaves_the_loads_as_they_were(workers):
    current = Assignment.round_robin(workers * 8, workers)
    target = passed_on(current, workers)
    assert Counter(move.source for move in current.moves_to(target)) == dict.fromkeys(range(workers), 4)
    assert all(move.target == (move.source + 1) % workers for move in current.moves_to(target))
    assert loads(target, workers) == loads(current, workers)


def test_what_cannot_be_is_refused():
    with pytest.raises(PlanError, match="0 workers asked for; choose 1 or more"):
        balanced(Assignment([0, 0]), 0)
    with pytest.raises(PlanError, match="without workers 0, 1 of 2 none is left to take their bins; add workers first"):
        without(Assignment([0, 0]), {WorkerId(1), WorkerId(0)}, 2)
    with pytest.raises(PlanError, match="all bins are on worker 0; a skew takes two workers or more"):
        skewed(Assignment([0, 0]))
    with pytest.raises(PlanError, match="1 workers have nobody to pass bins on to; choose 2 or more"):
        passed_on(Assignment([0, 0]), 1)
