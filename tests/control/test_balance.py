"""Would catch a rebalance that leaves a worker overloaded, moves state for nothing, or moves it to and fro."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from megaphone.configuration import Assignment
from megaphone.control.balance import TOLERANCE, even, imbalance
from megaphone.control.targets import balanced

WORKERS = 4


@st.composite
def loaded(draw, least=0.0):
    """An assignment, the load of each bin and its bytes; some loads are skewed as words are."""
    bins = draw(st.integers(1, 48))
    owners = draw(st.lists(st.integers(0, WORKERS - 1), min_size=bins, max_size=bins))
    load = draw(
        st.lists(
            st.floats(least, 100).map(lambda rate: round(rate, 3)) | st.sampled_from([least, 1.0, 1000.0]),
            min_size=bins,
            max_size=bins,
        )
    )
    sizes = draw(st.lists(st.integers(0, 10**9), min_size=bins, max_size=bins))
    return Assignment(owners), np.array(load), np.array(sizes)


def loads(assignment, load):
    return np.bincount(assignment.owners, load, minlength=WORKERS)


@given(loaded())
def test_busiest_worker_is_within_half_the_tolerance_or_one_bin_of_even(drawn):
    current, load, sizes = drawn
    target = even(current, load, sizes, WORKERS)
    mean = load.sum() / WORKERS
    bound = max((1 + TOLERANCE) * mean, mean + load.max())
    assert loads(target, load).max() <= bound * (1 + 1e-9)
    assert imbalance(target, load, WORKERS) <= imbalance(current, load, WORKERS) * (1 + 1e-9)


@given(loaded())
def test_nothing_moves_within_the_tolerance(drawn):
    current, load, sizes = drawn
    if imbalance(current, load, WORKERS) <= 1 + TOLERANCE:
        assert even(current, load, sizes, WORKERS) == current


def one_goes_back_after_another():
    """Bin 22 fits on worker 0 again only when another bin has left it."""
    owners, load, sizes = np.zeros(36, int), np.zeros(36), np.zeros(36, int)
    owners[22] = 1
    load[[18, 19, 20, 21, 22, 29, 30]] = 16, 1000, 1000, 1000, 84, 1000, 38
    sizes[[20, 21, 30]] = 57, 57, 1
    return Assignment(owners), load, sizes


@given(loaded())
@example(one_goes_back_after_another())
def test_no_single_move_could_have_been_left_out(drawn):
    current, load, sizes = drawn
    target = even(current, load, sizes, WORKERS)
    if imbalance(target, load, WORKERS) <= 1 + TOLERANCE / 2:
        for move in current.moves_to(target):
            without = target.after([(move.bin, move.source)])
            assert imbalance(without, load, WORKERS) > (1 + TOLERANCE / 2) * (1 - 1e-9)


@given(loaded())
def test_once_even_it_stays(drawn):
    current, load, sizes = drawn
    target = even(current, load, sizes, WORKERS)
    assert even(target, load, sizes, WORKERS) == target


@given(loaded(least=0.1), st.data())
def test_load_that_merely_wavers_moves_nothing_back(drawn, data):
    current, load, sizes = drawn
    target = even(current, load, sizes, WORKERS)
    if imbalance(target, load, WORKERS) > 1 + TOLERANCE / 2:
        return
    wave = data.draw(st.lists(st.floats(0.96, 1.04), min_size=len(load), max_size=len(load)))
    assert even(target, load * np.array(wave), sizes, WORKERS) == target


@given(st.lists(st.integers(0, WORKERS - 1), min_size=8, max_size=80).map(Assignment))
@example(Assignment([0] * 64))
def test_even_bins_take_no_more_moves_than_counting_them_would(current):
    ones = np.ones(len(current))
    by_load = list(current.moves_to(even(current, ones, ones, WORKERS)))
    assert len(by_load) <= len(list(current.moves_to(balanced(current, WORKERS))))


def test_of_two_ways_the_one_with_less_state_is_taken():
    current, load = Assignment([0, 0, 0, 1]), np.array([4.0, 4.0, 4.0, 4.0])
    assert even(current, load, np.array([900, 30, 500, 1]), workers=2) == Assignment([0, 1, 0, 1])


def test_workers_that_are_to_go_are_emptied():
    target = even(Assignment([0, 1, 2, 2]), np.array([1.0, 5.0, 1.0, 3.0]), np.zeros(4), workers=2)
    assert target == Assignment([0, 1, 0, 0])


def test_idle_operator_is_even():
    current = Assignment([0, 0, 0])
    assert imbalance(current, np.zeros(3), 2) == 1.0
    assert even(current, np.zeros(3), np.zeros(3), 2) == current


def test_imbalance_is_the_busiest_over_the_mean():
    assert imbalance(Assignment([0, 0, 1]), np.array([3.0, 3.0, 2.0]), 2) == pytest.approx(1.5)
