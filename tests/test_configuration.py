"""Would catch a record addressed by the wrong assignment: an update in force too early or late, or retired too soon."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Assignment, Configuration, Move, Update
from megaphone.errors import PlanError
from megaphone.progress import CLOSED, OPEN, Frontier, Time

BINS = 4
owners = st.lists(st.integers(0, 3), min_size=BINS, max_size=BINS)
updates = st.lists(st.tuples(st.integers(0, 20), st.integers(0, BINS - 1), st.integers(0, 3)), max_size=12).map(sorted)


def configured(initial, changes):
    configuration = Configuration(Assignment(initial))
    for time, bin, worker in changes:
        configuration.insert(Update(Time(time), ((BinId(bin), WorkerId(worker)),)))
    return configuration


def owner_by_scan(initial, changes, time, bin):
    return next((w for t, b, w in reversed(changes) if b == bin and t <= time), initial[bin])


def test_owner_holds_until_the_next_update():
    """The paper's example: a on worker 2 in [4, 8), on worker 1 in [8, 16), on worker 0 from 16 on."""
    configuration = Configuration(Assignment([2, 2]), since=Time(4))
    configuration.insert(Update(Time(8), ((BinId(0), WorkerId(1)),)))
    configuration.insert(Update(Time(16), ((BinId(0), WorkerId(0)),)))
    assert [configuration.owner(Time(t), BinId(0)) for t in (4, 7, 8, 15, 16, 99)] == [2, 2, 1, 1, 0, 0]
    assert configuration.owner(Time(99), BinId(1)) == 2


@given(owners, updates, st.integers(-1, 21), st.integers(0, BINS - 1))
def test_owner_is_the_last_update_at_or_before(initial, changes, time, bin):
    expected = owner_by_scan(initial, changes, time, bin)
    assert configured(initial, changes).owner(Time(time), BinId(bin)) == expected


@given(owners, updates, st.lists(st.tuples(st.integers(-1, 21), st.integers(0, BINS - 1)), min_size=1))
def test_many_owners_at_once_are_the_owners_one_by_one(initial, changes, asked):
    configuration = configured(initial, changes)
    times, bins = np.array(asked, np.int64).T
    expected = [owner_by_scan(initial, changes, time, bin) for time, bin in asked]
    assert configuration.owners(times, bins).tolist() == expected
    assert configuration.owners(Time(asked[0][0]), bins).tolist() == [
        owner_by_scan(initial, changes, asked[0][0], bin) for _, bin in asked
    ]


@given(owners, updates, st.integers(-1, 21), st.integers(0, 10), st.integers(0, BINS - 1))
def test_retiring_changes_no_answer_at_or_after_the_frontier(initial, changes, frontier, ahead, bin):
    configuration = configured(initial, changes)
    configuration.retire(Frontier(Time(frontier)))
    time = frontier + ahead
    assert configuration.owner(Time(time), BinId(bin)) == owner_by_scan(initial, changes, time, bin)
    assert len(configuration) <= 1 + len({t for t, _, _ in changes if t > frontier})


def test_nothing_is_retired_while_all_can_arrive_and_all_but_one_when_nothing_can():
    configuration = configured([0, 0, 0, 0], [(1, 0, 1), (2, 0, 2), (3, 0, 3)])
    configuration.retire(OPEN)
    assert len(configuration) == 4
    configuration.retire(CLOSED)
    assert [since for since, _ in configuration.entries] == [3]


def test_updates_at_one_time_are_one_entry():
    configuration = configured([0, 0, 0, 0], [(5, 0, 1), (5, 1, 1)])
    assert [since for since, _ in configuration.entries[1:]] == [5]
    assert configuration.last == Assignment([1, 1, 0, 0])


def test_update_behind_the_last_is_refused_and_changes_nothing():
    configuration = configured([0, 0, 0, 0], [(30, 0, 1)])
    with pytest.raises(PlanError, match="reconfiguration at time 29 is behind the one at 30; choose 30 or later"):
        configuration.insert(Update(Time(29), ((BinId(0), WorkerId(2)),)))
    assert configuration.last == Assignment([1, 0, 0, 0])


def test_time_before_the_first_entry_is_refused():
    with pytest.raises(PlanError, match="time 3 is before the first entry, 4"):
        Configuration(Assignment([0, 0]), since=Time(4)).owner(Time(3), BinId(0))


def test_configuration_survives_as_its_entries():
    configuration = configured([0, 1, 0, 1], [(5, 0, 1), (9, 3, 0)])
    assert Configuration.of(configuration.entries).entries == configuration.entries


@given(owners, owners)
def test_moves_lead_from_one_assignment_to_the_other(current, target):
    moves = list(Assignment(current).moves_to(Assignment(target)))
    assert moves == [Move(b, s, t) for b, (s, t) in enumerate(zip(current, target, strict=True)) if s != t]
    assert Assignment(current).after((move.bin, move.target) for move in moves) == Assignment(target)


def test_assignment_cannot_be_changed_from_outside():
    table = np.array([0, 1], np.int32)
    assignment = Assignment(table)
    table[0] = 7
    assert assignment == Assignment([0, 1])
    with pytest.raises(ValueError, match="read-only"):
        assignment.owners[0] = 7


def test_assignment_knows_its_bins_and_workers():
    assignment = Assignment([3, 1, 3, 1])
    assert assignment.bins_of(WorkerId(3)).tolist() == [0, 2]
    assert assignment.bins_of(WorkerId(0)).tolist() == []
    assert assignment.workers() == [1, 3]
