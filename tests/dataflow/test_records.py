"""Would catch a row that loses its bin or its time when rows are cut, joined or put in order."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.dataflow.exchange import decode, encode
from megaphone.dataflow.records import Records, argsort, runs
from megaphone.progress import Time
from megaphone.testing import make_records

SCHEMA = pa.schema([("n", pa.int64())])
rows = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 9)), max_size=30).map(
    lambda pairs: [(bin, time, number) for number, (bin, time) in enumerate(pairs)]
)


def rows_of(records):
    return list(zip(records.bins.tolist(), records.times.tolist(), records.data["n"].to_pylist(), strict=True))


@given(rows)
def test_sorted_is_by_bin_then_time_then_arrival(rows):
    assert rows_of(make_records(rows, SCHEMA).sorted()) == sorted(rows)


@given(rows)
def test_groups_are_the_rows_of_each_bin(rows):
    groups = {bin: rows_of(group) for bin, group in make_records(rows, SCHEMA).sorted().groups()}
    assert groups == {b: [row for row in sorted(rows) if row[0] == b] for b in {row[0] for row in rows}}


@given(st.lists(rows, max_size=4))
def test_concat_keeps_every_row_in_order(parts):
    joined = Records.concat([make_records(part, SCHEMA) for part in parts], SCHEMA)
    assert rows_of(joined) == [row for part in parts for row in part]
    assert joined.data.schema == SCHEMA


@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=4), st.booleans())
def test_rows_at_one_time_stay_so_until_another_joins(parts, mixed):
    records = [Records.at(Time(7), np.array(bins, np.int64), one_column(bins)) for bins in parts]
    records += [make_records([(0, 8, 0)], SCHEMA)] if mixed else []
    joined = Records.concat(records, SCHEMA)
    assert joined.times.tolist() == [7] * sum(map(len, parts)) + [8] * mixed
    if len(joined) > 1:
        assert joined.sorted().at_one_time == (not mixed)


def one_column(values):
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


@given(rows, st.data())
def test_where_keeps_what_the_mask_selects(rows, data):
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    kept = make_records(rows, SCHEMA).where(np.array(mask, np.bool_))
    assert rows_of(kept) == [row for row, keep in zip(rows, mask, strict=True) if keep]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=60))
def test_pieces_are_what_the_mask_selects_in_order(stretches):
    mask = np.array([chosen for chosen, long in stretches for _ in range(long)], np.bool_)
    rows = [(n % 3, n, n) for n in range(len(mask))]
    pieces = make_records(rows, SCHEMA).pieces(mask)
    assert [row for piece in pieces for row in rows_of(piece)] == [row for row in rows if mask[row[2]]]


def test_where_copies_nothing_when_it_selects_all():
    records = make_records([(0, 1, 2)], SCHEMA)
    assert records.where(np.array([True])) is records


@given(st.lists(st.integers(0, 2**20 - 1)))
def test_argsort_is_stable_also_past_sixteen_bits(values):
    order = argsort(np.array(values, np.uint32))
    assert order.tolist() == sorted(range(len(values)), key=values.__getitem__)


@given(st.lists(st.integers(0, 2)))
def test_runs_cover_everything_once(values):
    found = list(runs(np.array(values, np.int64)))
    assert [i for start, stop in found for i in range(start, stop)] == list(range(len(values)))
    assert all(len(set(values[start:stop])) == 1 for start, stop in found)
    assert all(values[a[0]] != values[b[0]] for a, b in pairwise(found))


@pytest.mark.parametrize("clock", [None, "at"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize("bin", [7, 2**16 - 1, 2**16, 2**20 - 1])
def test_exchange_keeps_bins_and_times_however_they_travel(bin, kind, clock):
    data = pa.record_batch({"at": pa.array([5, -9, 2**60]).cast(kind)})
    records = Records(np.array([bin, 0, bin], np.uint32), np.array([5, -9, 2**60]), data)
    parts = [records.slice(0, 1), records.slice(1, 3)]
    (first, second) = decode(encode(parts, clock), data.schema)
    received = Records.concat([first, second], data.schema)
    assert received.bins.dtype == np.uint32
    assert received.bins.tolist() == records.bins.tolist()
    assert received.times.tolist() == records.times.tolist()
    assert received.data.equals(data)


def test_times_that_a_column_has_are_not_sent_twice():
    data = pa.record_batch({"at": np.arange(10_000)})
    records = Records(np.arange(10_000, dtype=np.uint32), np.arange(10_000), data)
    assert encode([records]).size - encode([records], "at").size >= 80_000


@pytest.mark.parametrize("times", [[5, 5, 5], [5, 9, -2]])
def test_exchange_adds_and_loses_nothing(times):
    records = make_records([(b, t, 10 * b) for b, t in enumerate(times)], SCHEMA)
    if len(set(times)) == 1:
        records = Records.at(Time(5), records.bins, records.data)
    received = Records.concat(list(decode(encode([records]), SCHEMA)), SCHEMA)
    assert rows_of(received) == rows_of(records)
    assert received.at_one_time == records.at_one_time
