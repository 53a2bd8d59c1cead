"""Would catch a record that goes to an owner of another time or another bin."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from megaphone.configuration import Assignment, Configuration
from megaphone.dataflow.routing import address
from megaphone.testing import make_records
from routed import routed, update

SCHEMA = pa.schema([("n", pa.int64())])


def test_owner_changes_with_time_within_one_batch():
    configuration = Configuration(Assignment([2, 2]))
    configuration.insert(update(8, 0, 1))
    configuration.insert(update(16, 0, 0))
    rows = [(0, 7, 1), (0, 8, 2), (1, 8, 3), (0, 15, 4), (0, 16, 5)]
    expected = [(2, 0, 7, 1), (1, 0, 8, 2), (2, 1, 8, 3), (1, 0, 15, 4), (0, 0, 16, 5)]
    assert sorted(routed(address(configuration, make_records(rows, SCHEMA)))) == sorted(expected)


def test_no_records_go_nowhere():
    assert list(address(Configuration(Assignment([0, 0])), make_records([], SCHEMA))) == []


changes = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.integers(0, 2)), max_size=6).map(sorted)


@given(changes, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=20))
def test_every_record_leaves_once_for_its_owner(changes, pairs):
    configuration = Configuration(Assignment([0, 1, 2, 0]))
    for change in changes:
        configuration.insert(update(*change))
    rows = [(bin, time, number) for number, (bin, time) in enumerate(pairs)]
    left = routed(address(configuration, make_records(rows, SCHEMA)))
    assert sorted(left) == sorted((configuration.owner(time, bin), bin, time, n) for bin, time, n in rows)


@given(st.lists(st.tuples(st.integers(0, 3), st.just(1)), max_size=20))
def test_order_of_arrival_is_kept_for_each_worker(pairs):
    rows = [(bin, time, number) for number, (bin, time) in enumerate(pairs)]
    for _, records in address(Configuration(Assignment([0, 1, 2, 0])), make_records(rows, SCHEMA)):
        numbers = records.data["n"].to_pylist()
        assert numbers == sorted(numbers)
