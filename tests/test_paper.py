"""Would catch a record that leaves the paper's F before its owner is certain, or goes to an owner of another time."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from megaphone.configuration import Assignment, Configuration
from megaphone.progress import CLOSED, Frontier, Time
from megaphone.testing import make_records
from paper import Router
from routed import routed, update

SCHEMA = pa.schema([("n", pa.int64())])


def at(time):
    return Frontier(Time(time))


def test_record_waits_until_control_frontier_passes_it():
    router = Router(Configuration(Assignment([0, 1])), at(42))
    assert routed(router.receive(make_records([(0, 41, 1), (0, 42, 2), (1, 44, 3)], SCHEMA))) == [(0, 0, 41, 1)]
    assert routed(router.advance(at(42))) == []
    assert routed(router.advance(at(43))) == [(0, 0, 42, 2)]
    assert routed(router.advance(at(45))) == [(1, 1, 44, 3)]
    assert router.held == []


def test_record_that_waited_goes_to_the_owner_it_waited_for():
    """Routed on arrival, the record at 45 would have gone to worker 0, which no longer has the bin by then."""
    configuration = Configuration(Assignment([0, 0]))
    router = Router(configuration, at(40))
    assert routed(router.receive(make_records([(1, 44, 1), (1, 45, 2)], SCHEMA))) == []
    configuration.insert(update(45, 1, 1))
    assert sorted(routed(router.advance(at(50)))) == [(0, 1, 44, 1), (1, 1, 45, 2)]


def test_nothing_is_held_once_the_control_stream_is_closed():
    router = Router(Configuration(Assignment([0, 0])), CLOSED)
    assert routed(router.receive(make_records([(0, 2**62, 1)], SCHEMA))) == [(0, 0, 2**62, 1)]


changes = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.integers(0, 2)), max_size=6).map(sorted)
arrivals = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=8), max_size=6)


@given(changes, arrivals, st.lists(st.integers(0, 21), max_size=6).map(sorted))
def test_every_record_leaves_once_for_its_owner_and_never_early(changes, arrivals, frontiers):
    configuration = Configuration(Assignment([0, 1, 2, 0]))
    for change in changes:
        configuration.insert(update(*change))
    router, left, arrived = Router(configuration), [], []
    for number, pairs in enumerate(arrivals):
        rows = [(bin, time, number) for bin, time in pairs]
        arrived += rows
        left += routed(router.receive(make_records(rows, SCHEMA)))
        if number < len(frontiers):
            left += routed(router.advance(at(frontiers[number])))
        assert all(not router.control.less_equal(time) for _, _, time, _ in left)
    left += routed(router.advance(CLOSED))
    assert sorted(left) == sorted((configuration.owner(time, bin), bin, time, n) for bin, time, n in arrived)
