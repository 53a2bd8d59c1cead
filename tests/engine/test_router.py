"""F on a partition: every record once, to the owner of its bin, in payloads that are neither large nor many."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import Bins
from megaphone.configuration import Assignment
from megaphone.dataflow import exchange
from megaphone.dataflow.operators import Input, bin_operator
from megaphone.dataflow.records import Records
from megaphone.engine.spark.router import route
from megaphone.engine.spark.task import Binding

BINS, SLOTS, ROW = 8, 2, 16
INPUT = Input(pa.schema([("key", pa.int64()), ("n", pa.int64())]), ("key",))


@given(st.lists(st.integers(0, 60), max_size=4), st.sampled_from([1, 50, 200, 10**6]))
def test_partition_is_sent_in_payloads_of_bounded_size(sizes, room):
    batches = [batch(number, size) for number, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "PAYLOAD_BYTES", room)
        rows = [row for part in route(binding(), 0, iter(batches)) for row in part.to_pylist()]
    payloads = [(row["worker"], records_of(row)) for row in rows if row["kind"] < exchange.FRONTIER]
    owners = Assignment.round_robin(BINS, SLOTS).owners
    for worker in range(SLOTS):
        right = [
            row
            for rows in batches
            for row, bin in zip(rows.to_pylist(), bins_of(rows).tolist(), strict=True)
            if owners[bin] == worker
        ]
        mine = [records for of, records in payloads if of == worker]
        found = [row for records in mine for row in records.data.to_pylist()]
        assert [(row["key"], row["n"]) for row in found] == [(row["key"], row["n"]) for row in right]
        assert all(len(records) <= max(1, room // ROW) for records in mine)
        assert len(mine) <= 1 + len(right) / max(1, room // ROW)


def test_rows_that_take_no_room_are_sent_too():
    nothing = Input(pa.schema([("key", pa.null())]), ("key",))
    rows = pa.record_batch([pa.nulls(5), pa.array([1] * 5, pa.int64())], ["key", exchange.HASH])
    sent = [row for part in route(binding(nothing), 0, iter([rows])) for row in part.to_pylist()]
    (payload,) = [row["payload"] for row in sent if row["kind"] < exchange.FRONTIER]
    assert sum(map(len, exchange.decode(payload, nothing.schema))) == 5


def binding(input=INPUT):
    spec = bin_operator("sum", [input], print, input.schema, dict)
    return Binding(None, None, "", False, "control", BINS, SLOTS, spec, False, ((),))


def batch(number, size):
    hashes = pa.array([(number * 1000 + row) * 0x9E3779B97F4A7C15 % 2**64 - 2**63 for row in range(size)], pa.int64())
    keys = pa.array(range(size), pa.int64())
    return pa.record_batch([keys, pa.array([number] * size, pa.int64()), hashes], ["key", "n", exchange.HASH])


def bins_of(rows):
    return Bins.of_count(BINS).of_hashes(rows.column(exchange.HASH).to_numpy())


def records_of(row):
    return Records.concat(list(exchange.decode(row["payload"], INPUT.schema)), INPUT.schema)
