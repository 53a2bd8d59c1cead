"""Would catch state that changes on its way: a wrong value, a slice with its whole table, an array that froze."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import BinId
from megaphone.dataflow.records import Records
from megaphone.dataflow.row import make_row
from megaphone.dataflow.state import CHUNK, Parcel, pack, unpack
from megaphone.progress import Time
from megaphone.testing import make_records

WORD = pa.schema([("word", pa.string())])


@dataclass
class Window:
    """A user's own class, as a state."""

    start: int
    values: np.ndarray


def sent(parcel, chunk=CHUNK):
    """The parcel after a journey: cut in chunks, each copied, put together at the other end."""
    packed = pack(parcel)
    stream = b"".join(bytes(piece) for piece in packed.chunks(chunk))
    parts, start = [], 0
    for size in packed.sizes:
        parts.append(bytearray(stream[start : start + size]))
        start += size
    assert start == len(stream)
    return unpack(packed.bin, parts)


def sent_state(state, chunk=CHUNK):
    return sent(Parcel(BinId(0), state, (None,)), chunk).state


objects = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(objects, st.integers(1, 64))
def test_python_objects_arrive_as_they_left(state, chunk):
    assert sent_state(state, chunk) == state


@pytest.mark.parametrize("state", [Counter("abca"), {1, 2}, make_row(("word", "n"), ("a", 1)), 2**100], ids=repr)
def test_usual_states_arrive_as_they_left(state):
    arrived = sent_state(state)
    assert arrived == state
    assert type(arrived) is type(state)


def test_missing_keys_still_get_their_default_after_a_move():
    arrived = sent_state(defaultdict(int, a=1))
    assert arrived["b"] == 0


@pytest.mark.parametrize("dtype", ["i8", "f4", "?", "datetime64[us]", [("n", "i4"), ("x", "f8")]], ids=str)
@pytest.mark.parametrize("cut", [slice(None), slice(2, 7), slice(None, None, -2)], ids=["whole", "slice", "strided"])
def test_arrays_arrive_equal_and_writable(dtype, cut):
    array = np.zeros(20, dtype)[cut]
    arrived = sent_state({"counts": array}, chunk=7)["counts"]
    assert arrived.dtype == array.dtype
    assert np.array_equal(arrived, array)
    assert arrived.flags.writeable
    arrived[0] = array[0]


def test_the_array_that_left_does_not_see_what_happens_to_the_one_that_arrived():
    array = np.zeros(4)
    sent_state(array)[0] = 7
    assert array[0] == 0


def test_objects_with_arrays_inside_arrive_writable():
    arrived = sent_state(Window(3, np.arange(4)))
    arrived.values += 1
    assert (arrived.start, arrived.values.tolist()) == (3, [1, 2, 3, 4])


TABLE = pa.table({"word": [f"word {i}" for i in range(10_000)], "n": range(10_000)})


@pytest.mark.parametrize(
    "state",
    [TABLE, TABLE.slice(17, 5), TABLE.slice(0, 0), pa.concat_tables([TABLE, TABLE.slice(3, 2)])],
    ids=["whole", "slice", "empty", "chunked"],
)
@pytest.mark.parametrize("place", [lambda t: t, lambda t: {"table": t}], ids=["bare", "inside"])
def test_tables_arrive_as_they_left(state, place):
    arrived = sent_state(place(state), chunk=1000)
    table = arrived["table"] if isinstance(arrived, dict) else arrived
    assert table.schema == state.schema
    assert table.equals(state)


@pytest.mark.parametrize("state", [TABLE["n"].slice(3, 4), TABLE["n"].chunk(0).slice(3, 4)], ids=["chunked", "array"])
def test_columns_arrive_as_they_left(state):
    arrived = sent_state({"n": state})["n"]
    assert type(arrived) is type(state)
    assert arrived.equals(state)


@pytest.mark.parametrize("rows", [0, 3])
def test_batches_arrive_as_batches(rows):
    batch = TABLE.to_batches()[0].slice(5, rows)
    arrived = sent_state(batch)
    assert isinstance(arrived, pa.RecordBatch)
    assert arrived.equals(batch)


@pytest.mark.parametrize("place", [lambda t: t, lambda t: {"table": t}, lambda t: [t, t]], ids=["bare", "dict", "list"])
@pytest.mark.parametrize(
    "kind",
    [lambda t: t, lambda t: t.to_batches()[0], lambda t: t["word"], lambda t: t["word"].chunk(0)],
    ids=["table", "batch", "column", "array"],
)
def test_a_slice_brings_only_its_own_rows(place, kind):
    """Else every bin of a shared table would carry the whole table."""
    packed = pack(Parcel(BinId(0), place(kind(TABLE.slice(17, 5))), (None,)))
    assert sum(packed.sizes) < 4000


def test_large_state_is_many_small_chunks_and_is_never_copied():
    array = np.zeros(3 * CHUNK, np.uint8)
    packed = pack(Parcel(BinId(0), {"zeros": array}, (None,)))
    assert [len(chunk) for chunk in packed.chunks()][1:] == [CHUNK] * 3
    assert np.shares_memory(np.frombuffer(packed.parts[1], np.uint8), array)
    assert packed.sizes[0] < 1000


def test_large_pickle_is_many_small_chunks_too():
    packed = pack(Parcel(BinId(0), {number: str(number) for number in range(500_000)}, (None,)))
    assert max(len(chunk) for chunk in packed.chunks()) == CHUNK


def test_size_counts_every_byte():
    packed = pack(Parcel(BinId(0), [np.zeros(10), b"x" * 50], (None,)))
    assert sum(packed.sizes) == sum(len(chunk) for chunk in packed.chunks()) > 130


@pytest.mark.parametrize(
    "records",
    [
        make_records([(3, 9, "a"), (3, 11, "b")], WORD),
        make_records([(1, 1, "x"), (3, 9, "a"), (3, 9, "b")], WORD).slice(1, 3),
        Records.at(Time(4), np.full(2, 3), pa.record_batch({"word": ["a", "b"]})),
    ],
    ids=["whole", "slice", "at one time"],
)
def test_pending_records_arrive_with_their_times(records):
    arrived = sent(Parcel(BinId(3), None, (None, records)), chunk=5)
    none, pending = arrived.pending
    assert (arrived.bin, none) == (3, None)
    assert pending.bins.tolist() == records.bins.tolist() == [3, 3]
    assert pending.times.tolist() == records.times.tolist()
    assert pending.data.equals(records.data)
